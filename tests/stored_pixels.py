"""Stored predictions as scores read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from epibench.members.maps import upsampled_rows
from epibench.members.stored import StoredPredictions, refined


def stored_pixels(store: Any, budget: int | None = None) -> Iterator[Any]:
    """The valid pixels of an open store in blocks, with the outputs of members; budget: bytes of a block."""
    return iter(StoredPredictions(store) if budget is None else StoredPredictions(store, budget=budget))


def refined_array(store: Any, name: str) -> Any:
    """An array of an open store at the resolution of its targets."""
    return refined(store).arrays[name]


def upsampled_logits(coarse: Tensor, size: tuple[int, int], align_corners: bool) -> Tensor:
    """Logits (member, image, class, row, column) at a size, as scores compute them, with the classes last."""
    return upsampled_rows(coarse, size, slice(0, size[0]), align_corners).movedim(2, -1)
