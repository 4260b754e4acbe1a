"""From members' logits to each draw's scores of each pixel, without averaged probabilities in memory.

All in float64, and in an order that plain operations can reproduce: classes and members one after another, `fma` where
`torch.addcmul` has one. So bins and classes equal the plain operations', to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from epibench.kernels import launches, launching
from epibench.kernels.drawn import DrawnMembers

PIXELS_OF_MEMBER = 256
PIXELS_OF_DRAWS = 128


@dataclass(frozen=True)
class Refinement:
    """Positions of pixels on a coarse grid.

    pixels: (pixel,) numbers of the pixels, counted along the rows of an image of this width.
    row, column: the lower point; row_share, column_share: the share of the upper point.
    """

    pixels: Tensor
    width: int
    row: Tensor
    row_share: Tensor
    column: Tensor
    column_share: Tensor


def softmax(values: Tensor) -> Tensor:
    """Probabilities of logits (member, class, pixel), float64."""
    members, classes, pixels = values.shape
    probs = torch.empty(values.shape, dtype=torch.float64, device=values.device)
    if probs.numel():
        grid = (triton.cdiv(pixels, PIXELS_OF_MEMBER), members)
        with launching(values):
            _softmax[grid](values, probs, pixels, classes, *values.stride(), PIXELS_OF_MEMBER, enable_fp_fusion=False)
    return probs


def refined_softmax(coarse: Tensor, where: Refinement) -> Tensor:
    """Return the softmax of interpolated logits from a coarse grid (member, class, row, column)."""
    members, classes, height, width = coarse.shape
    pixels = len(where.pixels)
    probs = torch.empty((members, classes, pixels), dtype=torch.float64, device=coarse.device)
    if probs.numel():
        grid = (triton.cdiv(pixels, PIXELS_OF_MEMBER), members)
        numbers = (where.pixels, where.row, where.column)
        at, row, column = (each.to(torch.int32) for each in numbers)
        tables = (at, row, where.row_share.to(coarse.dtype), column, where.column_share.to(coarse.dtype))
        sizes = (pixels, classes, height, width, where.width)
        with launching(coarse):
            _refined_softmax[grid](
                coarse, probs, *tables, *sizes, *coarse.stride(), PIXELS_OF_MEMBER, enable_fp_fusion=False
            )
    return probs


@triton.jit
def _softmax(
    values, probs, pixels, classes, member_stride, class_stride, pixel_stride, BLOCK: tl.constexpr
):  # fmt: skip
    pixel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    member, there = tl.program_id(1).to(tl.int64), pixel < pixels
    first = values + member * member_stride + pixel * pixel_stride
    to = probs + member * classes * pixels + pixel
    at = first
    highest = tl.load(at, mask=there, other=0).to(tl.float64)
    for _ in range(1, classes):
        at += class_stride
        highest = tl.maximum(highest, tl.load(at, mask=there, other=0).to(tl.float64))
    total = tl.zeros((BLOCK,), tl.float64)
    at = first
    for _ in range(classes):
        value = tl.exp(tl.load(at, mask=there, other=0).to(tl.float64) - highest)
        total += value
        tl.store(to, value, mask=there)
        at += class_stride
        to += pixels
    tl.debug_barrier()  # another thread may have stored the loaded value
    for _ in range(classes):
        to -= pixels
        tl.store(to, tl.load(to, mask=there, other=0) / total, mask=there)


@triton.jit
def _refined_softmax(
    coarse, probs, numbers, rows, row_shares, columns, column_shares, pixels, classes, height, width, fine_width,
    member_stride, class_stride, row_stride, column_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    member, there = tl.program_id(1).to(tl.int64), pixel < pixels
    number = tl.load(numbers + pixel, mask=there, other=0)
    row, column = number // fine_width, number % fine_width
    top, left = tl.load(rows + row), tl.load(columns + column)
    down, right = tl.load(row_shares + row), tl.load(column_shares + column)
    below = (tl.minimum(top + 1, height - 1) - top) * row_stride
    beside = (tl.minimum(left + 1, width - 1) - left) * column_stride
    first = coarse + member * member_stride + top * row_stride + left * column_stride
    to = probs + member * classes * pixels + pixel
    at = first
    highest = _between(at, below, beside, down, right)
    for _ in range(1, classes):
        at += class_stride
        highest = tl.maximum(highest, _between(at, below, beside, down, right))
    highest = highest.to(tl.float64)
    total = tl.zeros((BLOCK,), tl.float64)
    at = first
    for _ in range(classes):
        value = tl.exp(_between(at, below, beside, down, right).to(tl.float64) - highest)
        total += value
        tl.store(to, value, mask=there)
        at += class_stride
        to += pixels
    tl.debug_barrier()  # another thread may have stored the loaded value
    for _ in range(classes):
        to -= pixels
        tl.store(to, tl.load(to, mask=there, other=0) / total, mask=there)


@triton.jit
def _between(at, below, beside, down, right):
    """Interpolate along rows of the grid first, as `members.maps.upsampled_rows` does."""
    left = _lerp(tl.load(at), tl.load(at + below), down)
    other = _lerp(tl.load(at + beside), tl.load(at + below + beside), down)
    return _lerp(left, other, right)


@triton.jit
def _lerp(start, end, share):
    """Interpolate as `torch.lerp` does on a GPU."""
    step = end - start
    return tl.where(share < 0.5, tl.fma(share, step, start), tl.fma(-step, 1 - share, end))


def in_float32(probs: Tensor) -> Tensor:
    """Return a float32 softmax of the same logits. probs: (member, class, pixel) float64."""
    members, classes, pixels = probs.shape
    single = torch.empty(probs.shape, dtype=torch.float32, device=probs.device)
    if probs.numel():
        grid = (triton.cdiv(pixels, PIXELS_OF_MEMBER), members)
        with launching(probs):
            _in_float32[grid](
                probs, single, pixels, classes, *probs.stride(), *single.stride(), PIXELS_OF_MEMBER,
                enable_fp_fusion=False,
            )  # fmt: skip
    return single


@triton.jit
def _in_float32(
    probs, single, pixels, classes, member_stride, class_stride, pixel_stride,
    to_member_stride, to_class_stride, to_pixel_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    pixel = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    member, there = tl.program_id(1).to(tl.int64), pixel < pixels
    first = probs + member * member_stride + pixel * pixel_stride
    to = single + member * to_member_stride + pixel * to_pixel_stride
    highest = tl.zeros((BLOCK,), tl.float64)
    at = first
    for _ in range(classes):
        highest = tl.maximum(highest, tl.load(at, mask=there, other=1))
        at += class_stride
    total = tl.zeros((BLOCK,), tl.float32)
    at = first
    for _ in range(classes):
        total += (tl.load(at, mask=there, other=1) / highest).to(tl.float32)
        at += class_stride
    at = first
    for _ in range(classes):
        power = (tl.load(at, mask=there, other=1) / highest).to(tl.float32)
        # A rounded float64 quotient equals the correctly rounded float32 quotient.
        tl.store(to, (power.to(tl.float64) / total.to(tl.float64)).to(tl.float32), mask=there)
        at += class_stride
        to += to_class_stride


def choose(probs: Tensor, drawn: DrawnMembers, draws: int) -> tuple[Tensor, Tensor]:
    """Return confidence and predicted class of every draw and pixel, averaged in float32.

    probs: (member, class, pixel).
    """
    if len(chunks := launches(probs.shape[2], PIXELS_OF_DRAWS)) > 1:
        parts = [choose(probs[:, :, part], drawn, draws) for part in chunks]
        confidence, predicted = (torch.cat(each, 1) for each in zip(*parts, strict=True))
        return confidence, predicted
    _, classes, pixels = probs.shape
    confidence = torch.empty((draws, pixels), dtype=torch.float32, device=probs.device)
    predicted = torch.empty((draws, pixels), dtype=torch.int32, device=probs.device)
    if predicted.numel():
        groups, together = drawn.rows.shape
        probs = probs if probs.stride(2) == 1 else probs.contiguous()
        with launching(probs):
            _choose[groups, triton.cdiv(pixels, PIXELS_OF_DRAWS)](
                probs, *drawn.tables, pixels, classes, probs.stride(0), probs.stride(1),
                confidence, predicted, together, PIXELS_OF_DRAWS, enable_fp_fusion=False,
            )  # fmt: skip
    return confidence, predicted


@triton.jit
def _choose(
    probs, rows, sizes, members, weights, most, pixels, classes, member_stride, class_stride,
    confidences, predictions, DRAWS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    row, pixel, there = tile_of(rows, pixels, DRAWS, PIXELS)
    group, draw = tl.program_id(0), tl.arange(0, DRAWS)
    size = tl.load(sizes + group)
    confidence = tl.full((DRAWS, PIXELS), -1, tl.float32)
    predicted = tl.zeros((DRAWS, PIXELS), tl.int32)
    of_label = probs + pixel
    for label in range(classes):
        average = tl.zeros((DRAWS, PIXELS), tl.float32)
        for number in tl.range(size, loop_unroll_factor=4):
            at = group * most + number
            prob = tl.load(of_label + tl.load(members + at).to(tl.int64) * member_stride)[None, :]
            weight = tl.load(weights + at * DRAWS + draw)[:, None]
            # Times 1/M in float64, rounded: equals the correctly rounded float32 quotient by M.
            average += (prob.to(tl.float64) * weight).to(tl.float32)
        higher = average > confidence
        predicted = tl.where(higher, label, predicted)
        confidence = tl.where(higher, average, confidence)
        of_label += class_stride
    at = row * pixels + pixel[None, :]
    tl.store(confidences + at, confidence, mask=there)
    tl.store(predictions + at, predicted, mask=there)


def judge(
    probs: Tensor, drawn: DrawnMembers, draws: int, target: Tensor, with_entropy: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return confidence, predicted class, Brier score, probability of the target, and doubt of every draw and pixel.

    probs: (member, class, pixel) float64; doubt: the entropy, or 1 − confidence.
    """
    if len(chunks := launches(probs.shape[2], PIXELS_OF_DRAWS)) > 1:
        parts = [judge(probs[:, :, part], drawn, draws, target[part], with_entropy) for part in chunks]
        confidence, predicted, brier, own, doubt = (torch.cat(each, 1) for each in zip(*parts, strict=True))
        return confidence, predicted, brier, own, doubt
    _, classes, pixels = probs.shape
    confidence, brier, own, doubt = (
        torch.empty((draws, pixels), dtype=torch.float64, device=probs.device) for _ in range(4)
    )
    predicted = torch.empty((draws, pixels), dtype=torch.int32, device=probs.device)
    if predicted.numel():
        groups, together = drawn.rows.shape
        probs = probs if probs.stride(2) == 1 else probs.contiguous()
        with launching(probs):
            _judge[groups, triton.cdiv(pixels, PIXELS_OF_DRAWS)](
                probs, target, *drawn.tables, pixels, classes, probs.stride(0), probs.stride(1),
                confidence, predicted, brier, own, doubt,
                with_entropy, together, PIXELS_OF_DRAWS, enable_fp_fusion=False,
            )  # fmt: skip
    return confidence, predicted, brier, own, doubt


