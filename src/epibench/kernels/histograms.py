"""Histograms over the leading bits of floats, and sums in their bins, for several tables at once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from epibench.kernels import launches, launching

BLOCK = 1024


def bin_index(keys: Tensor, bits: int) -> Tensor:
    """Return the bin of each key ≥ 0, int32, as `metrics.ranking.bin_index` does."""
    keys = keys.contiguous()
    index = torch.empty(keys.shape, dtype=torch.int32, device=keys.device)
    if keys.numel():
        with launching(keys):
            _bin_index[triton.cdiv(keys.numel(), BLOCK),](keys, index, keys.numel(), 31 - bits, BLOCK)
    return index


@triton.jit(do_not_specialize=["number"])  # compiled once for any number of pixels
def _bin_index(keys, index, number, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < number, other=0)
    tl.store(index + at, bin_of(key, SHIFT), mask=at < number)


@triton.jit
def bin_of(key, SHIFT: tl.constexpr):
    """The bin of keys ≥ 0 by the leading bits of their pattern as float32; 0 for zeros alone."""
    pattern = key.to(tl.float32).to(tl.int32, bitcast=True)
    above_zero = (key > 0).to(tl.int32)  # also if it underflows to float32
    return tl.maximum((pattern + ((1 << SHIFT) - 1)) >> SHIFT, above_zero)


def accumulate(index: Tensor, copies: int, *tables: tuple[Tensor, Tensor | None]) -> None:
    """Add values to tables: table[draw, copy, index] += values, or 1 for None.

    This is done for each pixel and each of at most three (table, values).
    index, values: (draw or 1, pixel); tables: (draw, copies · bins). Neighbouring pixels count in different copies.
    """
    if len(chunks := launches(index.shape[1], BLOCK)) > 1:
        for part in chunks:
            parts = ((table, None if values is None else values[:, part]) for table, values in tables)
            accumulate(index[:, part], copies, *parts)
        return
    draws, pixels = tables[0][0].shape[0], index.shape[1]
    if not pixels:
        return
    targets = [argument for table, values in tables for argument in (table, *_row_or_none(values))]
    targets += [None, None, 0] * (3 - len(tables))
    bins = tables[0][0].shape[1] // copies
    with launching(index):
        _accumulate[draws, triton.cdiv(pixels, BLOCK)](*_row(index), *targets, pixels, bins, copies, BLOCK)


def _row(values: Tensor) -> tuple[Tensor, int]:
    """Return values with contiguous pixels, and the stride of rows: 0 if all draws share one row."""
    values = values if values.stride(1) == 1 else values.contiguous()
    return values, values.stride(0) if values.shape[0] > 1 else 0


def _row_or_none(values: Tensor | None) -> tuple[Tensor | None, int]:
    return (None, 0) if values is None else _row(values)


@triton.jit(do_not_specialize=["index_stride", "first_stride", "second_stride", "third_stride", "pixels"])
def _accumulate(
    index, index_stride, first, first_values, first_stride, second, second_values, second_stride,
    third, third_values, third_stride, pixels, bins, copies, BLOCK: tl.constexpr,
):  # fmt: skip
    # Draws come first, so that concurrent programs count in different tables.
    draw = tl.program_id(0).to(tl.int64)
    pixel = tl.program_id(1).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    there = pixel < pixels
    bin_of = tl.load(index + draw * index_stride + pixel, mask=there, other=0)
    cell = (draw * copies + pixel % copies) * bins + bin_of
    _add(first, first_values, draw * first_stride + pixel, cell, there)
    if second is not None:
        _add(second, second_values, draw * second_stride + pixel, cell, there)
    if third is not None:
        _add(third, third_values, draw * third_stride + pixel, cell, there)


@triton.jit
def _add(table, values, at, cell, there):
    if values is None:
        value = tl.full(cell.shape, 1, table.dtype.element_ty)
    else:
        value = tl.load(values + at, mask=there, other=0).to(table.dtype.element_ty)
    tl.atomic_add(table + cell, value, mask=there, sem="relaxed")
