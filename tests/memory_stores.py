"""Prediction stores in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from epibench.store.formats import Contents, describe, memory_source


def memory_store(path: Path, chunks: tuple[int, ...] | None = None, **arrays: Any) -> Any:
    """A store whose arrays are in memory, with any chunks that it is to claim."""
    arrays = {name: np.asarray(values) for name, values in arrays.items()}
    kind = "gaussian" if "mean" in arrays else "categorical"
    sources = {name: memory_source(values) for name, values in arrays.items()}
    if chunks is not None:
        for name in {"mean", "variance"} & set(sources):
            object.__setattr__(sources[name], "chunks", (1, *chunks))
    return describe(path, Contents(sources, {"version": 1, "kind": kind}, tuple(sources)))
