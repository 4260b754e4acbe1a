"""The contract of pools: number of members, draws, and predictions.

The loop of `evaluation` requests portions from a pool on some data, and blocks of pixels from each portion, with the
outputs of all members. Pools of trained networks, small or large, and of stored predictions differ only in these.
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
# With kernels on a GPU: the share of its memory that a chunk may take, and bytes of each pixel for each draw.
KERNEL_MEMORY = 1 / 8
DRAW_BYTES = 80


class Pool:
    """Members, numbered from 0, in a table with the plan of draws."""

    table: MemberTable

    @property
    def num_members(self) -> int:
        """The number of members."""
        return len(self.table.members)

    @property
    def group(self) -> tuple[int, ...] | None:
        """The network or chain behind each member, if one has several members; equal ones are neighbours."""
        return self.table.group

    @property
    def plan(self) -> Plan:
        """The plan of draws."""
        return self.table.plan


@dataclass(frozen=True)
class Pixels:
    """A block of valid pixels or points.

    Args:
        outputs: Mean and variance (member, pixel), or probs or logits (member, pixel, class), in the predicted dtype;
            or the softmax of coarse logits from a kernel, in float64 with classes outermost in memory.
        target: (pixel,) float64 (gaussian) or int64 (categorical).
        image: (pixel,) int64, index of the image, if there are images.
        scanned: Number of pixels that were read for this block, valid or not.
    """

    outputs: Mapping[str, Tensor]
    target: Tensor
    image: Tensor | None
    scanned: int


@dataclass(frozen=True)
class DrawnPart:
    """Members with the draws among them: rows of `weights` (draw, member)."""

    members: slice
    draws: list[int]
    weights: Tensor

    @property
    def num_members(self) -> int:
        """The number of members."""
        return int(self.members.stop - self.members.start)


class Portion(Protocol):
    """Some data that all members predict before more is read."""

    @property
    def num_images(self) -> int:
        """The number of images or points."""

    @property
    def num_pixels(self) -> int:
        """The number of valid pixels."""

    def blocks(self, part: DrawnPart) -> Iterable[Pixels]:
        """Yield its valid pixels with the outputs of a part's members, each of which runs once."""


class PoolOnData(ABC):
    """A pool and the data for its members."""

    pool: Pool
    device: torch.device = torch.device("cpu")
    watching: Stopwatch | None = None  # measures the time of observers, which does not count as the members'

    @property
    @abstractmethod
    def num_images(self) -> int:
        """The number of images or points in the data."""

    def parts(self, draws: Draws) -> list[DrawnPart]:
        """Return the groups of members that draws stay within."""
        return parts_of(self.pool, draws)

    @abstractmethod
    def portions(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[Portion]:
        """Yield the data from an image on, in portions."""

    def ends_stretch(self, images: int) -> bool:
        """Return whether a stretch of images with separate metric states ends here."""
        return False

    def state(self) -> dict[str, Tensor]:
        """Return its state, besides the number of images, to resume from."""
        return {}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:  # noqa: B027  # most have no state
        """Resume from a saved state."""


def parts_of(pool: Pool, draws: Draws) -> list[DrawnPart]:
    """Return the groups that draws stay within; the whole pool if draws mix groups.

    Members run once in any case. But results for pairs of members, or of all members, stay small.
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
    """Return the number of pixels that are scored at once."""
    if num_classes > 1 and kernels.usable(device):  # averaged probabilities are not kept, members' probabilities are
        memory = KERNEL_MEMORY * torch.cuda.get_device_properties(device).total_memory
        of_members = (8 + 4) * num_members * num_classes  # float64, and float32 for the published convention
        return max(1, int(memory / (of_members + DRAW_BYTES * num_draws)))
    return max(1, CHUNK[device.type] // (max(num_draws, num_members) * max(1, num_classes)))


Mark = float | torch.cuda.Event


class Stopwatch:
    """Measures the seconds of a device within its contexts.

    On a GPU the ends are events on its stream, which are read only on request, so that nothing waits for them.
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
        """The seconds so far; waits for the device."""
        self._seconds += sum(seconds_between(*ends) for ends in self._open)
        self._open.clear()
        return self._seconds


def mark(device: torch.device) -> Mark:
    """Return the present moment in the device's work."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def seconds_between(begun: Mark, ended: Mark) -> float:
    """Return the seconds between two marks of a device; waits for the second one."""
    if isinstance(begun, float) or isinstance(ended, float):
        assert isinstance(begun, float)
        assert isinstance(ended, float)
        return ended - begun
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3
