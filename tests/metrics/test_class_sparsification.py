"""AUSE of each class: that of its pixels alone, within the bound that few bins leave."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epibench import metrics
from epibench.metrics.class_sparsification import NUM_BINS, narrow_bin, narrow_edges

from . import class_oracles
from .cases import PATTERNS, pixels_of_classes

FEW = settings(max_examples=20, deadline=None, derandomize=True)


def streamed(uncertainty, loss, target, num_classes, error="brier"):
    metric = metrics.ClassSparsification(num_classes, error)
    metric.update(uncertainty, loss, target)
    return metric.compute()


@FEW
@given(seed=st.integers(0, 2**32 - 1), size=st.integers(1, 300), pattern=st.sampled_from(PATTERNS))
def test_the_function_equals_brute_force(seed, size, pattern):
    pixels = pixels_of_classes(np.random.default_rng(seed), size, pattern, draws=1)
    found = metrics.ause_per_class(pixels["uncertainty"][0], pixels["loss"][0], pixels["target"], 4)
    expected = class_oracles.ause(pixels["uncertainty"][0], pixels["loss"][0], pixels["target"], 4)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_each_class_is_ranked_alone():
    rng = np.random.default_rng(0)
    target = np.repeat([0, 1], 200)
    loss = np.where(target == 0, 1.0, 0.1) * rng.random(400)
    uncertainty = np.where(target == 0, loss, 1 - loss)  # class 0 knows its errors, class 1 has them upside down
    found = streamed(uncertainty, loss, target, 2)
    assert float(found["ause_per_class"][0]) == pytest.approx(0, abs=float(found["ause_per_class_bound"][0]))
    assert float(found["ause_per_class"][1]) > 0.5


def test_many_pixels_are_close_to_exact():
    rng = np.random.default_rng(0)
    uncertainty = rng.gamma(0.5, 0.5, 60_000).clip(max=2.9)
    loss, target = np.minimum(uncertainty * rng.gamma(1.0, 0.7, 60_000), 2), rng.integers(0, 3, 60_000)
    found = streamed(uncertainty, loss, target, 3)
    exact = metrics.ause_per_class(uncertainty, loss, target, 3)
    np.testing.assert_allclose(found["ause_per_class"], exact, atol=2e-3)
    assert bool(((found["ause_per_class"] - exact).abs() <= found["ause_per_class_bound"]).all())
    assert float(found["ause_per_class_bound"].max()) < 0.05


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12])
def test_keys_outside_the_bins_widen_the_bound(scale):
    rng = np.random.default_rng(0)
    uncertainty, loss, target = scale * rng.random(500), scale * rng.random(500), rng.integers(0, 2, 500)
    found = streamed(uncertainty, loss, target, 2)
    exact = class_oracles.ause(uncertainty, loss, target, 2)
    assert np.all(np.abs(np.asarray(found["ause_per_class"]) - exact) <= np.asarray(found["ause_per_class_bound"]))


def test_a_class_without_loss_has_no_area():
    found = streamed(np.array([0.1, 0.2, 0.3]), np.array([0.0, 0.0, 0.5]), np.array([0, 0, 1]), 3)
    assert found["ause_per_class"][:2].tolist() == [0, 0]
    assert bool(found["ause_per_class"][2].isnan())
    assert bool(found["ause_per_class_bound"][2].isnan())


def test_equal_uncertainties_of_zero_leave_no_doubt_but_that_of_the_oracle():
    loss = np.repeat([0.5, 1.0], 50)
    found = streamed(np.zeros(100), loss, np.zeros(100, dtype=np.int64), 2)
    assert float(found["ause_per_class"][0]) == pytest.approx(metrics.ause(np.zeros(100), loss, "brier").item())
    assert float(found["ause_per_class_bound"][0]) < 1e-6


def test_bins_keep_the_order_and_have_edges():
    keys = torch.tensor([0.0, 1e-40, 1e-20, 2.0**-28, 2.0**-27.99, 0.1, 0.11, 2.0, 7.99, 8.0, 8.1, torch.inf])
    index, edges = narrow_bin(keys), narrow_edges(keys.device)
    assert len(edges) == NUM_BINS
    assert bool((index.diff() >= 0).all())
    assert bool((keys <= edges[index]).all())
    assert bool((keys[1:] > edges[index[1:] - 1]).all())
    assert index[[0, -1]].tolist() == [0, NUM_BINS - 1]


def test_the_state_of_19_classes_is_small():
    metric = metrics.ClassSparsification(19)
    assert sum(state.nbytes for state in metric.metric_state.values()) < 400 * 1024


def test_a_class_that_is_none_is_refused():
    with pytest.raises(ValueError, match="'target' holds"):
        streamed(np.ones(2), np.ones(2), np.array([0, 255]), 3)
