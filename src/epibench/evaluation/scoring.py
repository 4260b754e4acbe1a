"""One pass over stored predictions: every member read once, every metric of every draw updated."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from epibench.evaluation.draws import Draws, Plan, make_draws
from epibench.evaluation.pixels import PixelReader, Pixels, Tally
from epibench.evaluation.store import PredictionStore
from epibench.evaluation.suite import Suite, SuiteSettings, categorical_suite, check_uncertainty, gaussian_suite
from epibench.likelihoods import categorical, gaussian
from epibench.metrics import Convention
from epibench.metrics.parallel import in_threads, silenced_torch_threads
from epibench.results import per_draw, summarise, summarise_curves

# Elements (draw × pixel × class) of a chunk: small enough for the cache, large enough for the GPU.
CPU_CHUNK = 2**21
GPU_CHUNK = 2**27
CHUNKS_AT_ONCE = 2
# Up to this many draw × pixel, sorting is quick and sparsification can be exact.
EXACT_LIMIT = 2**24

SUITES: dict[str, Callable[[Tensor, SuiteSettings], Suite]] = {
    "gaussian": gaussian_suite,
    "categorical": categorical_suite,
}
COMBINE: dict[str, Callable[..., Any]] = {
    "gaussian": gaussian.combine,
    "categorical": categorical.combine,
}


@dataclass(frozen=True)
class ScoreSettings:
    """All that a score depends on, besides the predictions."""

    sizes: tuple[int, ...] | None = None
    max_draws: int = 16
    plan: Plan = "random"
    seed: int = 0
    convention: Convention = "pooled"
    uncertainty: str | None = None
    ignore_index: int | None = None
    skip_invalid: bool = False
    device: str = "cpu"


@dataclass(frozen=True)
class Scorer:
    """A store with its draws and metrics, checked and ready to run."""

    store: PredictionStore
    settings: ScoreSettings
    draws: Draws
    suite_settings: SuiteSettings

    def run(self, progress: Callable[[int], None] = lambda pixels: None) -> dict[str, Any]:
        """Read all predictions once and return the file's results; `progress` hears of pixels as they are done."""
        device = torch.device(self.settings.device)
        weights = self.draws.weights.to(device)
        suite = SUITES[self.store.kind](weights, self.suite_settings)
        suite.metrics.to(device)
        reader = PixelReader(
            self.store, ignore_index=self.settings.ignore_index, skip_invalid=self.settings.skip_invalid
        )
        combine = COMBINE[self.store.kind]

        def observe(pixels: Pixels) -> dict[str, Tensor]:
            return suite.observe(combine(pixels.outputs, weights), pixels.target, pixels.image)

        with silenced_torch_threads():
            for block in reader:
                for some in batched(chunks(block, len(self.draws.sets), device), CHUNKS_AT_ONCE):
                    for observed in in_threads(observe, some):
                        suite.update(observed)
                    progress(sum(pixels.scanned for pixels in some))
        return self.results(suite, reader.tally)

    def results(self, suite: Suite, tally: Tally) -> dict[str, Any]:
        """What the JSON says of this file."""
        store, sets = self.store, self.draws.sets
        values = suite.compute()
        return {
            "path": str(store.path),
            "method": store.method,
            "domain": store.domain,
            "kind": store.kind,
            "unit": store.unit,
            "class_names": None if store.class_names is None else list(store.class_names),
            "num_members": store.num_members,
            "num_groups": None if store.group is None else len(set(store.group)),
            "pixels": asdict(tally),
            "plan": self.settings.plan,
            "uncertainty": self.suite_settings.uncertainty,
            "sparsification": "exact" if self.suite_settings.exact else "streamed",
            "notes": self.notes(tally),
            "overlap": {str(size): self.draws.overlap(size) for size in self.draws.sizes},
            "draws": per_draw(sets, values),
            "summary": summarise(sets, values),
            "curves": summarise_curves(sets, suite.curves()),
        }

    def notes(self, tally: Tally) -> list[str]:
        """What a reader should know before comparing these numbers with others."""
        notes = []
        if tally.skipped:
            notes.append(f"{tally.skipped:,} pixels with NaN or infinite values were skipped.")
        if self.settings.convention == "gustafsson2020" and not self.suite_settings.exact:
            notes.append("Ties count with their mean, not in input order: there are too many pixels to keep them all.")
        return notes


def chunks(block: Pixels, num_draws: int, device: torch.device) -> Iterator[Pixels]:
    """Cut a block so that what is computed of it at once stays small, and move it to the device."""
    num_pixels = block.target.shape[0]
    classes = next(iter(block.outputs.values()))[0, :1].numel()
    members = next(iter(block.outputs.values())).shape[0]
    budget = GPU_CHUNK if device.type == "cuda" else CPU_CHUNK
    size = max(1, budget // (max(num_draws, members) * max(1, classes)))
    done = 0
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


def batched(chunks: Iterator[Pixels], size: int) -> Iterator[list[Pixels]]:
    """The chunks, `size` at a time."""
    while some := list(itertools.islice(chunks, size)):
        yield some


def prepare(store: PredictionStore, settings: ScoreSettings) -> Scorer:
    """Make the draws and check that everything asked for is possible, before anything is read."""
    draws = make_draws(
        store.num_members,
        settings.sizes,
        plan=settings.plan,
        max_draws=settings.max_draws,
        seed=settings.seed,
        group=store.group,
    )
    suite_settings = SuiteSettings(
        convention=settings.convention,
        uncertainty=check_uncertainty(store.kind, settings.uncertainty),
        exact=len(draws.sets) * store.num_pixels <= EXACT_LIMIT,
        num_images=store.shape[0] if store.has_images else None,
        num_classes=store.num_classes,
    )
    SUITES[store.kind](torch.eye(1, dtype=torch.float64), suite_settings)
    return Scorer(store, settings, draws, suite_settings)
