"""A pool whose members' outputs were stored by any framework."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from epibench.members.draws import Draws
from epibench.members.pool import DrawnPart, Pixels, PoolOnData
from epibench.plans import Plan
from epibench.store.reader import PixelReader


@dataclass
class StoredPredictions(PoolOnData):
    """The members of a prediction store on the pixels that it holds; what is computed of them, on a device."""

    reader: PixelReader
    plan: Plan
    device: torch.device

    @property
    def num_members(self) -> int:
        """The members that were stored."""
        return self.reader.store.num_members

    @property
    def group(self) -> Sequence[int | str] | None:
        """The network or chain behind each member, where the store names it."""
        return self.reader.store.group

    @property
    def num_images(self) -> int:
        """What the first axis counts."""
        return self.reader.store.shape[0]

    def parts(self, draws: Draws) -> list[DrawnPart]:
        """All members in one: a store is read once."""
        return [DrawnPart(slice(0, self.num_members), list(range(len(draws.sets))), draws.weights)]

    def shards(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[StoredPredictions]:
        """The whole store; the reader bounds the memory."""
        yield self

    @property
    def num_pixels(self) -> int:
        """Valid pixels that were read so far."""
        return self.reader.tally.valid

    def blocks(self, part: DrawnPart) -> Iterator[Pixels]:
        """The valid pixels with the outputs of all members."""
        return iter(self.reader)
