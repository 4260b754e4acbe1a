"""One pass over images gives what the naive way gives: every set of members run anew, metrics by brute force."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oracles
from epibench.data.batch import Batch
from epibench.evaluation.loop import Evaluation
from epibench.evaluation.suite import SuiteSettings
from epibench.members.draws import make_draws
from epibench.members.on_images import NetworksOnImages
from epibench.plans import Plan
from metrics import class_oracles
from small_pools import maps_of
from work_sizes import set_pixels_in_memory

MEMBERS, IMAGES, HEIGHT, WIDTH, CLASSES = 12, 6, 5, 8, 3
Values = dict[str, Tensor]
Curves = dict[str, Values]


@dataclass(frozen=True)
class Scenes:
    """Made-up images; pixels without target hold NaN, or 255, and the third image has no target at all."""

    kind: str = "gaussian"
    length: int = IMAGES
    empty: bool = False

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, HEIGHT, WIDTH), dtype=torch.uint8, generator=generator)
        depth = 1 + 9 * torch.rand(HEIGHT, WIDTH, generator=generator)
        valid = (torch.rand(HEIGHT, WIDTH, generator=generator) < 0.8) & (index != 2) & (not self.empty)
        sparse = torch.where(torch.rand(HEIGHT, WIDTH, generator=generator) < 0.2, depth, 0.0)[None]
        target = depth.masked_fill(~valid, math.nan)
        if self.kind == "categorical":
            target = (depth / 4).long().clamp(max=CLASSES - 1).masked_fill(~valid, 255)
        return Batch({"image": image, "sparse_depth": sparse}, target, valid)


@dataclass
class CountingPool:
    """Members that are simple functions of the image; it counts how often each predicts each image."""

    plan: Plan = "random"
    group: tuple[int, ...] | None = None
    kind: str = "gaussian"
    resident: int = MEMBERS
    num_members: int = MEMBERS
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    runs: Counter[tuple[int, int]] = field(default_factory=Counter)

    def resident_slices(self, members: slice) -> Iterator[slice]:
        for start in range(members.start, members.stop, self.resident):
            yield slice(start, min(start + self.resident, members.stop))

    def outputs(self, inputs: Mapping[str, Tensor], members: slice, images: range, size: tuple[int, int]) -> Any:
        assert size == (HEIGHT, WIDTH)
        assert len(images) == len(inputs["image"])
        numbers = range(members.start, members.stop)
        self.runs.update((member, image) for member in numbers for image in images)
        found = [predict(member, inputs, self.kind) for member in numbers]
        values = {name: torch.stack([each[name] for each in found])[:, :, None] for name in found[0]}
        return maps_of((HEIGHT, WIDTH), values)


def predict(member: int, inputs: Mapping[str, Tensor], kind: str) -> Values:
    """What one member says of images, a different function of them for every member."""
    image = inputs["image"].float() / 255
    if kind == "categorical":
        factors = torch.tensor([math.sin(member + 1), math.cos(2 * member), math.sin(3 * member)]).view(1, 3, 1, 1)
        return {"logits": 4 * factors * image}
    mean = 5 + math.sin(member) + (2 + math.cos(member)) * (image[:, 0] - 0.5)
    return {"mean": mean, "variance": 0.2 + 8 * image[:, 1] * (1 + 0.1 * (member % 5))}


GROUPS = tuple(member // 4 for member in range(MEMBERS))
PLANS = {
    "random": ("random", None),
    "disjoint": ("disjoint", None),
    "prefix": ("prefix", GROUPS),
    "spread": ("spread", GROUPS),
    "random in groups": ("random", GROUPS),
}


def make_evaluation(
    plan: str = "random", kind: str = "gaussian", resident: int = MEMBERS, convention: Any = "pooled", **options: Any
) -> Evaluation:
    how, group = PLANS[plan]
    pool = CountingPool(how, group, kind, resident)
    draws = make_draws(MEMBERS, (1, 2, 4), plan=how, max_draws=3, group=group)
    uncertainty = {"gaussian": "total", "categorical": "entropy"}[kind]
    settings = SuiteSettings(kind, convention, uncertainty, num_images=IMAGES, num_classes=CLASSES)
    samples = options.pop("samples", Scenes(kind))
    images = NetworksOnImages(pool, samples, **{"batch_size": 2, "num_classes": CLASSES, **options})
    return Evaluation(images, draws, settings)


def finished(run: Evaluation) -> tuple[Values, Curves]:
    run.run()
    return run.results()


@pytest.fixture
def small_portions(monkeypatch) -> None:
    """A portion is full with the second batch of two images."""
    set_pixels_in_memory(monkeypatch, 3 * HEIGHT * WIDTH)


# The naive way


@dataclass(frozen=True)
class Naive:
    """What a set of members says of all valid pixels of all images: (member, pixel[, class]), and the targets."""

    outputs: dict[str, np.ndarray]
    target: np.ndarray
    image: np.ndarray

    @classmethod
    def of(cls, members: tuple[int, ...], kind: str) -> Naive:
        scenes, outputs, target, image = Scenes(kind), [], [], []
        for number in range(IMAGES):
            sample = scenes[number]
            inputs = {name: values[None] for name, values in sample.inputs.items()}
            found = [predict(member, inputs, kind) for member in members]
            outputs.append(
                {
                    name: np.stack([one[name][0][..., sample.valid].double().movedim(0, -1) for one in found])
                    for name in found[0]
                }
            )
            target.append(sample.target[sample.valid].numpy())
            image.append(np.full(int(sample.valid.sum()), number))
        return cls(
            {name: np.concatenate([each[name] for each in outputs], 1) for name in outputs[0]},
            np.concatenate(target),
            np.concatenate(image),
        )


def mean_score(scores: np.ndarray) -> float:
    return oracles.mean_score(scores)[0]


def naive_gaussian(members: tuple[int, ...]) -> dict[str, float]:
    naive = Naive.of(members, "gaussian")
    means, variances, y = naive.outputs["mean"], naive.outputs["variance"], naive.target.astype(np.float64)
    weights = [1 / len(members)] * len(members)
    mu = means.mean(0)
    variance = variances.mean(0) + ((means - mu) ** 2).mean(0)
    sigma, loss = np.sqrt(variance), (mu - y) ** 2
    oracle = oracles.sparsification_curves(variance, loss)[1]
    return {
        "ause": oracles.ause(variance, loss),
        "ause_random": oracles.trapezoid(1 - oracle),
        "auce": oracles.auce(mu, sigma, y),
        "auce_signed": oracles.auce_signed(mu, sigma, y),
        "interval_length": oracles.interval_lengths(sigma)[89],
        "rmse": oracles.rmse(mu, y),
        "mae": oracles.mae(mu, y),
        "nll": mean_score(oracles.mixture_nll(means, variances, weights, y)),
        "nll_infinite": 0,
        "nll_gaussian": mean_score(oracles.gaussian_nll(mu, variance, y)),
        "nll_gaussian_infinite": 0,
        "crps": mean_score(oracles.mixture_crps(means, variances, weights, y)),
        "crps_gaussian": mean_score(oracles.gaussian_crps(mu, variance, y)),
        "ence": oracles.ence(mu, variance, y),
        "interval_score": mean_score(oracles.interval_score(mu, variance, y)),
    }


def naive_categorical(members: tuple[int, ...]) -> dict[str, float]:
    naive = Naive.of(members, "categorical")
    logits, target = naive.outputs["logits"], naive.target
    exponentials = np.exp(logits - logits.max(-1, keepdims=True))
    probs = (exponentials / exponentials.sum(-1, keepdims=True)).mean(0)
    entropy, loss = -(probs * np.log(probs)).sum(-1), oracles.brier(probs, target)
    oracle = oracles.sparsification_curves(entropy, loss, "brier")[1]
    return {
        "ause": oracles.ause(entropy, loss, "brier"),
        "ause_random": oracles.trapezoid(1 - oracle),
        "ece": oracles.ece(probs, target),
        "ece_adaptive": oracles.ece_adaptive(probs, target),
        "miou": oracles.miou(probs, target),
        "iou_per_class": oracles.iou_per_class(probs, target),
        "accuracy": oracles.accuracy(probs, target),
        "brier": mean_score(loss),
        "nll": mean_score(oracles.categorical_nll(probs, target)),
        "nll_infinite": 0,
        **class_oracles.scores(probs, target),
        "ause_per_class": class_oracles.ause(entropy, loss, target, probs.shape[-1]),
    }


NAIVE = {"gaussian": naive_gaussian, "categorical": naive_categorical}


@pytest.mark.parametrize(
    ("kind", "plan"), [*(("gaussian", plan) for plan in PLANS), ("categorical", "random"), ("categorical", "prefix")]
)
def test_every_metric_of_every_draw_is_that_of_the_naive_way(kind: str, plan: str, small_portions) -> None:
    run = make_evaluation(plan, kind)
    values, _ = finished(run)
    known: dict[tuple[int, ...], dict[str, float]] = {}
    for draw, members in enumerate(run.draws.sets):
        expected = known.setdefault(members, NAIVE[kind](members))
        assert set(values) - set(expected) <= {f"{name}_bound" for name in expected} | {"ause_standard_error"}
        for name, value in expected.items():
            bound = values.get(f"{name.removesuffix('_random')}_bound")
            room = 1e-9 if bound is None else bound[draw].numpy() + 1e-9
            rtol = 1e-9 if bound is None else 0
            found = values[name][draw].numpy()
            assert np.isclose(found, value, rtol=rtol, atol=room, equal_nan=True).all(), f"{name}: {found}, {value}"


@pytest.mark.parametrize("resident", [MEMBERS, 5, 1])
@pytest.mark.parametrize("plan", PLANS)
def test_each_member_predicts_each_image_exactly_once(plan: str, resident: int, small_portions) -> None:
    run = make_evaluation(plan, resident=resident)
    run.run()
    assert run.predictor.pool.runs == {(member, image): 1 for member in range(MEMBERS) for image in range(IMAGES)}


@pytest.mark.parametrize("plan", PLANS)
def test_members_that_do_not_fit_together_change_nothing(plan: str, small_portions) -> None:
    together, apart = (finished(make_evaluation(plan, resident=resident))[0] for resident in (MEMBERS, 1))
    assert [name for name in together if not torch.equal(together[name], apart[name])] == []


def assert_close(one: tuple[Values, Curves], other: tuple[Values, Curves]) -> None:
    for ours, theirs in zip(([one[0], *one[1].values()]), ([other[0], *other[1].values()]), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-10, atol=1e-10, equal_nan=True)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 7])
@pytest.mark.parametrize("plan", ["random", "prefix"])
def test_results_do_not_depend_on_batches(plan: str, batch_size: int) -> None:
    assert_close(finished(make_evaluation(plan, batch_size=batch_size)), finished(make_evaluation(plan, batch_size=2)))


@pytest.mark.parametrize("pixels", [1, 2 * HEIGHT * WIDTH, 3 * HEIGHT * WIDTH, 10**9])
@pytest.mark.parametrize("plan", ["random", "prefix"])
def test_results_do_not_depend_on_portions(plan: str, pixels: int, monkeypatch) -> None:
    expected = finished(make_evaluation(plan, batch_size=1))
    set_pixels_in_memory(monkeypatch, pixels)
    assert_close(finished(make_evaluation(plan, batch_size=1)), expected)


def assert_equal(one: tuple[Values, Curves], other: tuple[Values, Curves]) -> None:
    for ours, theirs in zip(([one[0], *one[1].values()]), ([other[0], *other[1].values()]), strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=0, equal_nan=True)


def test_workers_change_nothing(small_portions) -> None:
    assert_equal(finished(make_evaluation(workers=2)), finished(make_evaluation()))


def test_threads_change_nothing(small_portions, two_threads) -> None:
    many = finished(make_evaluation())
    torch.set_num_threads(1)
    assert_equal(finished(make_evaluation()), many)


@pytest.mark.parametrize("plan", ["random", "prefix"])
def test_an_evaluation_goes_on_from_the_state_after_any_portion(plan: str, small_portions) -> None:
    states = []

    def note(images: int) -> None:
        saved = {name: tensor.clone() for name, tensor in whole.state().items()}
        states.append((saved, replace(whole.done)))

    whole = make_evaluation(plan, batch_size=1)
    whole.run(note)
    assert [done.images for _, done in states] == [3, 6]
    for saved, done in states:
        images, rest = done.images, make_evaluation(plan, batch_size=1)
        rest.load_state(saved, done)
        rest.run()
        left = range(images, IMAGES)
        assert rest.predictor.pool.runs == {(member, image): 1 for member in range(MEMBERS) for image in left}
        assert_equal(rest.results(), whole.results())
        assert rest.done.images == IMAGES
        assert rest.done.pixels == whole.done.pixels


def test_images_and_valid_pixels_are_counted() -> None:
    run = make_evaluation()
    run.run()
    assert run.done.images == IMAGES
    assert run.done.pixels == sum(int(Scenes()[image].valid.sum()) for image in range(IMAGES))


def test_portions_are_told_as_they_end(small_portions) -> None:
    heard = []
    make_evaluation(batch_size=1).run(heard.append)
    assert heard == [3, 3]


def test_the_rmse_of_groups_of_four_images_knows_the_images(small_portions) -> None:
    run = make_evaluation(convention="gustafsson2020", batch_size=1)
    values, _ = finished(run)
    for draw, members in enumerate(run.draws.sets):
        naive = Naive.of(members, "gaussian")
        expected, _ = oracles.rmse_grouped(naive.outputs["mean"].mean(0), naive.target, naive.image)
        assert float(values["rmse"][draw]) == pytest.approx(expected, rel=1e-9)


def test_a_domain_without_any_valid_pixel_has_no_numbers() -> None:
    values, _ = finished(make_evaluation(samples=Scenes(empty=True)))
    assert bool(values["rmse"].isnan().all())


@dataclass
class Witness:
    """An observer that keeps all it sees."""

    seen: dict[tuple[int, int], Values] = field(default_factory=dict)
    targets: dict[int, Tensor] = field(default_factory=dict)

    def see(self, batch: Batch, images: range, members: slice, maps: Any) -> None:
        for place, image in enumerate(images):
            self.targets[image] = batch.target[place]
            for row, member in enumerate(range(members.start, members.stop)):
                assert (member, image) not in self.seen
                found = maps.rows(place, slice(0, HEIGHT), slice(row, row + 1))
                self.seen[member, image] = {name: values[0] for name, values in found.items()}

    def state(self) -> Values:
        return {"count": torch.tensor(len(self.seen))}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        self.loaded = int(saved["count"])


@pytest.mark.parametrize("plan", PLANS)
def test_observers_see_every_output_of_every_member(plan: str, small_portions) -> None:
    witness = Witness()
    make_evaluation(plan, resident=5, observers=(witness,)).run()
    scenes = Scenes()
    for member in range(MEMBERS):
        for image in range(IMAGES):
            inputs = {name: values[None] for name, values in scenes[image].inputs.items()}
            expected = predict(member, inputs, "gaussian")
            for name, values in witness.seen[member, image].items():
                torch.testing.assert_close(values, expected[name][0])


def test_observers_see_the_batch_itself() -> None:
    witness = Witness()
    make_evaluation(observers=(witness,)).run()
    for image in range(IMAGES):
        torch.testing.assert_close(witness.targets[image], Scenes()[image].target, equal_nan=True)


def test_observers_have_states_of_their_own(small_portions) -> None:
    one, other = Witness(), Witness()
    run = make_evaluation(observers=(one, other))
    run.run()
    other.seen.clear()
    fresh = (Witness(), Witness())
    make_evaluation(observers=fresh).load_state(run.state(), run.done)
    assert [each.loaded for each in fresh] == [MEMBERS * IMAGES, 0]
