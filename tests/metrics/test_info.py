"""Every metric says of each of its values how it is named and read."""

import subprocess
import sys

import numpy as np
import pytest

from epibench import metrics
from epibench.evaluation.suite import METRICS
from epibench.metrics.info import GROUPS, INFOS

from .cases import CASES, Case, of_draw, updated

every_case = pytest.mark.parametrize("case", CASES, ids=str)
LISTED = [info for case in CASES for info in type(case.make()).info.values()]


@every_case
def test_every_value_is_described(case: Case) -> None:
    metric = updated(case.make(), of_draw(case.pixels(np.random.default_rng(0), 50, "continuous")))
    assert set(metric.compute()) <= set(metric.info)


@every_case
def test_descriptions_are_whole(case: Case) -> None:
    for name, info in case.make().info.items():
        assert info.name == name
        assert info.title
        assert info.meaning.endswith((".", "?"))
        assert info.group in GROUPS


@every_case
def test_the_direction_is_that_of_the_metric(case: Case) -> None:
    metric = case.make()
    first = next(iter(metric.info.values()))
    assert first.better == ("higher" if metric.higher_is_better else "lower")


@every_case
def test_companions_belong_to_a_value_of_the_same_metric(case: Case) -> None:
    infos = case.make().info
    for info in infos.values():
        if info.companion_of is not None:
            assert info.name.startswith(f"{info.companion_of}_")
            assert infos[info.companion_of].companion_of is None


def test_pages_know_what_every_metric_says() -> None:
    assert {info.name: info for info in LISTED} | {"kl": INFOS["kl"]} == INFOS
    assert all(INFOS[info.name] == info for info in LISTED)


def test_the_set_of_metrics_is_described() -> None:
    assert set(METRICS) == {"gaussian", "categorical", "ranking", "ranking_classes"}
    assert {"ause", "auce", "rmse", "nll", "nll_infinite", "ece", "miou", "ause_per_class_bound"} <= set(INFOS)
    assert INFOS["rmse"].in_unit
    assert INFOS["ause_bound"].companion_of == "ause"


def test_descriptions_and_names_cost_no_import_of_torch() -> None:
    code = (
        "import sys, epibench.metrics, epibench.metrics.info;"
        "assert 'Sparsification' in dir(epibench.metrics);"
        "assert 'torch' not in sys.modules;"
        "from epibench.metrics import Sparsification, accuracy;"
        "assert callable(accuracy);"
        "from epibench.metrics import *"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_can_be_imported_on_use() -> None:
    assert set(metrics._MODULES) == set(metrics.__all__)
    for name in metrics.__all__:
        assert getattr(metrics, name) is not None
        assert name not in metrics._MODULES.values(), f"module and public name {name} hide each other"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        metrics.nothing  # noqa: B018
