"""The central loop: members' outputs → predictive of every draw at once → streaming metrics.

Small networks on points, large networks on images, and stored predictions use the same loop.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from epibench.evaluation.fused import FusedUpdates
from epibench.evaluation.suite import MakeMetric, MetricInputs, Suite, SuiteSettings, make_suite
from epibench.likelihoods import LIKELIHOODS, Likelihood
from epibench.members.draws import Draws
from epibench.members.pool import CHUNKS_AT_ONCE, DrawnPart, Pixels, PoolOnData, Stopwatch, chunk_size
from epibench.parallel import in_threads, silenced_torch_threads

Progress = Callable[[int], None]


def ignore(number: int) -> None:
    """Ignore progress."""


@dataclass
class EvaluationTotals:
    """The totals of an evaluation: images, valid pixels, seconds of members, seconds of draws and metrics."""

    images: int = 0
    pixels: int = 0
    forward_seconds: float = 0.0
    scoring_seconds: float = 0.0


@dataclass
class Evaluation:
    """Every metric of every draw of a pool on some data. It can be saved after every portion and resumed.

    If the predictor has stretches, each has its own metric states, which are added to the states of earlier stretches.
    So floating-point sums are equal wherever each stretch was evaluated.

    Args:
        predictor: The pool on its data.
        draws: Draws.
        settings: Settings of the metrics.
        done: Totals so far.
        instead: Metrics that replace metrics of the suite, by name.
    """

    predictor: PoolOnData
    draws: Draws
    settings: SuiteSettings
    done: EvaluationTotals = field(default_factory=EvaluationTotals)
    instead: Mapping[str, MakeMetric] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = self.predictor.parts(self.draws)
        self.weights = [part.weights.to(self.predictor.device) for part in self.parts]
        self.suites = [make_suite(weights, self.settings, self.instead) for weights in self.weights]
        for suite in self.suites:
            suite.metrics.to(self.predictor.device)
        self.before: dict[str, Tensor] = {}  # the sum of the states of all earlier stretches
        self.stretch_start = replace(self.done)  # totals at the start of this stretch

    def run(
        self,
        after_portion: Progress = ignore,
        after_pixels: Progress = ignore,
        after_draws: Progress = ignore,
        after_stretch: Callable[[], None] | None = None,
    ) -> None:
        """Evaluate the remaining data.

        Args:
            after_portion: Receives the number of images after each portion.
            after_pixels: Receives numbers of pixels.
            after_draws: Receives numbers of draws.
            after_stretch: Called after each stretch, instead of adding its state to the earlier ones.
        """
        device, watching = self.predictor.device, self.predictor.watching
        for portion in self.predictor.portions(self.done.images, self.parts):
            forward, scoring = Stopwatch(device), Stopwatch(device)
            watched = watching.seconds if watching else 0.0
            for part, weights, suite in zip(self.parts, self.weights, self.suites, strict=True):
                with forward:
                    blocks = portion.blocks(part)  # members run here; outputs are upsampled within the scoring time
                with scoring:
                    evaluate(blocks, LIKELIHOODS[self.settings.kind], weights, suite, after_pixels)
                after_draws(len(part.draws))
            # The only place that waits for a GPU.
            self.done.scoring_seconds += scoring.seconds
            self.done.forward_seconds += forward.seconds - ((watching.seconds if watching else 0.0) - watched)
            self.done.images += portion.num_images
            self.done.pixels += portion.num_pixels
            if self.predictor.ends_stretch(self.done.images):
                (after_stretch or self.end_stretch)()
            after_portion(portion.num_images)

    def start_at(self, image: int) -> None:
        """Start with another image than the first."""
        self.done = EvaluationTotals(images=image)
        self.stretch_start = replace(self.done)

    def end_stretch(self) -> None:
        """Add the metrics of this stretch to the earlier ones, and start the next stretch."""
        self._add(self._metric_state())
        self._begin_stretch()

    def cut_stretch(self) -> tuple[dict[str, Tensor], EvaluationTotals]:
        """Return the state and totals of this stretch alone, and start the next stretch without earlier states."""
        state, begun = self._metric_state() | self.predictor.state(), vars(self.stretch_start)
        done = EvaluationTotals(**{name: value - begun[name] for name, value in vars(self.done).items()})
        self._begin_stretch()
        self.predictor.load_state({})
        return state, done

    def _begin_stretch(self) -> None:
        self.stretch_start = replace(self.done)
        for suite in self.suites:
            suite.metrics.reset()  # to new tensors: the old ones do not change

    def add_stretch(self, state: Mapping[str, Tensor], done: EvaluationTotals) -> None:
        """Add the next stretch, which was evaluated elsewhere."""
        self._add({name: state[name] for name in self._metric_state()})
        self.predictor.load_state({**self.predictor.state(), **state})
        self.done = EvaluationTotals(**{name: value + vars(self.done)[name] for name, value in vars(done).items()})
        self.stretch_start = replace(self.done)

    def _add(self, state: Mapping[str, Tensor]) -> None:
        for name, values in state.items():
            if name in self.before:
                self.before[name] += values.to(self.predictor.device)
            else:
                self.before[name] = values.to(self.predictor.device)

    def results(self) -> tuple[dict[str, Tensor], dict[str, dict[str, Tensor]]]:
        """Return metrics, (draw,) or (draw, class), and families of curves, (draw, point), with x."""
        if self.before:
            self._load(self.before)
        values: dict[str, Tensor] = {}
        curves: dict[str, dict[str, Tensor]] = {}
        for part, suite in zip(self.parts, self.suites, strict=True):
            self._put(values, suite.compute(), part)
            for family, of_part in suite.curves().items():
                x = of_part.pop("x").cpu()
                self._put(curves.setdefault(family, {"x": x}), of_part, part)
        return values, curves

    def _put(self, into: dict[str, Tensor], values: Mapping[str, Tensor], part: DrawnPart) -> None:
        """Put the values of a part's draws at their places among all draws."""
        for name, value in values.items():
            if name not in into:
                into[name] = torch.zeros((len(self.draws.sets), *value.shape[1:]), dtype=value.dtype)
            into[name][part.draws] = value.cpu()

    def state(self) -> dict[str, Tensor]:
        """Return all states that resuming needs, besides `done`."""
        before = {f"before.{name}": tensor for name, tensor in self.before.items()}
        return self._metric_state() | before | self.predictor.state()

    def _metric_state(self) -> dict[str, Tensor]:
        named = {f"suite{number}": suite.state() for number, suite in enumerate(self.suites)}
        return {f"{owner}.{name}": tensor for owner, state in named.items() for name, tensor in state.items()}

    def load_state(self, saved: Mapping[str, Tensor], done: EvaluationTotals) -> None:
        """Resume from a saved state."""
        self._load(saved)
        start, device = "before.", self.predictor.device
        self.before = {n.removeprefix(start): each.to(device) for n, each in saved.items() if n.startswith(start)}
        self.predictor.load_state(saved)
        self.done = done
        self.stretch_start = replace(done)  # saved at its end, or within it

    def _load(self, saved: Mapping[str, Tensor]) -> None:
        for number, suite in enumerate(self.suites):
            owner = f"suite{number}."
            suite.load_state({n.removeprefix(owner): each for n, each in saved.items() if n.startswith(owner)})


