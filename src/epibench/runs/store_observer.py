"""Predictions of a run as a prediction store, written while the evaluation goes by."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from epibench.data.batch import Batch
from epibench.data.batch import Samples
from epibench.data.loading import InOrder, batches
from epibench.street import StreetDataset
from epibench.members.maps import Maps
from epibench.store.writer import StoreWriter
from epibench.runs.dense_data import DomainData
from epibench.runs.reporter import Reporter
from epibench.members.networks import NetworkPool
from epibench.recipes.dense import DenseRecipe


def largest_size(samples: Samples, workers: int, reporter: Reporter) -> tuple[int, ...]:
    """The height and width that every image of a domain fits into."""
    if isinstance(samples, StreetDataset):
        return samples.size
    sizes = []
    with reporter.step("measure images", len(samples)) as advance:
        for batch in batches(InOrder(samples), range(len(samples)), 1, workers):
            sizes.append(tuple(batch.target.shape[1:]))
            advance(1)
    return tuple(max(sides) for sides in zip(*sizes, strict=True))


class StoreObserver:
    """Writes every output of every member; after an interruption it goes on in the same store."""

    def __init__(
        self,
        path: Path,
        recipe: DenseRecipe,
        method: str,
        domain: str,
        pool: NetworkPool,
        data: DomainData,
        size: tuple[int, ...],
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        kind: Any = recipe.likelihood
        self.writer = StoreWriter(
            path,
            kind=kind,
            method=recipe.label(method),
            domain=recipe.data.domains[domain].label,
            unit=recipe.unit,
            num_members=pool.num_members,
            num_images=len(data.samples),
            size=size,
            class_names=None if data.classes is None else data.classes.names,
            group=pool.group,
            resume=True,
        )

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Write what these members predict, and the targets with the first of them."""
        for place, image in enumerate(images):
            if members.start == 0:
                self.writer.write_target(image, batch.target[place].cpu(), batch.valid[place].cpu())
            rows = slice(0, len(batch.target[place]))
            for number, member in enumerate(range(members.start, members.stop)):
                found = maps.rows(place, rows, slice(number, number + 1))
                self.writer.write(member, image, **{name: values[0].cpu() for name, values in found.items()})

    def state(self) -> dict[str, Tensor]:
        """Everything is in the store."""
        return {}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """The store knows what it has."""

    def close(self) -> None:
        """Say that the store is complete."""
        self.writer.close()
