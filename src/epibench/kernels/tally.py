"""Histograms and sums of categorical metrics, filled while draws are scored, without (draw, pixel) arrays.

Each draw has a row of counts and a row of sums, in sections one after another, which `Tally` separates. Sums are added
by atomic operations in varying order: they differ between runs by their rounding. Counts do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
import triton
import triton.language as tl
from torch import Tensor

from epibench.kernels import launches, launching
from epibench.kernels.categorical import judged, tile_of
from epibench.kernels.drawn import DrawnMembers
from epibench.kernels.histograms import bin_of

PIXELS_AT_ONCE = 128
HIGHEST = tl.constexpr(1.01)  # the largest probability, including 16-bit rounding
COPIES = 8  # of sections with few cells, so that threads do not wait for each other


@dataclass(frozen=True)
class Layout:
    """Numbers of cells of the sections: `wide` histograms, `narrow` ones of each class, and bins of confidence.

    narrow_first: index, with `narrow_bits`, of the first bin of the octaves that narrow histograms distinguish.
    """

    classes: int
    wide: int
    wide_bits: int
    narrow: int
    narrow_bits: int
    narrow_first: int
    bins: int

    @property
    def joint(self) -> int:
        """Number of cells (true class, predicted class, bin of confidence), with a separate bin for 1."""
        return self.classes * self.classes * (self.bins + 1)

    @property
    def count_sections(self) -> dict[str, int]:
        """Sections of a row of counts, in order."""
        of_classes = self.classes * self.narrow
        wide = dict.fromkeys(("uncertainty", "loss", "doubt"), self.wide)
        return wide | {
            "class_uncertainty": of_classes,
            "class_loss": of_classes,
            "joint": COPIES * self.joint,
            "infinite": 1,
        }

    @property
    def sum_sections(self) -> dict[str, int]:
        """Sections of a row of sums, in order."""
        wide = dict.fromkeys(("uncertainty_losses", "uncertainty_squares", "loss", "doubt"), self.wide)
        names = ("class_uncertainty_losses", "class_uncertainty_squares", "class_loss")
        narrow = dict.fromkeys(names, self.classes * self.narrow)
        return wide | narrow | {"confidence": COPIES * self.joint, "nll": COPIES * self.classes, "finite_nll": 1}


@dataclass(frozen=True)
class Tally:
    """Counts and sums of every draw, (draw, cell) each."""

    layout: Layout
    counts: Tensor
    sums: Tensor

    def count(self, section: str) -> Tensor:
        """Return a section of the counts; in `doubt`, the upper half of each number counts right pixels."""
        return _section(self.counts, self.layout.count_sections, section)

    def sum(self, section: str) -> Tensor:
        """Return a section of the sums."""
        return _section(self.sums, self.layout.sum_sections, section)

    @cached_property
    def joint(self) -> Tensor:
        """Pixels by (draw, true class, predicted class, bin of confidence)."""
        return self._by_classes(self.count("joint"))

    @cached_property
    def confidence(self) -> Tensor:
        """Sums of the confidences of these pixels."""
        return self._by_classes(self.sum("confidence"))

    def _by_classes(self, section: Tensor) -> Tensor:
        layout = self.layout
        return section.view(-1, COPIES, layout.joint).sum(1).view(-1, layout.classes, layout.classes, layout.bins + 1)

    @property
    def nll(self) -> Tensor:
        """−log of the probability of the target by true class, (draw, class)."""
        return self.sum("nll").view(-1, COPIES, self.layout.classes).sum(1)


def _section(table: Tensor, sections: dict[str, int], name: str) -> Tensor:
    names = list(sections)
    start = sum(sections[before] for before in names[: names.index(name)])
    return table[:, start : start + sections[name]]


def tally(probs: Tensor, drawn: DrawnMembers, draws: int, target: Tensor, with_entropy: bool, layout: Layout) -> Tally:
    """Score all draws on some pixels, and count. probs: (member, class, pixel) float64; target: (pixel,).

    Pixels with a score that is not a number ≥ 0, or with an impossible confidence, are left out.
    """
    counts = torch.zeros((draws, sum(layout.count_sections.values())), dtype=torch.int64, device=probs.device)
    sums = torch.zeros((draws, sum(layout.sum_sections.values())), dtype=torch.float64, device=probs.device)
    groups, together = drawn.rows.shape
    probs = probs if probs.stride(2) == 1 else probs.contiguous()
    for part in launches(len(target), PIXELS_AT_ONCE):
        pixels = part.stop - part.start
        with launching(probs):
            _tally[groups, triton.cdiv(pixels, PIXELS_AT_ONCE)](
                probs[:, :, part], target[part], *drawn.tables, pixels, probs.stride(0), probs.stride(1),
                counts, sums, counts.shape[1], sums.shape[1], layout.classes, layout.wide, 31 - layout.wide_bits,
                layout.narrow, 31 - layout.narrow_bits, layout.narrow_first, layout.bins, COPIES,
                with_entropy, together, PIXELS_AT_ONCE, enable_fp_fusion=False,
            )  # fmt: skip
    return Tally(layout, counts, sums)


@triton.jit
def _tally(
    probs, target, rows, sizes, members, weights, most, pixels, member_stride, class_stride,
    counts, sums, counts_stride, sums_stride, CLASSES: tl.constexpr, WIDE: tl.constexpr, WIDE_SHIFT: tl.constexpr,
    NARROW: tl.constexpr, NARROW_SHIFT: tl.constexpr, NARROW_FIRST: tl.constexpr, BINS: tl.constexpr,
    COPIES: tl.constexpr, ENTROPY: tl.constexpr, DRAWS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    row, pixel, there = tile_of(rows, pixels, DRAWS, PIXELS)
    truth = tl.load(target + pixel).to(tl.int32)[None, :]
    confidence, predicted, brier, own, uncertainty = judged(
        probs + pixel,
        truth,
        sizes,
        members,
        weights,
        most,
        CLASSES,
        member_stride,
        class_stride,
        ENTROPY,
        DRAWS,
        PIXELS,
    )
    # Comparisons with NaN are false: such a pixel has no bin.
    there = there & (uncertainty >= 0) & (brier >= 0) & (confidence >= 0) & (confidence <= HIGHEST)
    copy = (pixel % COPIES).to(tl.int32)[None, :]
    row = tl.maximum(row, 0)
    count, total = counts + row * counts_stride, sums + row * sums_stride
    square = brier * brier
    one = tl.full((DRAWS, PIXELS), 1, tl.int64)

    at = bin_of(uncertainty, WIDE_SHIFT)
    _add(count + at, one, there)
    _add(total + at, brier, there)
    _add(total + WIDE + at, square, there)
    at = bin_of(brier, WIDE_SHIFT)
    _add(count + WIDE + at, one, there)
    _add(total + 2 * WIDE + at, brier, there)
    doubt = tl.where(confidence > 1, 0.0, 1 - confidence)
    right = predicted == truth
    at = bin_of(doubt, WIDE_SHIFT)
    _add(count + 2 * WIDE + at, tl.where(right, one * 4294967297, one), there)  # 2³² + 1
    _add(total + 3 * WIDE + at, doubt, there)
    count += 3 * WIDE
    total += 4 * WIDE

    at = truth * NARROW + _narrow_bin(uncertainty, NARROW_SHIFT, NARROW_FIRST, NARROW)
    _add(count + at, one, there)
    _add(total + at, brier, there)
    _add(total + CLASSES * NARROW + at, square, there)
    at = truth * NARROW + _narrow_bin(brier, NARROW_SHIFT, NARROW_FIRST, NARROW)
    _add(count + CLASSES * NARROW + at, one, there)
    _add(total + 2 * CLASSES * NARROW + at, brier, there)
    count += 2 * CLASSES * NARROW
    total += 3 * CLASSES * NARROW

    of_confidence = tl.minimum((confidence * BINS).to(tl.int32), BINS)
    at = ((copy * CLASSES + truth) * CLASSES + predicted) * (BINS + 1) + of_confidence
    _add(count + at, one, there)
    _add(total + at, confidence, there)
    count += COPIES * CLASSES * CLASSES * (BINS + 1)
    total += COPIES * CLASSES * CLASSES * (BINS + 1)

    nll = -tl.log(own)  # an infinite value makes an infinite sum
    finite = there & (own > 0)
    _add(total + copy * CLASSES + truth, nll, there)
    total += COPIES * CLASSES
    of_draw = tl.sum(tl.where(finite, nll, 0.0), 1)[:, None]
    infinite = tl.sum((there & (own == 0)).to(tl.int64), 1)[:, None]
    _add(total, of_draw, of_draw != 0)
    _add(count, infinite, infinite != 0)


@triton.jit
def _narrow_bin(key, SHIFT: tl.constexpr, FIRST: tl.constexpr, NUMBER: tl.constexpr):
    """Return the bin as `metrics.per_class.narrow_bin` does."""
    index = bin_of(key, SHIFT)
    return tl.minimum(index, tl.minimum(tl.maximum(index - (FIRST - 1), 1), NUMBER - 1))


@triton.jit
def _add(at, value, there):
    tl.atomic_add(at, value, mask=there, sem="relaxed")
