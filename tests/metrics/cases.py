"""One table of all metrics: how to make each, what pixels to give it, and what brute force says about them.

Pixels are a dict of the arguments of `update`, with a draw axis on what differs between draws; `take` and `of_draw`
cut them. The table drives the tests of everything that metrics have in common.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

import oracles
from epibench import metrics

from . import class_oracles

PER_DRAW = {"uncertainty", "loss", "mean", "std", "variance", "probs"}
PER_MEMBER = {"member_mean", "member_variance"}
NUM_DRAWS = 3
NUM_MEMBERS = 4
NUM_CLASSES = 4
NUM_IMAGES = 10
WEIGHTS = np.array([[0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
FEW_BITS = 10

Pixels = dict[str, np.ndarray]

CONVENTIONS = ("pooled", "gustafsson2020")


def take(pixels: Pixels, index) -> Pixels:
    """Some of the pixels, of all draws."""
    return {k: v[:, index] if k in PER_DRAW | PER_MEMBER else v[index] for k, v in pixels.items()}


def of_draw(pixels: Pixels, draw: int = 0) -> Pixels:
    """All pixels of one draw, without the draw axis."""
    return {k: v[draw] if k in PER_DRAW else v for k, v in pixels.items()}


# Patterns: continuous values, few distinct values, a single one, and what is easily got wrong


def _values(rng, shape, pattern):
    """Numbers ≥ 0 to rank by."""
    if pattern == "ties":
        return rng.integers(0, 4, shape) / 4
    if pattern == "constant":
        return np.full(shape, 0.7)
    if pattern == "nasty":
        odd = np.array([0.0, -0.0, 5e-324, 1e-310, 1e-45, 1e-40, 1.0, 1.0 + 2**-24, 1e-9, 3e5, 1e30])
        return np.where(rng.random(shape) < 0.5, rng.choice(odd, shape), rng.gamma(0.5, 1.0, shape))
    return rng.gamma(2.0, 1.0, shape)


PATTERNS = ("continuous", "ties", "constant", "nasty")


def ranked_pixels(rng, size, pattern, draws=NUM_DRAWS):
    return {
        "uncertainty": _values(rng, (draws, size), pattern),
        "loss": np.abs(_values(rng, (draws, size), pattern)),
    }


def gaussian_pixels(rng, size, pattern, draws=NUM_DRAWS, spread="variance"):
    mean = rng.normal(0, 1, (draws, size))
    target = rng.normal(0, 1, size)
    if pattern != "continuous":
        mean, target = np.round(mean * 2) / 2, np.round(target * 2) / 2  # some y = μ
    return {"mean": mean, spread: np.abs(_values(rng, (draws, size), pattern)), "target": target}


def positive_gaussian_pixels(rng, size, pattern, draws=NUM_DRAWS):
    pixels = gaussian_pixels(rng, size, pattern, draws)
    return {**pixels, "variance": pixels["variance"] + 1e-3}


def grouped_pixels(rng, size, pattern, draws=NUM_DRAWS):
    pixels = gaussian_pixels(rng, size, pattern, draws)
    return {"mean": pixels["mean"], "target": pixels["target"], "image": rng.integers(0, NUM_IMAGES, size)}


def point_pixels(rng, size, pattern, draws=NUM_DRAWS):
    pixels = gaussian_pixels(rng, size, pattern, draws)
    return {"mean": pixels["mean"], "target": pixels["target"]}


def interval_pixels(rng, size, pattern, draws=NUM_DRAWS):
    return gaussian_pixels(rng, size, pattern, draws, spread="std")


def depth_pixels(rng, size, pattern, draws=NUM_DRAWS):
    """Depths in metres; patterns other than continuous have some that are not above 0."""
    target, mean = rng.gamma(2.0, 10.0, size) + 0.1, rng.gamma(2.0, 10.0, (draws, size)) + 0.1
    if pattern == "ties":
        target, mean = np.ceil(target / 4), np.ceil(mean / 4)
    if pattern == "constant":
        target, mean = np.full_like(target, 4.0), np.full_like(mean, 5.0)  # on the edge of δ < 1.25
    if pattern == "nasty":
        odd = np.array([0.0, -0.0, -1.0, -1e-3, 1e-3, 1e5])
        target = np.where(rng.random(size) < 0.3, rng.choice(odd, size), target)
        mean = np.where(rng.random(mean.shape) < 0.3, rng.choice(odd, mean.shape), mean)
        mean = np.where(rng.random(mean.shape) < 0.2, target, mean)
    return {"mean": mean, "target": target}


def mixture_pixels(rng, size, pattern, draws=NUM_DRAWS):
    pixels = positive_gaussian_pixels(rng, size, pattern, NUM_MEMBERS)
    return {
        "member_mean": pixels["mean"],
        "member_variance": pixels["variance"],
        "target": pixels["target"],
    }


def categorical_pixels(rng, size, pattern, draws=NUM_DRAWS):
    shape = (draws, size, NUM_CLASSES)
    if pattern == "constant":
        probs = np.full(shape, 1 / NUM_CLASSES)
    elif pattern == "ties":
        probs = rng.multinomial(5, np.full(NUM_CLASSES, 1 / NUM_CLASSES), shape[:2]) / 5
    else:
        probs = rng.dirichlet(np.full(NUM_CLASSES, 0.3), shape[:2])
    if pattern == "nasty":  # p in {0, 1}, and confidences on the edges of bins
        top = rng.choice([1.0, 0.9, 0.8, 0.7, 0.6, 0.5], shape[:2])
        probs = np.stack([top, 1 - top, np.zeros_like(top), np.zeros_like(top)], -1)
        probs = rng.permuted(probs, axis=-1)
    return {"probs": probs, "target": rng.integers(0, NUM_CLASSES, size)}


def pixels_of_classes(rng, size, pattern, draws=NUM_DRAWS):
    """Numbers to rank by, and classes, of which the last has no pixels."""
    return {**ranked_pixels(rng, size, pattern, draws), "target": rng.integers(0, NUM_CLASSES - 1, size)}


def positive_categorical_pixels(rng, size, pattern, draws=NUM_DRAWS):
    pixels = categorical_pixels(rng, size, pattern, draws)
    return {**pixels, "probs": 0.9 * pixels["probs"] + 0.1 / NUM_CLASSES}


@dataclass(frozen=True)
class Case:
    name: str
    build: Callable[..., metrics.StreamingMetric]
    pixels: Callable[..., Pixels]
    expected: Callable[..., dict[str, float]]  # of the arguments of update, for one draw
    bounds: dict[str, str] = field(default_factory=dict)  # value: the key of its bound
    exact_states: bool = True  # constant size

    def make(self, num_draws: int | None = None) -> metrics.StreamingMetric:
        return self.build(num_draws)

    def __str__(self) -> str:
        return self.name


def _mixture(kind):
    def build(num_draws):
        return kind(None if num_draws is None else torch.as_tensor(WEIGHTS[:num_draws]))

    return build


def _named(name, score):
    def expected(**pixels):
        value, infinite = oracles.mean_score(score(**pixels))
        return {name: value, f"{name}_infinite": infinite} if name.startswith("nll") else {name: value}

    return expected


def _sparsification(error, convention="pooled", **options):
    key = "ause_mae" if error == "mae" else "ause"
    return Case(
        "-".join(["Sparsification", error, convention, *options]),
        lambda draws: metrics.Sparsification(error, draws, convention=convention, **options),
        ranked_pixels,
        lambda uncertainty, loss: {key: oracles.ause(uncertainty, loss, error, convention)},
        bounds={key: f"{key}_bound"},
        exact_states="exact" not in options,
    )


CASES = [
    _sparsification("rmse"),
    _sparsification("rmse", bits=FEW_BITS),
    _sparsification("mae"),
    _sparsification("brier"),
    _sparsification("rmse", "gustafsson2020"),
    _sparsification("rmse", exact=True),
    _sparsification("rmse", "gustafsson2020", exact=True),
    Case(
        "IntervalCalibration",
        metrics.IntervalCalibration,
        interval_pixels,
        lambda mean, std, target: {
            "auce": oracles.auce(mean, std, target),
            "auce_signed": oracles.auce_signed(mean, std, target),
            "interval_length": oracles.interval_lengths(std)[89],
        },
    ),
    *(
        Case(
            f"ConfidenceCalibration-{convention}",
            lambda draws, convention=convention: metrics.ConfidenceCalibration(num_draws=draws, convention=convention),
            categorical_pixels,
            lambda probs, target, convention=convention: {"ece": oracles.ece(probs, target, convention=convention)},
        )
        for convention in CONVENTIONS
    ),
    *(
        Case(
            f"AdaptiveConfidenceCalibration-{bits}",
            lambda draws, bits=bits: metrics.AdaptiveConfidenceCalibration(num_draws=draws, bits=bits),
            categorical_pixels,
            lambda probs, target: {"ece_adaptive": oracles.ece_adaptive(probs, target)},
            bounds={"ece_adaptive": "ece_adaptive_bound"},
        )
        for bits in (16, FEW_BITS)
    ),
    *(
        Case(
            f"NormalisedCalibration-{bits}",
            lambda draws, bits=bits: metrics.NormalisedCalibration(num_draws=draws, bits=bits),
            positive_gaussian_pixels,
            lambda mean, variance, target: {"ence": oracles.ence(mean, variance, target)},
            bounds={"ence": "ence_bound"},
        )
        for bits in (16, FEW_BITS)
    ),
    Case(
        "RootMeanSquaredError",
        metrics.RootMeanSquaredError,
        point_pixels,
        lambda mean, target: {"rmse": oracles.rmse(mean, target)},
    ),
    Case("DepthErrors", metrics.DepthErrors, depth_pixels, oracles.depth_errors),
    Case(
        "GroupedRootMeanSquaredError",
        lambda draws: metrics.GroupedRootMeanSquaredError(NUM_IMAGES, draws),
        grouped_pixels,
        lambda mean, target, image: dict(
            zip(("rmse", "rmse_spread"), oracles.rmse_grouped(mean, target, image), strict=True)
        ),
    ),
    Case(
        "MeanAbsoluteError",
        metrics.MeanAbsoluteError,
        point_pixels,
        lambda mean, target: {"mae": oracles.mae(mean, target)},
    ),
    *(
        Case(
            f"MeanIoU-{convention}",
            lambda draws, convention=convention: metrics.MeanIoU(NUM_CLASSES, draws, convention=convention),
            categorical_pixels,
            lambda probs, target, convention=convention: {
                "miou": oracles.miou(probs, target, convention),
                "iou_per_class": oracles.iou_per_class(probs, target),
                "accuracy": oracles.accuracy(probs, target),
                **class_oracles.some(("accuracy_per_class", "share_per_class"), probs, target),
            },
        )
        for convention in CONVENTIONS
    ),
    Case(
        "BrierScore",
        metrics.BrierScore,
        categorical_pixels,
        lambda probs, target: {"brier": oracles.mean(oracles.brier(probs, target))},
    ),
    Case(
        "CategoricalNLL",
        metrics.CategoricalNLL,
        positive_categorical_pixels,
        _named("nll", oracles.categorical_nll),
    ),
    Case(
        "ClassScores",
        lambda draws: metrics.ClassScores(NUM_CLASSES, draws),
        categorical_pixels,
        lambda probs, target: class_oracles.some(("brier_per_class", "nll_per_class"), probs, target),
    ),
    *(
        Case(
            f"ConfidenceCalibration-{convention}-classes",
            lambda draws, convention=convention: metrics.ConfidenceCalibration(
                num_draws=draws, num_classes=NUM_CLASSES, convention=convention
            ),
            categorical_pixels,
            lambda probs, target, convention=convention: {
                "ece": oracles.ece(probs, target, convention=convention),
                **class_oracles.some(("ece_per_class",), probs, target),
            },
        )
        for convention in CONVENTIONS
    ),
    *(
        Case(
            f"ClassSparsification-{error}",
            lambda draws, error=error: metrics.ClassSparsification(NUM_CLASSES, error, draws),
            pixels_of_classes,
            lambda uncertainty, loss, target, error=error: {
                "ause_per_class": class_oracles.ause(uncertainty, loss, target, NUM_CLASSES, error)
            },
            bounds={"ause_per_class": "ause_per_class_bound"},
        )
        for error in ("brier", "rmse")
    ),
    Case(
        "GaussianNLL",
        metrics.GaussianNLL,
        positive_gaussian_pixels,
        _named("nll_gaussian", lambda mean, variance, target: oracles.gaussian_nll(mean, variance, target)),
    ),
    Case(
        "GaussianCRPS",
        metrics.GaussianCRPS,
        gaussian_pixels,
        _named("crps_gaussian", lambda mean, variance, target: oracles.gaussian_crps(mean, variance, target)),
    ),
    Case(
        "IntervalScore",
        metrics.IntervalScore,
        gaussian_pixels,
        _named("interval_score", lambda mean, variance, target: oracles.interval_score(mean, variance, target)),
    ),
    *(
        Case(
            kind.__name__,
            _mixture(kind),
            mixture_pixels,
            _named(
                kind.name,
                lambda member_mean, member_variance, target, score=score, weights=WEIGHTS[0]: score(
                    member_mean, member_variance, weights, target
                ),
            ),
        )
        for kind, score in (
            (metrics.MixtureNLL, oracles.mixture_nll),
            (metrics.MixtureCRPS, oracles.mixture_crps),
        )
    ),
]


def updated(metric, *batches: Pixels):
    for batch in batches:
        metric.update(**batch)
    return metric


def assert_close(actual, expected, rtol=1e-9, atol=1e-12):
    """All values and shapes agree; NaN equals NaN."""
    assert actual.keys() >= expected.keys()
    for key, value in expected.items():
        np.testing.assert_allclose(np.asarray(actual[key]), value, rtol=rtol, atol=atol, err_msg=key)


def assert_within_bound(case: Case, actual, expected):
    """Exact values agree; streamed ones to the bound that they report."""
    for key, value in expected.items():
        bound = np.asarray(actual[case.bounds[key]]) if key in case.bounds else 0.0
        slack = bound + 1e-12 + 1e-9 * np.abs(value) * (key not in case.bounds)
        distance = np.abs(np.asarray(actual[key]) - value)
        same = np.isnan(value) & np.isnan(np.asarray(actual[key]))
        assert np.all(same | (distance <= slack)), f"{key}: {actual[key]} against {value}, bound {bound}"
