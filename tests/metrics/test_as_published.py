"""The published convention: beside ours, from the same pass, and equal to plain NumPy in float32.

The functions with `published_` are written from how the paper's numbers were made (docs/metrics.md, docs/paper.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

import epibench
from epibench import metrics
from epibench.likelihoods import categorical
from epibench.metrics.info import INFOS

Values = np.ndarray[Any, Any]
IMAGES, HEIGHT, WIDTH, CLASSES, MEMBERS = 6, 48, 96, 5, 8
MISSING = CLASSES - 1  # a class that no pixel has, and that no member predicts
FRACTIONS = np.arange(100) * 0.01


def published_softmax(logits: Values) -> Values:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    total = powers[..., 0].copy()
    for label in range(1, powers.shape[-1]):
        total += powers[..., label]
    return powers / total[..., None]


def published_average(members: Values) -> Values:
    total = np.zeros_like(members[0])
    for member in members:
        total += member / np.float32(len(members))
    return total


def published_ece(probs: Values, target: Values) -> float:
    """In a bin: lower edge ≤ confidence < upper edge. So a confidence of 1 is in none."""
    confidence, right = probs.max(-1), probs.argmax(-1) == target
    error = 0.0
    for number in range(10):
        inside = (confidence >= np.float32(number / 10)) & (confidence < np.float32((number + 1) / 10))
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    return error


def published_miou(probs: Values, target: Values) -> float:
    predicted, overlaps = probs.argmax(-1), []
    for label in range(CLASSES):
        union = ((predicted == label) | (target == label)).sum()
        overlaps.append(((predicted == label) & (target == label)).sum() / union if union else 0.0)
    return float(np.mean(overlaps))


def entropy_and_brier(probs: Values, target: Values) -> tuple[Values, Values]:
    """With 0·log 0 = 0, unlike the paper's code."""
    logarithms = np.log(probs, out=np.zeros_like(probs), where=probs > 0)
    one_hot = np.eye(CLASSES, dtype=np.float32)[target]
    return np.maximum(-(probs * logarithms).sum(-1), 0), np.square(probs - one_hot).sum(-1)


def published_ause(uncertainty: Values, loss: Values, root: bool) -> float:
    """Equal uncertainties count with their mean loss, where the paper's code has them in an arbitrary order."""
    _, group, count = np.unique(uncertainty, return_inverse=True, return_counts=True)
    tied = np.bincount(group, loss.astype(np.float64)) / count
    curves = []
    for ranked in (tied[np.sort(group)], np.sort(loss).astype(np.float64)):
        errors = np.array([ranked[: int((1.0 - fraction) * len(ranked))].mean() for fraction in FRACTIONS])
        curves.append(np.sqrt(errors) if root else errors)
    error = (curves[0] - curves[1]) / curves[0][0]
    return float(np.trapezoid(error, dx=0.01))


def published_auce(mean: Values, variance: Values, target: Values) -> float:
    levels, sigma = np.arange(1, 100) / 100, np.sqrt(variance)
    covered = [(np.abs(target - mean) <= np.float32(stats.norm.ppf((p + 1) / 2)) * sigma).mean() for p in levels]
    return float(np.trapezoid(np.abs(levels - covered), dx=0.01))


def published_rmse(mean: Values, target: Values, valid: Values) -> tuple[float, float]:
    """Over shuffles; arrays are (image, height, width)."""
    values = []
    for seed in range(100):
        order = torch.randperm(len(mean), generator=torch.Generator().manual_seed(seed)).numpy()
        groups = [order[start : start + 4] for start in range(0, len(order), 4)]
        values.append(np.mean([np.sqrt(np.square(mean - target)[g][valid[g]].mean()) for g in groups]))
    return float(np.mean(values)), float(np.std(values, ddof=0))


def confident_logits() -> tuple[Values, Values]:
    """Logits (member, image, height, width, class) of members that are often sure, sometimes of different classes."""
    rng = np.random.default_rng(0)
    shape = (IMAGES, HEIGHT, WIDTH)
    target = rng.integers(0, MISSING, shape)
    believed = np.where(rng.random(shape) < 0.1, rng.integers(0, MISSING, shape), target)
    logits = rng.normal(0, 1.5, (MEMBERS, *shape, CLASSES)).astype(np.float32)
    logits[..., MISSING] -= 30
    gap = rng.gamma(2.0, 8.0, shape)
    for member in range(MEMBERS):
        own = np.where(rng.random(shape) < 0.05, rng.integers(0, MISSING, shape), believed)
        np.put_along_axis(logits[member], own[..., None], gap[..., None].astype(np.float32), -1)
    return logits, target


