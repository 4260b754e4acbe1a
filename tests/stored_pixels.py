"""Stored predictions as scores read them, in blocks or whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from epibench.members.maps import upsampled_rows
from epibench.members.stored import StoredPredictions, refined
from epibench.store import open_store


def stored_pixels(store: Any, budget: int | None = None) -> Iterator[Any]:
    """The valid pixels of an open store in blocks, with the outputs of members; budget: bytes of a block."""
    return iter(StoredPredictions(store) if budget is None else StoredPredictions(store, budget=budget))


def refined_array(store: Any, name: str) -> Any:
    """An array of an open store at the resolution of its targets."""
    return refined(store).arrays[name]


def upsampled_logits(coarse: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    """Logits (member, image, class, row, column) at a size, as scores compute them, with the classes last."""
    return upsampled_rows(coarse, size, slice(0, size[0]), align_corners).movedim(2, -1)


def stored_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of a store, with logits at the resolution of the targets."""
    store = refined(open_store(path))
    arrays = {name: source.read(tuple(slice(0, n) for n in source.shape)) for name, source in store.arrays.items()}
    return arrays if store.group is None else {**arrays, "group": np.asarray(store.group)}
