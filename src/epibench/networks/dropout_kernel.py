"""Dropout in one Triton kernel, which reads and writes every value once and computes its random bits.

The bits come from `randomness.bits`, as in `dropout._drops`, so that a GPU drops the same elements as a CPU. Triton
comes with torch on GPUs. Without it, plain operations are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from epibench import kernels

if TYPE_CHECKING:  # Triton has no types, and may be missing
    triton: Any = None
    tl: Any = None
else:
    try:
        import triton
        import triton.language as tl
    except ImportError:
        triton = tl = None

BLOCK = 1024  # elements of a program
WIDEST = 64  # channels of a block if channels are innermost
TYPES = (torch.float32, torch.bfloat16, torch.float16)
LARGEST = 2**30  # elements of a row: their indices, and indices of a block beyond the end, have 32 bits


# Triton reads the annotations: only constants may have one.
def _fused(  # type: ignore[no-untyped-def]
    values_pointer,
    result_pointer,
    keys_pointer,
    channels,
    pixels,
    windows,
    place,
    below,
    slope,
    inner: tl.constexpr,
    outer: tl.constexpr,
):
    """Process one block of a batch row; memory holds (pixel, channel), elements are counted as (channel, pixel)."""
    pixel = tl.program_id(0) * outer + tl.arange(0, outer)[:, None]
    channel = tl.program_id(1) * inner + tl.arange(0, inner)[None, :]
    row = tl.program_id(2).to(tl.int64)
    inside = (pixel < pixels) & (channel < channels)
    size = channels * pixels
    element = (row % windows) * size + (channel * pixels + pixel)
    counter = (place.to(tl.int64) << 40) + (element >> 2)
    # SplitMix64 as in randomness.bits: the shift of a negative number drags its sign along; the mask removes it.
    state = tl.load(keys_pointer + row // windows) + counter * tl.full((), -7046029254386353131, tl.int64)
    state = (state ^ ((state >> 30) & 0x3FFFFFFFF)) * tl.full((), -4658895280553007687, tl.int64)
    state = (state ^ ((state >> 27) & 0x1FFFFFFFFF)) * tl.full((), -7723592293110705685, tl.int64)
    state = state ^ ((state >> 31) & 0x1FFFFFFFF)
    piece = (state >> ((element & 3) * 16)).to(tl.int32) & 0xFFFF
    address = row * size + (pixel * channels + channel)
    values = tl.load(values_pointer + address, mask=inside, other=0.0)
    kept = (values.to(tl.float32) * slope).to(values.dtype)
    result = tl.where((piece ^ 0x8000) < below, 0.0, kept)
    tl.store(result_pointer + address, result, mask=inside)


_kernel = None if triton is None else triton.jit(_fused, do_not_specialize=("windows", "place", "below"))


def can_fuse(values: Tensor) -> bool:
    """Return whether the kernel supports (row, …) values: on a suitable GPU, dense, and without gradients."""
    if _kernel is None or not values.is_cuda or values.dtype not in TYPES or values.dim() < 2:
        return False
    if values.requires_grad and torch.is_grad_enabled():
        return False
    dense = values.is_contiguous() or _channels_last(values)
    return dense and 0 < values.numel() <= LARGEST * len(values) and kernels.usable(values)


def _channels_last(values: Tensor) -> bool:
    return values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last)


def fused_dropout(values: Tensor, keys: Tensor, place: int, below: int, slope: float) -> Tensor:
    """Return (row, …) values · slope, or 0 where the 16 bits of an element are below.

    `keys`: (image,) int64, with the same number of rows each; `place`: below 2²³. The result has the memory layout of
    the values.
    """
    result, rows = torch.empty_like(values), len(values)
    last = not values.is_contiguous()
    channels = values.shape[1] if last else 1
    pixels = values[0].numel() // channels
    inner = min(WIDEST, 1 << (channels - 1).bit_length())
    outer = BLOCK // inner
    grid = (-(-pixels // outer), -(-channels // inner), rows)
    sizes = (channels, pixels, rows // len(keys), place, below, slope)
    with kernels.launching(values):
        _kernel[grid](values, result, keys, *sizes, inner=inner, outer=outer)  # type: ignore[index]
    return result