def evaluate(
    blocks: Iterable[Pixels], likelihood: Likelihood, weights: Tensor, suite: Suite, progress: Progress = ignore
) -> None:
    """Update the metrics of all draws with blocks of pixels. weights: (draw, member), rows sum to 1."""

    fused = FusedUpdates.of(suite, weights)

    def observe(pixels: Pixels) -> MetricInputs | None:
        predictive = likelihood.combine(pixels.outputs, weights)
        if fused and fused.update(predictive, pixels.target):
            return None
        return suite.inputs_of(predictive, pixels.target, pixels.image)

    with silenced_torch_threads():
        for block in blocks:
            cut = chunks(block, len(weights), weights.device)
            while some := list(itertools.islice(cut, CHUNKS_AT_ONCE[weights.device.type])):
                for observed in in_threads(observe, some):
                    if observed is not None:
                        suite.update(observed)
                progress(sum(pixels.scanned for pixels in some))


def chunks(block: Pixels, num_draws: int, device: torch.device) -> Iterator[Pixels]:
    """Split a block into chunks whose temporaries stay small, and move them to the device."""
    num_pixels = block.target.shape[0]
    shape = next(iter(block.outputs.values())).shape
    size, done = chunk_size(num_draws, shape[0], math.prod(shape[2:]), device), 0
    for start in range(0, num_pixels, size):
        part = slice(start, start + size)
        scanned = block.scanned * min(start + size, num_pixels) // num_pixels
        yield Pixels(
            {name: output[:, part].to(device) for name, output in block.outputs.items()},
            block.target[part].to(device),
            None if block.image is None else block.image[part].to(device),
            scanned - done,
        )
        done = scanned