@triton.jit
def _judge(
    probs, target, rows, sizes, members, weights, most, pixels, classes, member_stride, class_stride,
    confidences, predictions, briers, owns, doubts,
    ENTROPY: tl.constexpr, DRAWS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    row, pixel, there = tile_of(rows, pixels, DRAWS, PIXELS)
    truth = tl.load(target + pixel)[None, :]
    confidence, predicted, brier, own, doubt = judged(
        probs + pixel,
        truth,
        sizes,
        members,
        weights,
        most,
        classes,
        member_stride,
        class_stride,
        ENTROPY,
        DRAWS,
        PIXELS,
    )
    at = row * pixels + pixel[None, :]
    tl.store(confidences + at, confidence, mask=there)
    tl.store(predictions + at, predicted, mask=there)
    tl.store(briers + at, brier, mask=there)
    tl.store(owns + at, own, mask=there)
    tl.store(doubts + at, doubt, mask=there)


@triton.jit
def tile_of(rows, pixels, DRAWS: tl.constexpr, PIXELS: tl.constexpr):
    """Return the draws (draw, 1) and pixels (pixel,) of a program, and which of them exist.

    A pixel beyond the last one is replaced by the last one.
    """
    row = tl.load(rows + tl.program_id(0) * DRAWS + tl.arange(0, DRAWS)).to(tl.int64)[:, None]
    pixel = tl.program_id(1).to(tl.int64) * PIXELS + tl.arange(0, PIXELS)
    there = (row >= 0) & (pixel < pixels)[None, :]
    return row, tl.minimum(pixel, pixels - 1), there


@triton.jit
def judged(
    of_label, truth, sizes, members, weights, most, classes, member_stride, class_stride,
    ENTROPY: tl.constexpr, DRAWS: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """Return the scores of a program's draws and pixels, each (draw, pixel). of_label: address of the first class."""
    group, draw = tl.program_id(0), tl.arange(0, DRAWS)
    size = tl.load(sizes + group)
    confidence = tl.full((DRAWS, PIXELS), -1, tl.float64)
    predicted = tl.zeros((DRAWS, PIXELS), tl.int32)
    brier = tl.zeros((DRAWS, PIXELS), tl.float64)
    own = tl.zeros((DRAWS, PIXELS), tl.float64)
    doubt = tl.zeros((DRAWS, PIXELS), tl.float64)
    for label in range(classes):
        average = tl.zeros((DRAWS, PIXELS), tl.float64)
        for number in tl.range(size, loop_unroll_factor=4):
            at = group * most + number
            prob = tl.load(of_label + tl.load(members + at).to(tl.int64) * member_stride)[None, :]
            weight = tl.load(weights + at * DRAWS + draw)[:, None]
            average = tl.fma(tl.broadcast_to(weight, (DRAWS, PIXELS)), tl.broadcast_to(prob, (DRAWS, PIXELS)), average)
        higher = average > confidence
        predicted = tl.where(higher, label, predicted)
        confidence = tl.where(higher, average, confidence)
        if ENTROPY:
            doubt += tl.where(average == 0, 0.0, -average * tl.log(average))
        is_truth = truth == label
        own = tl.where(is_truth, average, own)
        miss = tl.where(is_truth, average - 1, average)
        brier = tl.fma(miss, miss, brier)
        of_label += class_stride
    if ENTROPY:
        doubt = tl.where(doubt < 0, 0.0, doubt)
    else:
        doubt = tl.where(confidence > 1, 0.0, 1 - confidence)
    return confidence, predicted, brier, own, doubt
