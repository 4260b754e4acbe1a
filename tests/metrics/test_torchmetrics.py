"""What epibench needs of torchmetrics beyond its public interface is still there, and asked for in one file."""

import re
from pathlib import Path

import pytest
import torch
import torchmetrics

import epibench
from epibench import metrics
from epibench.metrics.streaming import PRIVATE_ATTRIBUTES, TRIED_ON

ROOT = Path(epibench.__file__).parent


@pytest.mark.parametrize("name", PRIVATE_ATTRIBUTES)
def test_the_attribute_is_there(name: str) -> None:
    assert hasattr(metrics.RootMeanSquaredError(), name), (
        f"torchmetrics {torchmetrics.__version__} has no Metric.{name}, which torchmetrics {TRIED_ON} had: "
        "adapt src/epibench/metrics/streaming.py"
    )


def test_no_other_file_asks_for_them() -> None:
    used = re.compile(rf"\.({'|'.join(PRIVATE_ATTRIBUTES)})\b")
    files = [path.name for path in ROOT.rglob("*.py") if used.search(path.read_text(encoding="utf-8"))]
    assert files == ["streaming.py"]


def test_states_are_named_in_the_order_of_their_declaration() -> None:
    assert metrics.RootMeanSquaredError().state_names == ("squared_error_sum", "squared_error_count")


@pytest.mark.filterwarnings("error")  # torchmetrics would warn
def test_a_metric_that_was_marked_computes_without_an_update() -> None:
    metric = metrics.RootMeanSquaredError()
    metric.mark_updated()
    assert metric.compute()["rmse"].isnan()


def test_a_changed_state_counts_once_the_result_is_forgotten() -> None:
    metric = metrics.RootMeanSquaredError()
    metric.update([1.0], [3.0])
    assert metric.compute()["rmse"] == 2
    metric.squared_error_sum += 12
    metric.forget_result()
    assert metric.compute()["rmse"] == 4


def test_what_a_metric_goes_back_to_takes_no_memory() -> None:
    metric = metrics.AdaptiveConfidenceCalibration(num_draws=3)
    sizes = [default.untyped_storage().nbytes() for default in metric._defaults.values()]
    assert max(sizes) <= 8
    before = {name: getattr(metric, name).clone() for name in metric.state_names}
    metric.update(torch.softmax(torch.rand(3, 50, 4), -1), torch.randint(4, (50,)))
    metric.reset()
    for name, value in before.items():
        state = getattr(metric, name)
        assert torch.equal(state, value)
        assert state.is_contiguous()  # and can be added to
