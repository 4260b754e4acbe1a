"""One pass over a domain of images: every member is run once, and every metric of every draw is updated."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from epibench.data.batch import Batch, Samples
from epibench.data.loading import InOrder, batches
from epibench.evaluation.pool import Drawn, Part, parts_of, place, without_x
from epibench.evaluation.scoring import CHUNKS_AT_ONCE, chunk_size, evaluate
from epibench.evaluation.suite import Suite, SuiteSettings, make_suite
from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import Draws
from epibench.members.maps import GroupedMaps, Maps, WindowMaps, joined
from epibench.store.reader import Pixels

# Pixels of a shard, which all members see before the next: enough to fill a GPU; with many members or classes, fewer.
SHARD_PIXELS = {"cpu": 2**18, "cuda": 2**22}
FEW_MAPS = 32
Shown = tuple[range, Batch]  # images with their numbers in the domain


class ImagePool(Drawn, Protocol):
    """Members that predict images."""

    @property
    def device(self) -> torch.device:
        """Where its members are run."""

    def groups(self, members: slice) -> Iterable[slice]:
        """Members in stretches whose weights fit onto the device together."""

    def weight_bytes(self, members: slice) -> int:
        """The memory that their weights take up."""

    def outputs(self, inputs: Mapping[str, Tensor], members: slice, images: range) -> WindowMaps:
        """What members predict; images: their numbers in the domain."""


class Observer(Protocol):
    """What sees all outputs of the members as they come, to keep some."""

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """What some members predict for a batch; images: their numbers in the domain."""

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
    """A pool, its draws and their metrics on one domain; it can be saved after every shard and goes on from there.

    groups: of the classes that members predict, those that the domain does not tell apart.
    """

    pool: ImagePool
    draws: Draws
    settings: SuiteSettings
    samples: Samples
    batch_size: int = 1
    workers: int = 0
    observers: Sequence[Observer] = ()
    groups: Sequence[Sequence[int]] | None = None
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

    def _score(self, shard: list[Shown], part: Part, weights: Tensor, suite: Suite) -> None:
        begun, self.watched = self._now(), 0.0
        predicted = self._predicted(shard, part)
        ran = self._now()
        evaluate(self._blocks(shard, predicted, part), LIKELIHOODS[self.settings.kind], weights, suite)
        self.done.forward_seconds += ran - begun - self.watched
        self.done.scoring_seconds += self._now() - ran

    def _shards(self) -> Iterator[list[Shown]]:
        """Batches on the device, with the numbers of their images, gathered until there is enough to do at once."""
        device, first, shard, size = self.pool.device, self.done.images, list[Shown](), 0
        numbers = range(first, len(self.samples))
        maps = max(part.members.stop - part.members.start for part in self.parts) * (self.settings.num_classes or 1)
        enough = SHARD_PIXELS[device.type] // max(1, maps // FEW_MAPS)
        pin = device.type == "cuda"
        for batch in batches(InOrder(self.samples), numbers, self.batch_size, self.workers, pin, uneven=True):
            shard.append((range(first, first + len(batch.target)), batch.to(device, non_blocking=True)))
            first, size = first + len(batch.target), size + batch.target.numel()
            if size >= enough:
                yield shard
                shard, size = [], 0
        if shard:
            yield shard

    def _predicted(self, shard: list[Shown], part: Part) -> list[Maps]:
        """What the members of a part predict for each batch of a shard; each member is run once per image."""
        found: list[list[WindowMaps]] = [[] for _ in shard]
        for members in self.pool.groups(part.members):
            for number, (images, batch) in enumerate(shard):
                found[number].append(self.pool.outputs(batch.inputs, members, images))
                self._show(batch, images, members, self._common(found[number][-1]))
        return [self._common(joined(parts)) for parts in found]

    def _common(self, maps: WindowMaps) -> Maps:
        """In the classes that the domain knows."""
        return maps if self.groups is None else GroupedMaps(maps, self.groups)

    def _blocks(self, shard: list[Shown], predicted: list[Maps], part: Part) -> Iterator[Pixels]:
        """The valid pixels of a shard, refined band by band, in blocks of as many as are scored at once."""
        most = CHUNKS_AT_ONCE * chunk_size(part.weights.shape, self.settings.num_classes or 1, self.pool.device)
        pieces, size = list[Pixels](), 0
        for (images, batch), maps in zip(shard, predicted, strict=True):
            for number, image in enumerate(images):
                for rows in bands(batch.target.shape[1:], most):
                    piece = piece_of(batch, maps, number, rows, image)
                    if pieces and size + len(piece.target) > most:
                        yield together(pieces)
                        pieces, size = [], 0
                    pieces.append(piece)
                    size += len(piece.target)
        if pieces:
            yield together(pieces)

    def _show(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Let observers see what members predict; the time that they take is not that of the members."""
        if self.observers:
            begun = self._now()
            for observer in self.observers:
                observer.see(batch, images, members, maps)
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


def bands(size: Sequence[int], pixels: int) -> Iterator[slice]:
    """The rows of an image in stretches of at most so many pixels."""
    height, step = size[0], max(1, pixels // size[1])
    return (slice(top, min(top + step, height)) for top in range(0, height, step))


def piece_of(batch: Batch, maps: Maps, number: int, rows: slice, image: int) -> Pixels:
    """The valid pixels of some rows of an image, which has a number in the batch and another in the domain."""
    target, valid = batch.target[number, rows].flatten(), batch.valid[number, rows].flatten()
    kept = None if bool(valid.all()) else valid.nonzero().squeeze(1)
    target = target if kept is None else target[kept]
    wanted = torch.float64 if target.is_floating_point() else torch.int64
    numbers = torch.full_like(target, image, dtype=torch.int64)
    return Pixels(maps.pixels(number, rows, kept), target.to(wanted), numbers, len(target))


def together(pieces: list[Pixels]) -> Pixels:
    """Pieces as one block."""
    if len(pieces) == 1:
        return pieces[0]
    # Joined with pixels as the last axis, so that classes stay outside of them in memory.
    outputs = {
        name: torch.cat([piece.outputs[name].movedim(1, -1) for piece in pieces], -1).movedim(-1, 1)
        for name in pieces[0].outputs
    }
    target = torch.cat([piece.target for piece in pieces])
    image = torch.cat([piece.image for piece in pieces if piece.image is not None])
    return Pixels(outputs, target, image, len(target))


def _on_cpu(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.cpu() for name, value in values.items()}
