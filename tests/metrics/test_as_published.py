"""The published convention beside ours, from the same states."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from epibench import metrics
from epibench.evaluation.suite import metric_infos


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
        assert metric_infos()[f"{name}_gustafsson2020"].companion_of == name  # what pages know of it


def test_pooled_rmse_of_groups_is_that_of_all_pixels() -> None:
    rng = np.random.default_rng(1)
    mean, target, image = rng.normal(size=(3, 400)), rng.normal(size=400), rng.integers(0, 9, 400)
    grouped, plain = metrics.GroupedRootMeanSquaredError(9, 3, convention="pooled"), metrics.RootMeanSquaredError(3)
    grouped.update(mean, target, image)
    plain.update(mean, target)
    torch.testing.assert_close(grouped.compute()["rmse"], plain.compute()["rmse"], rtol=1e-14, atol=0)
