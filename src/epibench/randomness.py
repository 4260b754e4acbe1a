"""Random numbers as a pure function of a key and a counter.

The key is a hash of seed, method, member and purpose. The counter numbers the values of a key. A member sees the same
numbers whether it is trained alone or in a stack, and training resumes from its step number alone. The generator is
SplitMix64 (Steele, Lea, Flood 2014), read at any position.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence

import torch
from torch import Tensor

# The odd constants of SplitMix64 as signed 64-bit integers; products wrap around.
_STEP, _FIRST, _SECOND = -7046029254386353131, -4658895280553007687, -7723592293110705685
_LOW = 2**32 - 1


def key(seed: int, *names: str | int) -> int:
    """Return a signed 64-bit hash of the seed and the names."""
    text = "/".join(str(name) for name in (seed, *names))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)


def member_keys(seed: int, method: str, purpose: str, members: Sequence[int]) -> Tensor:
    """One key per member, (member,) int64."""
    return torch.tensor([key(seed, method, member, purpose) for member in members], dtype=torch.int64)


def bits(keys: Tensor, start: int, count: int) -> Tensor:
    """64 random bits for each counter from `start`, (key, count) int64."""
    return bits_at(keys[:, None], torch.arange(start, start + count, device=keys.device))


def bits_at(keys: Tensor, counters: Tensor) -> Tensor:
    """64 random bits for each key and counter, int64; the two are broadcast."""
    state = keys + counters * _STEP
    # The shift of a negative number drags its sign along; the mask removes it.
    state ^= (state >> 30).bitwise_and_(2**34 - 1)
    state *= _FIRST
    state ^= (state >> 27).bitwise_and_(2**37 - 1)
    state *= _SECOND
    state ^= (state >> 31).bitwise_and_(2**33 - 1)
    return state


def uniform(keys: Tensor, start: int, count: int) -> Tensor:
    """Uniform numbers in [0, 1), multiples of 2⁻²⁴, (key, count) float32."""
    return _uniform(bits(keys, start, count))


def uniform_at(keys: Tensor, counters: Tensor) -> Tensor:
    """Uniform numbers in [0, 1) for each key and counter, float32; the two are broadcast."""
    return _uniform(bits_at(keys, counters))


def _uniform(drawn: Tensor) -> Tensor:
    return (drawn >> 40).bitwise_and_(2**24 - 1).to(torch.float32).mul_(2**-24)


def normal(keys: Tensor, start: int, count: int) -> Tensor:
    """Standard normal numbers, (key, 2, count) float32: two for each counter, by Box and Muller."""
    both = bits(keys, start, count)
    # + ½: the argument of the logarithm is never 0, and the largest possible result is 6.8.
    radius = (both >> 32).bitwise_and_(_LOW).to(torch.float32).add_(0.5).mul_(2**-32).log_().mul_(-2).clamp_(min=0)
    radius = radius.sqrt_()
    angle = both.bitwise_and_(_LOW).to(torch.float32).mul_(2 * math.pi * 2**-32)
    return torch.stack((angle.cos().mul_(radius), angle.sin_().mul_(radius)), 1)


def normal_of(key: int, shape: Sequence[int]) -> Tensor:
    """Standard normal numbers of one key in a shape, float32."""
    count = math.prod(shape)
    return normal(torch.tensor([key]), 0, -(-count // 2)).flatten()[:count].view(tuple(shape))


def permutations(keys: Tensor, epoch: int, length: int) -> Tensor:
    """A random order of 0 … length − 1 for each key, (key, length) int64."""
    width = max(1, (length - 1).bit_length())
    # Sorting random numbers that carry their position in the lowest bits is faster than an argsort.
    tagged = (bits(keys, epoch * length, length) << width) | torch.arange(length, device=keys.device)
    if tagged.device.type == "cpu":
        tagged.numpy().sort(axis=1)
    else:
        tagged = tagged.sort(1).values
    return tagged.bitwise_and_(2**width - 1)
