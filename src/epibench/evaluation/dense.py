"""One pass over a domain of images: every member is run once, and every metric of every draw is updated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from epibench.data.batch import Batch
from epibench.data.loading import InOrder, Samples, batches
from epibench.evaluation.draws import Draws
from epibench.evaluation.pixels import Pixels
from epibench.evaluation.pool import Drawn, Part, parts_of, place, without_x
from epibench.evaluation.scoring import evaluate
from epibench.evaluation.suite import Suite, SuiteSettings, make_suite
from epibench.likelihoods import LIKELIHOODS

# Pixels of a shard, which all members see before the next: enough to fill a GPU; with many members, fewer.
SHARD_PIXELS = {"cpu": 2**18, "cuda": 2**22}
FEW_MEMBERS = 32


class ImagePool(Drawn, Protocol):
    """Members that predict images."""

    @property
    def device(self) -> torch.device:
        """Where its members are run."""

    def groups(self, members: slice) -> Iterable[slice]:
        """Members in stretches whose weights fit onto the device together."""

    def weight_bytes(self, members: slice) -> int:
        """The memory that their weights take up."""

    def outputs(self, inputs: Mapping[str, Tensor], members: slice, images: range) -> dict[str, Tensor]:
        """What members predict, by name, (member, image, height, width) or with a last axis of classes."""


class Observer(Protocol):
    """What sees all outputs of the members as they come, to keep some."""

    def see(self, batch: Batch, images: range, members: slice, outputs: Mapping[str, Tensor]) -> None:
        """Outputs of some members for a batch; images: their numbers in the domain."""

    def state(self) -> dict[str, Tensor]:
        """What it has kept, to go on from."""

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from what was kept."""

    def close(self) -> None:
        """All has been seen."""


@dataclass
class Progress:
    """Where a pass stands: images done, valid pixels among them, seconds of the members and of draws and metrics."""

    images: int = 0
    pixels: int = 0
    forward_seconds: float = 0.0
    scoring_seconds: float = 0.0


