"""Predictions of members for a batch of images, possibly coarse: refined when they are scored.

Logits at an eighth of the resolution need a 64th of the memory. So coarse logits of every member are kept, and bands of
rows are interpolated when their pixels are scored.
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

from epibench import kernels
from epibench.interpolation import grid_positions

Size = tuple[int, int]


class Maps(ABC):
    """The predictions of some members for the images of a batch."""

    @abstractmethod
    def planes(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Return outputs of an image at full resolution, (member, row, column), or (member, class, row, column)."""

    def rows(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Return outputs of some rows of image `index` of the batch, (member, row, column[, class])."""
        return {name: _classes_last(values, 3) for name, values in self.planes(index, rows, members).items()}

    def pixels(self, index: int, rows: slice, kept: Tensor | None = None) -> dict[str, Tensor]:
        """Return outputs of the pixels of some rows, (member, pixel[, class]). `kept`: their numbers, None for all.

        In memory, classes lie outside of pixels, which suits later operations.
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
    """Return the one window of the whole image."""
    return (Window(0, 0, *size),)


def windows_over(size: Size, window: Size, overlap: float) -> tuple[Window, ...]:
    """Return windows that cover an image.

    Neighbours share at least the part `overlap` of their sides, and the last window ends with the image.
    """
    sides = [min(length, side) for length, side in zip(size, window, strict=True)]
    starts = [_starts(length, side, overlap) for length, side in zip(size, sides, strict=True)]
    return tuple(Window(top, left, sides[0], sides[1]) for top in starts[0] for left in starts[1])


def _starts(length: int, side: int, overlap: float) -> list[int]:
    step = max(1, int(side * (1 - overlap)))
    number = 1 + -(-(length - side) // step)
    return [min(each * step, length - side) for each in range(number)]


@dataclass(frozen=True)
class WindowMaps(Maps):
    """Outputs on windows of images of one size; one window if networks see the whole image.

    Overlapping windows count with the mean of their values.

    Args:
        size: Size of the images.
        windows: The windows.
        values: By name, (member, image, window, …, coarse row, coarse column). They are interpolated between grid
            points.
        align_corners: Whether the corners of the grid lie on the corners of the window.
    """

    size: Size
    windows: tuple[Window, ...]
    values: Mapping[str, Tensor]
    align_corners: bool = True

    @property
    def num_classes(self) -> int:
        """Number of values of each pixel."""
        return math.prod(next(iter(self.values.values())).shape[3:-2])

    def planes(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Return outputs at full resolution, (member, row, column), or (member, class, row, column)."""
        return {name: self._upsampled(values[members, index], rows) for name, values in self.values.items()}

    def pixels(self, index: int, rows: slice, kept: Tensor | None = None) -> dict[str, Tensor]:
        """Return outputs of pixels. If possible, a kernel computes `softmax` of logits without writing these."""
        logits = self.values.get("logits")
        if logits is None or len(self.windows) > 1 or logits.shape[-2:] == self.size or not kernels.usable(logits):
            return super().pixels(index, rows, kept)
        from epibench.kernels.categorical import Refinement, refined_softmax

        if kept is None:
            kept = torch.arange((rows.stop - rows.start) * self.size[1], dtype=torch.int32, device=logits.device)
        axes = ((range(rows.start, rows.stop), 0), (range(self.size[1]), 1))
        down, right = (
            GridPoints.of(pixels, logits.shape[axis - 2], self.size[axis], self.align_corners, logits.device)
            for pixels, axis in axes
        )
        where = Refinement(kept, self.size[1], *down, *right)
        return {"softmax": refined_softmax(logits[:, index, 0], where).movedim(1, 2)}

    def refined(self, probs: bool = False) -> WindowMaps:
        """Return the maps at the size of the images; `probs`: as probabilities."""
        images = range(next(iter(self.values.values())).shape[1])
        planes = [self.planes(image, slice(0, self.size[0])) for image in images]
        values = {name: torch.stack([each[name] for each in planes], 1)[:, :, None] for name in planes[0]}
        if probs and "logits" in values:
            values = {"probs": values["logits"].double().softmax(3)}
        return WindowMaps(self.size, whole(self.size), values)

    def _upsampled(self, values: Tensor, rows: slice) -> Tensor:
        """values: (member, window, …, coarse row, coarse column)."""
        if len(self.windows) == 1:
            return upsampled_rows(values[:, 0], self.size, rows, self.align_corners)
        height = rows.stop - rows.start
        total = values.new_zeros((len(values), *values.shape[2:-2], height, self.size[1]))
        count = values.new_zeros((height, self.size[1]))
        for number, window in enumerate(self.windows):
            top, bottom = max(rows.start, window.top), min(rows.stop, window.top + window.height)
            if top < bottom:
                inner = slice(top - window.top, bottom - window.top)
                columns = slice(window.left, window.left + window.width)
                there = (..., slice(top - rows.start, bottom - rows.start), columns)
                of_window = upsampled_rows(values[:, number], (window.height, window.width), inner, self.align_corners)
                total[there] += of_window
                count[there] += 1
        return total.div_(count)


@dataclass(frozen=True)
class GroupedMaps(Maps):
    """Logits or probabilities of groups of classes: the sums of their classes' probabilities.

    Classes in no group are left out. The groups' probabilities are divided by their sum, for pixels of a grouped class.
    """

    maps: Maps
    groups: Sequence[Sequence[int]]

    def planes(self, index: int, rows: slice, members: slice = slice(None)) -> dict[str, Tensor]:
        """Return logits or probabilities of the groups, (member, group, row, column)."""
        planes = self.maps.planes(index, rows, members)
        if "logits" in planes:
            merged = [torch.logsumexp(planes["logits"][:, list(group)], 1) for group in self.groups]
            return {"logits": torch.stack(merged, 1)}
        probs = torch.stack([planes["probs"][:, list(group)].sum(1) for group in self.groups], 1)
        # If all common classes have probability 0, they get equal probabilities.
        total = probs.sum(1, keepdim=True)
        return {"probs": torch.where(total > 0, probs / total, 1 / len(self.groups))}


class GridPoints(NamedTuple):
    """Positions of pixels of one axis on its coarse grid.

    lower: index of the point below; share: share of the point above.
    """

    lower: Tensor
    share: Tensor

    @classmethod
    def of(cls, pixels: range, coarse: int, fine: int, align_corners: bool, device: torch.device) -> GridPoints:
        """Return the points of some pixels of an axis with `fine` pixels, on a grid of `coarse` points."""
        positions = grid_positions(pixels, coarse, fine, align_corners, device)
        lower = positions.floor().long().clamp(max=max(0, coarse - 2))
        return cls(lower, positions - lower)

    def upper(self, coarse: int) -> Tensor:
        """Return the index of the upper point."""
        return (self.lower + 1).clamp(max=coarse - 1)


def upsampled_rows(coarse: Tensor, size: Size, rows: slice, align_corners: bool = True) -> Tensor:
    """Return some rows of values on a coarse grid, (…, row, column), interpolated to an image, bilinear.

    For all rows it equals the interpolation of training (`training.network.upsampled`).
    """
    if coarse.shape[-2:] == size:
        return coarse[..., rows, :]
    points = GridPoints.of(range(rows.start, rows.stop), coarse.shape[-2], size[0], align_corners, coarse.device)
    upper, share = points.upper(coarse.shape[-2]), points.share.to(coarse.dtype)[:, None]
    band = torch.lerp(coarse.index_select(-2, points.lower), coarse.index_select(-2, upper), share)
    if band.shape[-1] == size[1]:
        return band
    if band.is_cuda:  # written out, so that a kernel can reproduce it to the last bit
        points = GridPoints.of(range(size[1]), coarse.shape[-1], size[1], align_corners, coarse.device)
        upper, share = points.upper(coarse.shape[-1]), points.share.to(coarse.dtype)
        return torch.lerp(band.index_select(-1, points.lower), band.index_select(-1, upper), share)
    flat = band.reshape(-1, 1, *band.shape[-2:])
    wide = functional.interpolate(flat, (band.shape[-2], size[1]), mode="bilinear", align_corners=align_corners)
    return wide.view(*band.shape[:-1], size[1])


def joined(parts: Sequence[WindowMaps]) -> WindowMaps:
    """Join the maps of several groups of members."""
    if len(parts) == 1:
        return parts[0]
    alike = comparable(parts)
    values = {name: torch.cat([part.values[name] for part in alike]) for name in alike[0].values}
    return WindowMaps(alike[0].size, alike[0].windows, values, alike[0].align_corners)


def comparable(parts: Sequence[WindowMaps]) -> Sequence[WindowMaps]:
    """Return the maps on one grid and with equal names.

    If they differ, they are brought to the size of the image.
    """
    if len({part.align_corners for part in parts}) == 1 and len({_form(part) for part in parts}) == 1:
        return parts
    names = {name for part in parts for name in part.values}
    return [part.refined(probs="probs" in names) for part in parts]


def _form(maps: WindowMaps) -> tuple[tuple[str, torch.Size], ...]:
    return tuple((name, values.shape[2:]) for name, values in sorted(maps.values.items()))
