"""Metrics in a torchmetrics.MetricCollection, with its compute groups on as they are by default."""

import numpy as np
import pytest
import torch
from torchmetrics import MetricCollection

from epibench import metrics

from .cases import NUM_CLASSES, NUM_IMAGES, NUM_MEMBERS, assert_close, categorical_pixels, gaussian_pixels, of_draw


def regression(rng, size):
    pixels = gaussian_pixels(rng, size, "continuous")
    members = gaussian_pixels(rng, size, "continuous", NUM_MEMBERS)
    return {
        **of_draw(pixels),
        "std": np.sqrt(pixels["variance"][0]),
        "uncertainty": pixels["variance"][0],
        "loss": (pixels["mean"][0] - pixels["target"]) ** 2,
        "member_mean": members["mean"],
        "member_variance": members["variance"],
        "image": rng.integers(0, NUM_IMAGES, size),
    }


def classification(rng, size):
    pixels = of_draw(categorical_pixels(rng, size, "continuous"))
    return {**pixels, "uncertainty": 1 - pixels["probs"].max(-1), "loss": rng.gamma(1, 1, size)}


REGRESSION = {
    "sparsification": metrics.Sparsification,
    "sparsification_mae": lambda: metrics.Sparsification("mae"),
    "sparsification_exact": lambda: metrics.Sparsification(exact=True),
    "interval": metrics.IntervalCalibration,
    "rmse": metrics.RootMeanSquaredError,
    "rmse_grouped": lambda: metrics.GroupedRootMeanSquaredError(NUM_IMAGES),
    "mae": metrics.MeanAbsoluteError,
    "nll_gaussian": metrics.GaussianNLL,
    "crps_gaussian": metrics.GaussianCRPS,
    "interval_score": metrics.IntervalScore,
    "nll": metrics.MixtureNLL,
    "crps": metrics.MixtureCRPS,
    "ence": metrics.NormalisedCalibration,
}
CLASSIFICATION = {
    "sparsification": lambda: metrics.Sparsification("brier"),
    "reliability": metrics.ConfidenceCalibration,
    "reliability_published": lambda: metrics.ConfidenceCalibration(convention="gustafsson2020"),
    "reliability_adaptive": metrics.AdaptiveConfidenceCalibration,
    "reliability_adaptive_15": lambda: metrics.AdaptiveConfidenceCalibration(15),
    "miou": lambda: metrics.MeanIoU(NUM_CLASSES),
    "miou_published": lambda: metrics.MeanIoU(NUM_CLASSES, convention="gustafsson2020"),
    "brier": metrics.BrierScore,
    "nll": metrics.CategoricalNLL,
}
SUITES = {"regression": (REGRESSION, regression), "classification": (CLASSIFICATION, classification)}


def alone(build, batches):
    metric = build()
    for batch in batches:
        metric.update(**metric._filter_kwargs(**batch))
    return metric.compute()


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("first", [0, 50])
def test_every_metric_gives_what_it_gives_alone(suite, first):
    builders, pixels = SUITES[suite]
    rng = np.random.default_rng(0)
    batches = [pixels(rng, first), pixels(rng, 150), pixels(rng, 30)]
    collection = MetricCollection({name: build() for name, build in builders.items()})
    for batch in batches:
        collection.update(**batch)
    together = collection.compute()
    for name, build in builders.items():
        expected = alone(build, batches)
        assert_close({key: together[f"{name}_{key}"] for key in expected}, expected)


def test_metrics_that_agree_on_the_first_batch_are_still_kept_apart():
    rng = np.random.default_rng(0)
    unsure = classification(rng, 40)
    unsure["probs"] = 0.5 * unsure["probs"] + 0.5 / NUM_CLASSES
    sure = {**classification(rng, 40), "probs": np.eye(NUM_CLASSES)[rng.integers(0, NUM_CLASSES, 40)]}
    collection = MetricCollection({name: build() for name, build in CLASSIFICATION.items() if "nll" not in name})
    for batch in (unsure, sure):
        collection.update(**batch)
    together = collection.compute()
    expected = alone(CLASSIFICATION["reliability_published"], [unsure, sure])
    assert_close({"ece": together["reliability_published_ece"]}, expected)


@pytest.mark.parametrize("suite", SUITES)
def test_forward_gives_the_values_of_the_batch(suite):
    builders, pixels = SUITES[suite]
    rng = np.random.default_rng(0)
    batches = [pixels(rng, 150), pixels(rng, 150)]
    collection = MetricCollection({name: build() for name, build in builders.items()})
    collection(**batches[0])
    values = collection(**batches[1])
    for name, build in builders.items():
        expected = alone(build, batches[1:])
        assert_close({key: values[f"{name}_{key}"] for key in expected}, expected)


def test_reset_forgets_all():
    rng = np.random.default_rng(0)
    collection = MetricCollection({name: build() for name, build in REGRESSION.items()})
    collection.update(**regression(rng, 100))
    collection.reset()
    batch = regression(rng, 150)
    collection.update(**batch)
    assert_close({"rmse": collection.compute()["rmse_rmse"]}, alone(REGRESSION["rmse"], [batch]))


def test_a_clone_goes_on_by_itself():
    rng = np.random.default_rng(0)
    batch = regression(rng, 150)
    collection = MetricCollection({name: build() for name, build in REGRESSION.items()})
    collection.update(**batch)
    twin = collection.clone()
    twin.update(**regression(rng, 150))
    assert_close({"rmse": collection.compute()["rmse_rmse"]}, alone(REGRESSION["rmse"], [batch]))


def test_results_are_tensors_in_float64():
    collection = MetricCollection({name: build() for name, build in REGRESSION.items()})
    collection.update(**regression(np.random.default_rng(0), 150))
    assert {value.dtype for value in collection.compute().values()} <= {torch.float64, torch.int64}
