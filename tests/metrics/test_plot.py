"""`plot()`: curves where a metric has them, values otherwise, of one result or of many steps."""

import sys

import numpy as np
import pytest

from epibench import metrics

from .cases import CASES, NUM_DRAWS, of_draw, updated

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
every_case = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture(autouse=True)
def closed():
    yield
    import matplotlib.pyplot as plt

    plt.close("all")


def drawn(axes):
    """What is drawn: the points of each line by its label."""
    return {line.get_label(): line.get_xydata() for line in axes.get_lines()}


@every_case
@pytest.mark.parametrize("num_draws", [None, NUM_DRAWS])
def test_every_metric_and_each_of_its_values_can_be_drawn(case, num_draws):
    pixels = case.pixels(np.random.default_rng(0), 100, "continuous")
    metric = updated(case.make(num_draws), pixels if num_draws else of_draw(pixels))
    for plotted in (metric, *(metric[name] for name in metric.compute())):
        figure, axes = plotted.plot()
        assert figure is axes.figure
        assert axes.get_lines()


def test_curves_are_those_of_the_metric():
    metric = metrics.Sparsification()
    metric.update([3.0, 1.0, 2.0], [4.0, 0.0, 1.0])
    _, axes = metric.plot()
    lines, curves = drawn(axes), metric.curves()
    np.testing.assert_array_equal(lines["curve"], np.stack([curves["x"], curves["curve"]], 1))
    np.testing.assert_array_equal(lines["oracle"], np.stack([curves["x"], curves["oracle"]], 1))
    assert axes.get_xlabel() == "share of pixels removed"


def test_reliability_is_drawn_over_confidence_beside_the_diagonal():
    metric = metrics.ConfidenceCalibration()
    metric.update([[0.95, 0.05], [0.65, 0.35], [0.65, 0.35]], [0, 0, 1])
    lines = drawn(metric.plot()[1])
    points = lines["accuracy"][~np.isnan(lines["accuracy"][:, 1])]
    np.testing.assert_allclose(points, [[0.65, 0.5], [0.95, 1.0]])
    np.testing.assert_array_equal(lines["ideal"], [[0, 0], [1, 1]])


def test_one_value_is_a_dot():
    metric = metrics.RootMeanSquaredError()
    metric.update([1.0], [3.0])
    for plotted in (metric, metric["rmse"]):
        ((_, value),) = drawn(plotted.plot()[1])["RMSE"]
        assert value == 2


def test_companions_are_left_out_and_classes_where_there_are_others():
    metric = metrics.MeanIoU(2)
    metric.update([[0.9, 0.1], [0.2, 0.8]], [0, 0])
    assert set(drawn(metric.plot()[1])) == {"mIoU", "Accuracy"}
    per_class = metric["iou_per_class"].plot()[1]
    np.testing.assert_allclose(drawn(per_class)["IoU per class"], [[0, 0.5], [1, 0.0]])
    assert per_class.get_xlabel() == "class"


@pytest.mark.parametrize("by_name", [False, True])
def test_steps_are_a_line(by_name):
    metric = metrics.MeanAbsoluteError()
    plotted = metric["mae"] if by_name else metric
    steps = [plotted([1.0], [target]) for target in (2.0, 4.0)]
    axes = plotted.plot(steps)[1]
    np.testing.assert_array_equal(drawn(axes)["MAE"], [[0, 1], [1, 3]])
    assert axes.get_xlabel() == "step"


def test_axes_can_be_given():
    import matplotlib.pyplot as plt

    metric = metrics.IntervalCalibration()
    metric.update([0.0], [1.0], [0.5])
    axes = plt.subplots()[1]
    assert metric.plot(ax=axes) == (None, axes)
    assert set(drawn(axes)) == {"ideal", "coverage"}


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch):
    metric = metrics.RootMeanSquaredError()
    metric.update([1.0], [3.0])
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ModuleNotFoundError, match=r"^plot\(\) needs matplotlib, .*pip install matplotlib$"):
        metric.plot()