LOGITS, TARGET = confident_logits()
every_size = pytest.mark.parametrize("size", [1, 2, 3, 8])


def probabilities(size: int) -> Values:
    """Of the first members together, (pixel, class) float32."""
    return published_average(published_softmax(LOGITS[:size])).reshape(-1, CLASSES)


def scored(size: int, **options: Any) -> dict[str, Any]:
    """Metrics of the first members, through the public function."""
    store = options.pop("store", {"logits": LOGITS, "target": TARGET})
    results = epibench.score(store, members=[size], draws=1, plan="prefix", convention="gustafsson2020", **options)
    return dict(results.scores[0].draws[0].metrics)


def test_the_confident_logits_have_the_published_defects() -> None:
    target = TARGET.reshape(-1)
    for size in (1, 2, 8):
        probs = probabilities(size)
        certain = probs.max(1) == 1
        assert 0.1 < certain.mean() < 0.5
        assert (certain & (probs.argmax(1) != target)).sum() > 100  # what the ECE then does not count
        assert (probs == 0).any(1).sum() > 10  # their published entropy is NaN
    tied = np.sort(probabilities(2), 1)
    assert (tied[:, -1] == tied[:, -2]).sum() > 100  # members that are sure of different classes


def test_float64_does_not_have_them() -> None:
    exact = torch.from_numpy(LOGITS[:2]).double().softmax(-1).mean(0).flatten(0, -2)
    assert float((exact.amax(1) == 1).double().mean()) < 0.05
    found = float(metrics.ece(exact, TARGET.reshape(-1), convention="gustafsson2020"))
    assert abs(found - published_ece(probabilities(2), TARGET.reshape(-1))) > 0.01


