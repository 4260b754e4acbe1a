"""What a run was made with: versions, commit, device."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from epibench import __version__


def environment(device: torch.device) -> dict[str, Any]:
    """Versions, the commit of the source if it is a checkout, and the device in words."""
    return {
        "epibench": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
    }


def commit() -> str | None:
    """The commit of epibench's own checkout, marked where files differ from it; None for an installed package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    try:
        head = _git(root, "rev-parse", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+changes" if changed else "")


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, check=True, text=True, timeout=10).stdout.strip()
