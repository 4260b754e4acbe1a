"""What members predict for a batch of images, perhaps more coarsely than its pixels: refined where it is looked at.

A network that predicts logits at an eighth of the resolution says all it has to say in a 64th of the memory. So that is
what is kept of every member, and bands of rows are interpolated when their pixels are scored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from epibench.interpolation import grid_positions

Size = tuple[int, int]


class Maps(ABC):
    """What some members predict for the images of a batch."""

    @abstractmethod
    def planes(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Outputs of an image at full resolution, (member, row, column), or (member, class, row, column)."""

    def rows(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Outputs of some rows of image `index` of the batch, (member, row, column[, class])."""
        return {name: _classes_last(values, 3) for name, values in self.planes(index, rows, members).items()}

    def pixels(self, index: int, rows: slice, kept: Tensor | None = None) -> dict[str, Tensor]:
        """Outputs of the pixels of some rows, (member, pixel[, class]); kept: their numbers, None for all.

        Classes lie outside of pixels in memory, as what is computed of them wants it.
        """
        flat = {name: values.flatten(-2) for name, values in self.planes(index, rows).items()}
        chosen = flat if kept is None else {name: values.index_select(-1, kept) for name, values in flat.items()}
        return {name: _classes_last(values, 2) for name, values in chosen.items()}


def _classes_last(values: Tensor, axes: int) -> Tensor:
    return values if values.dim() == axes else values.movedim(1, -1)


class Window(NamedTuple):
    """A part of an image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def whole(size: Size) -> tuple[Window, ...]:
    """The one window that is the image."""
    return (Window(0, 0, *size),)


def windows_over(size: Size, window: Size, overlap: float) -> tuple[Window, ...]:
    """Windows that cover an image; neighbours share at least that part of their sides, and the last ends with it."""
    sides = [min(length, side) for length, side in zip(size, window, strict=True)]
    starts = [_starts(length, side, overlap) for length, side in zip(size, sides, strict=True)]
    return tuple(Window(top, left, sides[0], sides[1]) for top in starts[0] for left in starts[1])


def _starts(length: int, side: int, overlap: float) -> list[int]:
    step = max(1, int(side * (1 - overlap)))
    number = 1 + -(-(length - side) // step)
    return [min(each * step, length - side) for each in range(number)]


@dataclass(frozen=True)
class WindowMaps(Maps):
    """Outputs on windows of images of one size: one window where networks see the whole image.

    values: by name, (member, image, window, …, coarse row, coarse column). Between the points of that grid, whose
    corners are those of the window, values are interpolated; where windows overlap, the mean of their values counts.
    """

    size: Size
    windows: tuple[Window, ...]
    values: Mapping[str, Tensor]

    @property
    def num_classes(self) -> int:
        """Values of each pixel."""
        return math.prod(next(iter(self.values.values())).shape[3:-2])

    def planes(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Outputs at full resolution, (member, row, column), or (member, class, row, column)."""
        return {name: self._upsampled(values[members, index], rows) for name, values in self.values.items()}

    def _upsampled(self, values: Tensor, rows: slice) -> Tensor:
        """values: (member, window, …, coarse row, coarse column)."""
        if len(self.windows) == 1:
            return upsampled_rows(values[:, 0], self.size, rows)
        height = rows.stop - rows.start
        total = values.new_zeros((len(values), *values.shape[2:-2], height, self.size[1]))
        count = values.new_zeros((height, self.size[1]))
        for number, window in enumerate(self.windows):
            top, bottom = max(rows.start, window.top), min(rows.stop, window.top + window.height)
            if top < bottom:
                inner = slice(top - window.top, bottom - window.top)
                columns = slice(window.left, window.left + window.width)
                there = (..., slice(top - rows.start, bottom - rows.start), columns)
                total[there] += upsampled_rows(values[:, number], (window.height, window.width), inner)
                count[there] += 1
        return total.div_(count)


@dataclass(frozen=True)
class GroupedMaps(Maps):
    """Logits of classes as those of groups of classes: what a group has is the sum of its probabilities.

    Classes in no group are left out, and the others share their probability: for pixels that are known to be of none.
    """

    maps: Maps
    groups: Sequence[Sequence[int]]

    def planes(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Logits of the groups, (member, group, row, column)."""
        logits = self.maps.planes(index, rows, members)["logits"]
        merged = [torch.logsumexp(logits[:, list(group)], 1) for group in self.groups]
        return {"logits": torch.stack(merged, 1)}


def upsampled_rows(coarse: Tensor, size: Size, rows: slice, align_corners: bool = True) -> Tensor:
    """Some rows of values on a coarse grid, (…, row, column), interpolated to an image, bilinear.

    Of all rows it is what networks are trained on (`training.network.upsampled`).
    """
    if coarse.shape[-2:] == size:
        return coarse[..., rows, :]
    height = coarse.shape[-2]
    positions = grid_positions(range(rows.start, rows.stop), height, size[0], align_corners, coarse.device)
    lower = positions.floor().long().clamp(max=max(0, height - 2))
    upper = (lower + 1).clamp(max=height - 1)
    share = (positions - lower).to(coarse.dtype)[:, None]
    band = torch.lerp(coarse.index_select(-2, lower), coarse.index_select(-2, upper), share)
    if band.shape[-1] == size[1]:
        return band
    flat = band.reshape(-1, 1, *band.shape[-2:])
    wide = functional.interpolate(flat, (band.shape[-2], size[1]), mode="bilinear", align_corners=align_corners)
    return wide.view(*band.shape[:-1], size[1])


def joined(parts: Sequence[WindowMaps]) -> WindowMaps:
    """The maps of several groups of members as one."""
    if len(parts) == 1:
        return parts[0]
    values = {name: torch.cat([part.values[name] for part in parts]) for name in parts[0].values}
    return WindowMaps(parts[0].size, parts[0].windows, values)