@dataclass
class DomainPass:
    """A pool, its draws and their metrics on one domain; it can be saved after every shard and goes on from there."""

    pool: ImagePool
    draws: Draws
    settings: SuiteSettings
    samples: Samples
    batch_size: int = 1
    workers: int = 0
    observers: Sequence[Observer] = ()
    done: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.watched = 0.0  # seconds of the observers in this shard
        self.parts = parts_of(self.pool, self.draws)
        self.weights = [part.weights.to(self.pool.device) for part in self.parts]
        self.suites = [make_suite(weights, self.settings) for weights in self.weights]
        for suite in self.suites:
            suite.metrics.to(self.pool.device)

    def run(self, after_shard: Callable[[int], None] = lambda images: None) -> None:
        """Go through all images that are left; `after_shard` hears of how many were done."""
        for shard in self._shards():
            for part, weights, suite in zip(self.parts, self.weights, self.suites, strict=True):
                self._score(shard, part, weights, suite)
            images = sum(len(numbers) for numbers, _ in shard)
            self.done.images += images
            self.done.pixels += sum(int(batch.valid.sum()) for _, batch in shard)
            after_shard(images)

    def _score(self, shard: list[tuple[range, Batch]], part: Part, weights: Tensor, suite: Suite) -> None:
        begun, self.watched = self._now(), 0.0
        pixels = self._outputs(shard, part)
        ran = self._now()
        evaluate([pixels], LIKELIHOODS[self.settings.kind], weights, suite)
        self.done.forward_seconds += ran - begun - self.watched
        self.done.scoring_seconds += self._now() - ran

    def _shards(self) -> Iterator[list[tuple[range, Batch]]]:
        """Batches on the device, with the numbers of their images, gathered until there is enough to do at once."""
        device, first, shard, size = self.pool.device, self.done.images, list[tuple[range, Batch]](), 0
        numbers = range(first, len(self.samples))
        members = max(part.members.stop - part.members.start for part in self.parts)
        enough = SHARD_PIXELS[device.type] // max(1, members // FEW_MEMBERS)
        pin = device.type == "cuda"
        for batch in batches(InOrder(self.samples), numbers, self.batch_size, self.workers, pin):
            shard.append((range(first, first + len(batch.target)), batch.to(device, non_blocking=True)))
            first, size = first + len(batch.target), size + batch.target.numel()
            if size >= enough:
                yield shard
                shard, size = [], 0
        if shard:
            yield shard

    def _outputs(self, shard: list[tuple[range, Batch]], part: Part) -> Pixels:
        """What the members of a part predict for the valid pixels of a shard; each member is run once per image."""
        count = part.members.stop - part.members.start
        valid = [batch.valid.flatten().nonzero().squeeze(1) for _, batch in shard]
        ends = torch.tensor([0, *(len(kept) for kept in valid)]).cumsum(0).tolist()
        kept_outputs: dict[str, Tensor] = {}
        for members in self.pool.groups(part.members):
            rows = slice(members.start - part.members.start, members.stop - part.members.start)
            for number, (images, batch) in enumerate(shard):
                outputs = self.pool.outputs(batch.inputs, members, images)
                self._show(batch, images, members, outputs)
                for name, values in outputs.items():
                    flat = values.flatten(1, 3)
                    if name not in kept_outputs:
                        kept_outputs[name] = flat.new_empty((count, ends[-1], *flat.shape[2:]))
                    kept_outputs[name][rows, ends[number] : ends[number + 1]] = flat[:, valid[number]]
        target = torch.cat([batch.target.flatten()[kept] for (_, batch), kept in zip(shard, valid, strict=True)])
        image = torch.cat(
            [images.start + kept // batch.target[0].numel() for (images, batch), kept in zip(shard, valid, strict=True)]
        )
        wanted = torch.float64 if target.is_floating_point() else torch.int64
        return Pixels(kept_outputs, target.to(wanted), image, len(target))

    def _show(self, batch: Batch, images: range, members: slice, outputs: Mapping[str, Tensor]) -> None:
        """Let observers see outputs; the time that they take is not that of the members."""
        if self.observers:
            begun = self._now()
            for observer in self.observers:
                observer.see(batch, images, members, outputs)
            self.watched += self._now() - begun

    def _now(self) -> float:
        if self.pool.device.type == "cuda":
            torch.cuda.synchronize(self.pool.device)
        return time.perf_counter()

    def results(self) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
        """Every metric of every draw, and their curves."""
        values: dict[str, Tensor] = {}
        curves: dict[str, dict[str, Tensor]] = {}
        for part, suite in zip(self.parts, self.suites, strict=True):
            place(values, _on_cpu(suite.compute()), part, len(self.draws.sets))
            for family, found in suite.curves().items():
                found = _on_cpu(found)
                place(curves.setdefault(family, {"x": found["x"]}), without_x(found), part, len(self.draws.sets))
        return values, curves

    def state(self) -> dict[str, Tensor]:
        """All that is needed to go on, besides `done`."""
        named = {f"suite{number}": suite.state() for number, suite in enumerate(self.suites)}
        named |= {f"observer{number}": observer.state() for number, observer in enumerate(self.observers)}
        return {f"{owner}.{name}": tensor for owner, found in named.items() for name, tensor in found.items()}

    def load_state(self, saved: Mapping[str, Tensor], done: Progress) -> None:
        """Go on from a saved state."""

        def part(owner: str) -> dict[str, Tensor]:
            return {name.removeprefix(owner): each for name, each in saved.items() if name.startswith(owner)}

        for number, suite in enumerate(self.suites):
            suite.load_state(part(f"suite{number}."))
        for number, observer in enumerate(self.observers):
            observer.load_state(part(f"observer{number}."))
        self.done = done


def _on_cpu(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.cpu() for name, value in values.items()}