@every_size
def test_ece_and_miou_of_stored_logits_equal_numpy_in_float32(size: int) -> None:
    found, probs, target = scored(size), probabilities(size), TARGET.reshape(-1)
    assert found["ece"] == pytest.approx(published_ece(probs, target), abs=1e-6)
    assert found["miou"] == pytest.approx(published_miou(probs, target), abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_ece_and_miou_of_stored_probabilities_equal_numpy_in_float32(dtype: type) -> None:
    stored = published_softmax(LOGITS).astype(dtype)
    found = scored(3, store={"probs": stored, "target": TARGET})
    probs = published_average(stored[:3].astype(np.float32)).reshape(-1, CLASSES)
    assert found["ece"] == pytest.approx(published_ece(probs, TARGET.reshape(-1)), abs=1e-6)
    assert found["miou"] == pytest.approx(published_miou(probs, TARGET.reshape(-1)), abs=1e-6)


@every_size
def test_functions_of_probabilities_equal_numpy_in_float32(size: int) -> None:
    probs, target = probabilities(size), TARGET.reshape(-1)
    uncertainty, loss = entropy_and_brier(probs, target)
    found = {
        "ece": metrics.ece(probs, target, convention="gustafsson2020"),
        "miou": metrics.miou(probs, target, convention="gustafsson2020"),
        "ause": metrics.ause(uncertainty, loss, "brier", convention="gustafsson2020"),
    }
    assert float(found["ece"]) == pytest.approx(published_ece(probs, target), abs=1e-6)
    assert float(found["miou"]) == pytest.approx(published_miou(probs, target), abs=1e-6)
    assert float(found["ause"]) == pytest.approx(published_ause(uncertainty, loss, root=False), abs=1e-6)


@every_size
def test_streamed_ause_of_classes_is_within_its_bound_of_numpy_in_float32(size: int) -> None:
    found = scored(size)
    expected = published_ause(*entropy_and_brier(probabilities(size), TARGET.reshape(-1)), root=False)
    assert abs(found["ause"] - expected) <= found["ause_bound"]
    assert found["ause_bound"] < 0.02


@every_size
def test_scored_ause_in_float64_differs_little_from_numpy_in_float32(size: int) -> None:
    uncertainty, loss = entropy_and_brier(probabilities(size), TARGET.reshape(-1))
    gap = abs(scored(size)["ause"] - published_ause(uncertainty, loss, root=False))
    assert gap < 3e-4  # docs/paper.md: members here are often sure and wrong
    undefined = (probabilities(size) == 0).any(1)  # pixels whose published entropy is NaN, and sorted last
    last = published_ause(np.where(undefined, np.inf, uncertainty), loss, root=False)
    assert abs(scored(size)["ause"] - last) > 2 * gap


def test_spread_over_draws_is_the_population_std() -> None:
    store = {"logits": LOGITS, "target": TARGET}
    results = epibench.score(store, members=[1], draws=4, convention="gustafsson2020").scores[0]
    values = [published_ece(published_softmax(LOGITS[draw.members[0]]), TARGET) for draw in results.draws]
    assert results.summary[1]["ece"].std == pytest.approx(np.std(values, ddof=0), abs=1e-6)


class Scenes(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """Images that carry their number, and their labels."""

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.full((3, HEIGHT, WIDTH), float(index)), torch.from_numpy(TARGET[index])


def test_beside_pooled_metrics_of_models_ece_and_miou_equal_numpy_in_float32() -> None:
    tables = torch.from_numpy(LOGITS[:3]).movedim(-1, 2)
    models = [lambda images, table=table: table[images[:, 0, 0, 0].long()] for table in tables]
    found = epibench.evaluate(models, Scenes(), members=[3], pictures=0).score("given", "data").summary[3]
    exact = torch.from_numpy(LOGITS[:3]).double().softmax(-1).mean(0)
    probs, target = probabilities(3), TARGET.reshape(-1)
    assert found["ece_gustafsson2020"].mean == pytest.approx(published_ece(probs, target), abs=1e-6)
    assert found["miou_gustafsson2020"].mean == pytest.approx(published_miou(probs, target), abs=1e-6)
    assert found["ece"].mean == pytest.approx(float(metrics.ece(exact, TARGET)), abs=1e-12)


@pytest.mark.parametrize("error", ["rmse", "brier"])
def test_ause_keeps_ties_together(error: Any) -> None:
    rng = np.random.default_rng(2)
    uncertainty, loss = rng.integers(0, 20, 5000).astype(np.float32), rng.gamma(0.5, 1.0, 5000).astype(np.float32)
    expected = published_ause(uncertainty, loss, root=error == "rmse")
    first, last = (np.lexsort((sign * loss, uncertainty)) for sign in (1, -1))
    for order in (first, last):  # of ties, the smallest or the largest loss first
        keys, losses = uncertainty[order], loss[order]
        found = float(metrics.ause(keys, losses, error, convention="gustafsson2020"))
        assert found == pytest.approx(expected, abs=1e-6)
        in_order = published_ause(np.arange(5000), losses, root=error == "rmse")
        assert abs(in_order - expected) > 0.01  # what an unstable sort may make of it
        for exact, bound in ((True, 1e-6), (False, 1.0)):
            streamed = metrics.Sparsification(error, exact=exact, convention="gustafsson2020")
            streamed.update(keys, losses)
            values = streamed.compute()
            assert abs(float(values["ause"]) - expected) <= min(bound, float(values["ause_bound"]) + 1e-9)


@every_size
def test_metrics_of_numbers_equal_numpy_in_float32(size: int) -> None:
    rng = np.random.default_rng(1)
    shape = (IMAGES, HEIGHT, WIDTH)
    hardness = rng.gamma(2.0, 1.0, (IMAGES, 1, 1))
    target = rng.uniform(1, 80, shape).astype(np.float32)
    members = (target + hardness * rng.normal(size=(MEMBERS, *shape))).astype(np.float32)
    variances = rng.gamma(2.0, 0.5, (MEMBERS, *shape)).astype(np.float32)
    valid = rng.random(shape) < 0.8
    mean = published_average(members[:size])
    variance = published_average(variances[:size]) + published_average(np.square(members[:size] - mean))
    average, spread = published_rmse(mean, target, valid)
    flat = [values[valid] for values in (mean, variance, target)]
    ause = published_ause(flat[1], np.square(flat[2] - flat[0]), root=True)

    store = {"mean": members, "variance": variances, "target": target, "valid": valid}
    found = scored(size, store=store)
    assert found["rmse"] == pytest.approx(average, abs=1e-6)
    assert found["rmse_spread"] == pytest.approx(spread, abs=1e-6)
    assert spread > 1e-3  # which images share a group matters
    assert found["auce"] == pytest.approx(published_auce(*flat), abs=1e-6)
    assert abs(found["ause"] - ause) <= found["ause_bound"] < 0.01
    exact = metrics.ause(flat[1], np.square(flat[2] - flat[0]), convention="gustafsson2020")
    assert float(exact) == pytest.approx(ause, abs=1e-6)
    assert float(metrics.auce(flat[0], np.sqrt(flat[1]), flat[2])) == pytest.approx(found["auce"], abs=1e-6)
    grouped = metrics.GroupedRootMeanSquaredError(IMAGES)
    grouped.update(flat[0], flat[2], np.nonzero(valid)[0])
    assert float(grouped.compute()["rmse"]) == pytest.approx(average, abs=1e-6)


def test_probabilities_that_were_given_are_averaged_as_they_are() -> None:
    given = torch.tensor([[[1.0, 0.0]], [[1 - 2**-24, 2**-24]]])  # (member, pixel, class)
    predictive = categorical.combine({"probs": given}, torch.full((1, 2), 0.5, dtype=torch.float64))
    assert float(predictive.choose_in_float32()[0]) == float((given[0] / 2 + given[1] / 2).amax())


def test_the_softmax_in_float32_is_that_of_the_logits() -> None:
    logits = torch.from_numpy(LOGITS).flatten(1, -2)
    predictive = categorical.combine({"logits": logits}, torch.eye(MEMBERS, dtype=torch.float64))
    confidence, predicted = predictive.choose_in_float32()
    probs = published_softmax(LOGITS).reshape(MEMBERS, -1, CLASSES)
    np.testing.assert_array_equal(confidence == 1, probs.max(2) == 1)
    np.testing.assert_array_equal(predicted, probs.argmax(2))
    rounded = predictive.member_probs.amax(2).float()
    assert int((rounded == 1).sum()) < 0.95 * int((confidence == 1).sum())  # rounding would not do


def test_both_conventions_come_from_the_same_states() -> None:
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(2, 500, 4))
    probs = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    probs[:, :50] = np.eye(4)[rng.integers(0, 3, (2, 50))]  # a confidence of exactly 1
    target = rng.integers(0, 3, 500)  # class 3 is predicted, but never true
    with_absent = np.dstack((probs, np.zeros((2, 500, 1))))  # and class 4 neither
    uncertainty, loss = rng.random((2, 500)), rng.random((2, 500))
    image = rng.integers(0, 10, 500)
    mean, truth = rng.normal(size=(2, 500)), rng.normal(size=500)
    makers: dict[str, tuple[Any, dict[str, Any]]] = {
        "ece": (lambda c: metrics.ConfidenceCalibration(10, 2, convention=c), {"probs": probs, "target": target}),
        "miou": (lambda c: metrics.MeanIoU(5, 2, convention=c), {"probs": with_absent, "target": target}),
        "ause": (
            lambda c: metrics.Sparsification("brier", 2, exact=True, convention=c),
            {"uncertainty": uncertainty, "loss": loss},
        ),
        "rmse": (
            lambda c: metrics.GroupedRootMeanSquaredError(10, 2, convention=c),
            {"mean": mean, "target": truth, "image": image},
        ),
    }
    for name, (make, inputs) in makers.items():
        pooled, published = make("pooled"), make("gustafsson2020")
        for metric in (pooled, published):
            metric.update(**inputs)
        beside = pooled.as_published()
        names = [name, "rmse_spread"] if name == "rmse" else [name]
        assert list(beside) == [f"{each}_gustafsson2020" for each in names]
        torch.testing.assert_close(beside[f"{name}_gustafsson2020"], published.compute()[name], rtol=0, atol=0)
        assert not torch.equal(published.compute()[name], pooled.compute()[name])
        assert pooled.info[f"{name}_gustafsson2020"].companion_of == name
        assert INFOS[f"{name}_gustafsson2020"].companion_of == name  # what pages know of it


def test_pooled_rmse_of_groups_is_that_of_all_pixels() -> None:
    rng = np.random.default_rng(1)
    mean, target, image = rng.normal(size=(3, 400)), rng.normal(size=400), rng.integers(0, 9, 400)
    grouped, plain = metrics.GroupedRootMeanSquaredError(9, 3, convention="pooled"), metrics.RootMeanSquaredError(3)
    grouped.update(mean, target, image)
    plain.update(mean, target)
    torch.testing.assert_close(grouped.compute()["rmse"], plain.compute()["rmse"], rtol=1e-14, atol=0)
