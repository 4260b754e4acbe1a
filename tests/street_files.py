"""Street scenes as files in the layouts of other data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epibench.street import StreetDataset
from epibench.street.export import export


def write_street(scenes: StreetDataset, layout: str, folder: Path, *options: Any) -> None:
    """Write all scenes."""
    list(export(scenes, layout, folder, *options))
