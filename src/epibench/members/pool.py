"""What every pool is, wherever its members come from: their number, their draws, and what they predict.

The loop of `evaluation` asks a pool on some data for portions, one after another, and each portion for blocks of pixels
with the outputs of all members. Trained networks, small or large, and stored predictions differ only in how they make
these.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from epibench import kernels
from epibench.members.draws import Draws
from epibench.plans import Plan

if TYPE_CHECKING:
    from epibench.methods.contract import MemberTable

# Elements (draw × pixel × class) that are scored at once: 16 MiB in float64; on a GPU enough to fill it.
CHUNK = {"cpu": 2**21, "cuda": 2**27}
CHUNKS_AT_ONCE = {"cpu": 2, "cuda": 1}
# With kernels on a GPU: the part of its memory that a chunk may take, and bytes of each pixel for each draw.
KERNEL_MEMORY = 1 / 8
DRAW_BYTES = 80


class Pool:
    """Members, numbered from 0, in a table, and how they are drawn from."""

    table: MemberTable

    @property
    def num_members(self) -> int:
        """How many members there are."""
        return len(self.table.members)

    @property
    def group(self) -> tuple[int, ...] | None:
        """The network or chain behind each member, if there are several members of one; equal ones lie together."""
        return self.table.group

    @property
    def plan(self) -> Plan:
        """How draws are made from it."""
        return self.table.plan


@dataclass(frozen=True)
class Pixels:
    """A block of valid pixels, or points.

    outputs: mean and variance (member, pixel), or probs or logits (member, pixel, class), dtype as predicted; or, where
        a kernel makes it of coarse logits, their softmax in float64, classes outermost in memory
    target: (pixel,) float64 (gaussian) or int64 (categorical)
    image: (pixel,) int64 number of the image, where there are images
    scanned: pixels that were gone through for this block, valid or not
    """

    outputs: Mapping[str, Tensor]
    target: Tensor
    image: Tensor | None
    scanned: int


@dataclass(frozen=True)
class DrawnPart:
    """Members that are drawn from by themselves, with the draws among them: rows of `weights` (draw, member)."""

    members: slice
    draws: list[int]
    weights: Tensor

    @property
    def num_members(self) -> int:
        """How many members it has."""
        return int(self.members.stop - self.members.start)


class Portion(Protocol):
    """Some data that all members predict before more is read."""

    @property
    def num_images(self) -> int:
        """Images, or points, in it."""

    @property
    def num_pixels(self) -> int:
        """Valid pixels in it."""

    def blocks(self, part: DrawnPart) -> Iterable[Pixels]:
        """Its valid pixels with the outputs of a part's members, each of which is run once."""


class PoolOnData(ABC):
    """A pool and the data that its members predict."""

    pool: Pool
    device: torch.device = torch.device("cpu")
    watching: Stopwatch | None = None  # of showing outputs to others, which is not time of the members

    @property
    @abstractmethod
    def num_images(self) -> int:
        """Images, or points, in the data."""

    def parts(self, draws: Draws) -> list[DrawnPart]:
        """The members that draws stay within."""
        return parts_of(self.pool, draws)

    @abstractmethod
    def portions(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[Portion]:
        """The data from an image on, a little at a time."""

    def ends_stretch(self, images: int) -> bool:
        """Whether a stretch of images whose metrics are added up by themselves ends after so many."""
        return False

    def state(self) -> dict[str, Tensor]:
        """What it needs besides the number of images to go on after an interruption."""
        return {}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:  # noqa: B027  # most have no state
        """Go on from a saved state."""


def parts_of(pool: Pool, draws: Draws) -> list[DrawnPart]:
    """The groups that draws stay within, one after another; the whole pool where draws mix members of groups.

    Members are run once either way; but what is computed for pairs of members, or kept for all of them, stays small.
    """
    group = pool.group or (0,) * pool.num_members
    within = all(len({group[member] for member in members}) == 1 for members in draws.sets)
    ends = [*(end for end in range(1, len(group)) if within and group[end] != group[end - 1]), pool.num_members]
    weights, parts, start = draws.weights, [], 0
    for end in ends:
        numbers = [number for number, members in enumerate(draws.sets) if start <= members[0] < end]
        parts.append(DrawnPart(slice(start, end), numbers, weights[numbers, start:end]))
        start = end
    return [part for part in parts if part.draws]


def chunk_size(num_draws: int, num_members: int, num_classes: int, device: torch.device) -> int:
    """How many pixels are scored at once."""
    if num_classes > 1 and kernels.usable(device):  # averaged probabilities are not held, those of members are
        memory = KERNEL_MEMORY * torch.cuda.get_device_properties(device).total_memory
        of_members = (8 + 4) * num_members * num_classes  # float64, and float32 for the published convention
        return max(1, int(memory / (of_members + DRAW_BYTES * num_draws)))
    return max(1, CHUNK[device.type] // (max(num_draws, num_members) * max(1, num_classes)))


Mark = float | torch.cuda.Event


class Stopwatch:
    """Seconds that a device spends within it, added up.

    On a GPU the ends are events on its stream, which are read when somebody asks: until then nobody waits for it.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._seconds = 0.0
        self._open: list[tuple[Mark, Mark]] = []

    def __enter__(self) -> Stopwatch:
        self._begun = mark(self.device)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.append((self._begun, mark(self.device)))

    @property
    def seconds(self) -> float:
        """All so far; it waits for the device."""
        self._seconds += sum(seconds_between(*ends) for ends in self._open)
        self._open.clear()
        return self._seconds


def mark(device: torch.device) -> Mark:
    """This moment in the work of the device."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(begun: Mark, ended: Mark) -> float:
    """The seconds between two marks of a device; it waits for the second."""
    if isinstance(begun, float) or isinstance(ended, float):
        assert isinstance(begun, float)
        assert isinstance(ended, float)
        return ended - begun
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3
