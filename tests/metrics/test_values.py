"""One value of a metric by its name: itself a torchmetrics.Metric, with the state of the metric."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torchmetrics import Metric, MetricCollection

from epibench import metrics

from .cases import CASES, NUM_DRAWS, of_draw, updated

every_case = pytest.mark.parametrize("case", CASES, ids=str)
MEAN, TARGET = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 2.0, 5.0])


@every_case
def test_each_value_is_that_of_the_dict(case):
    metric = updated(case.make(NUM_DRAWS), case.pixels(np.random.default_rng(0), 60, "continuous"))
    for name, value in metric.compute().items():
        assert isinstance(metric[name], Metric)
        torch.testing.assert_close(metric[name].compute(), value, rtol=0, atol=0, equal_nan=True)


@every_case
def test_a_step_gives_the_value_of_its_batch_and_an_epoch_that_of_all(case):
    rng = np.random.default_rng(0)
    first, second = (of_draw(case.pixels(rng, 150, "continuous")) for _ in range(2))
    metric = case.make()
    metric(**first)
    of_second = metric(**second)
    alone, both = updated(case.make(), second).compute(), updated(case.make(), first, second).compute()
    name = next(iter(both))
    torch.testing.assert_close(of_second[name], alone[name], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(metric[name].compute(), both[name], equal_nan=True)


@every_case
def test_pixels_can_come_through_a_value(case):
    pixels = of_draw(case.pixels(np.random.default_rng(0), 150, "continuous"))
    name, expected = next(iter(updated(case.make(), pixels).compute().items()))
    value = case.make()[name]  # nothing else refers to the metric
    of_step = value(**pixels)
    torch.testing.assert_close(of_step, expected, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(value.compute(), expected, rtol=0, atol=0, equal_nan=True)
    value.reset()
    value.update(**pixels)
    torch.testing.assert_close(value.compute(), expected, rtol=0, atol=0, equal_nan=True)


def test_it_is_the_same_object_each_time_and_knows_what_it_is():
    metric = metrics.Sparsification()
    assert metric["ause"] is metric["ause"]
    assert metric["ause"].info.title == "AUSE"
    assert repr(metric["ause"]) == "Sparsification()['ause']"
    assert (metric["ause"].higher_is_better, metric["ause_bound"].higher_is_better) == (False, None)
    assert metrics.MeanIoU(3)["miou"].higher_is_better


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(KeyError, match=r"RootMeanSquaredError has no value 'rsme'; it has rmse"):
        metrics.RootMeanSquaredError()["rsme"]


def test_a_value_that_the_metric_does_not_give_as_it_was_made_is_refused():
    metric = metrics.Sparsification("rmse")
    metric.update([1.0], [1.0])
    with pytest.raises(KeyError, match=r"as it was made gives ause, .*and no 'ause_mae'"):
        metric["ause_mae"].compute()


def test_pixels_never_come_twice():
    metric = metrics.IntervalCalibration()
    metric["auce"].update([0.0], [1.0], [0.0])
    with pytest.raises(ValueError, match="would count twice if they came through 'auce_signed' too"):
        metric["auce_signed"].update([0.0], [1.0], [0.0])
    metric["auce"](np.zeros(2), np.ones(2), np.zeros(2))
    with pytest.raises(ValueError, match="would count twice"):
        metric["auce_signed"]([0.0], [1.0], [0.0])
    assert int(metric.level_counts.sum()) == 3
    metric.reset()
    metric["auce_signed"].update([0.0], [1.0], [0.0])


def test_values_in_a_collection():
    collection = MetricCollection(
        {"error": metrics.RootMeanSquaredError()["rmse"], "spread": metrics.GaussianCRPS()["crps_gaussian"]}
    )
    of_step = collection(mean=MEAN, variance=torch.ones(3), target=TARGET)
    collection.update(mean=MEAN + 1, variance=torch.ones(3), target=TARGET)
    values = collection.compute()
    assert set(values) == {"error", "spread"}
    assert of_step["error"].item() == pytest.approx((4 / 3) ** 0.5)
    assert values["error"].item() == pytest.approx(((4 + 1 + 1 + 1) / 6) ** 0.5)
    collection.reset()
    collection.update(mean=MEAN, variance=torch.ones(3), target=TARGET)
    assert collection.compute()["error"].item() == pytest.approx((4 / 3) ** 0.5)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda metric: pickle.loads(pickle.dumps(metric))])  # noqa: S301
def test_a_copy_has_its_own_state_and_its_own_values(again):
    metric = metrics.RootMeanSquaredError()
    metric["rmse"].update(MEAN, TARGET)
    for value in (again(metric)["rmse"], again(metric["rmse"])):
        value.update(MEAN + 9, TARGET)
        assert value.compute() > 5
        assert metric["rmse"].compute().item() == pytest.approx((4 / 3) ** 0.5)


def test_values_move_with_their_metric():
    module = torch.nn.ModuleDict({"value": metrics.RootMeanSquaredError()["rmse"]})
    module.to("meta")
    value = module["value"]
    assert value.device.type == value.metric_a.squared_error_sum.device.type == "meta"
    metric = metrics.RootMeanSquaredError()
    before = metric["rmse"]
    metric.to("meta")
    assert before.device.type == "meta"


def test_states_stay_float64_whatever_the_module_becomes():
    module = torch.nn.ModuleDict({"rmse": metrics.RootMeanSquaredError()}).half()
    assert module["rmse"].squared_error_sum.dtype == torch.float64


def test_sync_without_processes_is_that_of_the_metric():
    gathered = []

    def gather(state, group=None):
        gathered.append(state)
        return [state, state]

    metric = metrics.MeanAbsoluteError(dist_sync_fn=gather, distributed_available_fn=lambda: True)
    metric.update(MEAN, TARGET)
    assert metric["mae"].compute().item() == pytest.approx(2 / 3)
    assert len(gathered) == len(metric.state_names)  # the value itself syncs nothing
    assert int(metric.absolute_error_count) == 3  # and each process goes on with its own


def test_modules_are_listed_once_with_their_values():
    names = [name for name, _ in torch.nn.ModuleDict({"m": metrics.MeanAbsoluteError()}).named_modules()]
    assert names == ["", "m", "m.mae"]
    every = list(metrics.MeanAbsoluteError()["mae"].named_modules(remove_duplicate=False))
    assert len(every) <= 3  # and it ends
