"""Files of tensors and notes, written in one step; nothing in them is ever executed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from epibench.errors import InputError


@dataclass(frozen=True)
class Saved:
    """A file of tensors and notes, which complains of what it lacks."""

    path: Path
    tensors: dict[str, Tensor]
    notes: dict[str, Any]

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """A tensor of float32 in the shape that it must have."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.shape != shape or tensor.dtype != torch.float32:
            raise self.complaint(f"its '{name}' are not float32 in the shape {shape}")
        return tensor

    def number(self, name: str) -> float:
        """A number that is 0 or more."""
        value = self.notes.get(name)
        if not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.complaint(f"its '{name}' is {value!r}")
        return float(value)

    def complaint(self, what: str) -> InputError:
        """The error that names the file and the remedy."""
        return InputError(f"{self.path}: {what}; remove it, and it is made anew")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and notes in one step; nothing in such a file is ever executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        save_file(_apart(tensors), beside, metadata={"notes": json.dumps(dict(notes))})
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as a file takes them; those of one name too many, as weights that are shared, are copied."""
    plain: dict[str, Tensor] = {}
    seen = set[int]()
    for name, tensor in tensors.items():
        kept = tensor.detach().cpu().contiguous()
        plain[name] = kept.clone() if kept.data_ptr() in seen else kept
        seen.add(kept.data_ptr())
    return plain


def load_tensors(path: Path, stamp: str, only_notes: bool = False) -> Saved | None:
    """What a file holds, or None where there is none; it must have been written under the same stamp."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "{}"))
            names = [] if only_notes else list(file.keys())
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}); remove it, and it is made anew") from None
    saved = Saved(path, tensors, notes if isinstance(notes, dict) else {})
    if saved.notes.get("stamp") != stamp:
        raise saved.complaint("made with other settings or other data than these")
    return saved
