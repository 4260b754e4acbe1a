"""Each way in which peers go wrong (shared/peers.md): ours is right, and theirs, in a line or two, is not."""

import numpy as np
import pytest
import torch

from epibench import metrics
from epibench.likelihoods import categorical, gaussian

PIXELS = 40_000_000


def sure_and_half_right(size):
    probs = torch.tensor([[0.95, 0.05]], dtype=torch.float64).expand(size, 2)
    return probs, torch.arange(size) % 2


def test_40_million_predictions_are_counted():
    probs, target = sure_and_half_right(PIXELS // 256)
    metric = metrics.ConfidenceCalibration()
    metric.update(probs, target)
    for _ in range(8):  # 2⁸ = 256 times the first part
        metric.merge(metric.clone())
    assert int(metric.curves()["count"].sum()) == PIXELS
    assert float(metric.compute()["ece"]) == pytest.approx(0.45, abs=1e-9)


def test_float32_counts_stop_at_16_million():
    count = torch.tensor([2.0**24 - 1])
    for _ in range(5):
        count += 1
    assert float(count) == 2**24  # whatever comes after it


@pytest.mark.parametrize("kind", [metrics.MeanIoU(2), metrics.ConfidenceCalibration(), metrics.RootMeanSquaredError()])
def test_every_count_goes_on_beyond_2_to_the_24(kind):
    arguments = (
        ([0.0, 0.0], [1.0, 1.0]) if isinstance(kind, metrics.RootMeanSquaredError) else ([[0.3, 0.7]] * 2, [1, 1])
    )
    kind.update(*arguments)
    for _ in range(25):
        kind.merge(kind.clone())
    kind.update(*arguments)
    counts = next(s for s in kind.metric_state.values() if s.dtype == torch.int64)
    assert int(counts.sum()) == 2**26 + 2


def test_confidence_one_is_in_the_last_bin():
    probs, target = torch.eye(2, dtype=torch.float64)[[0, 0, 0, 0]], torch.tensor([0, 0, 0, 1])
    assert float(metrics.ece(probs, target)) == 0.25
    confidence, right = probs.amax(1), probs.argmax(1) == target
    peer = sum(
        float((confidence[inside] - right[inside].double()).mean().abs() * inside.double().mean())
        for low in np.arange(10) / 10
        if (inside := (confidence >= low) & (confidence < low + 0.1)).any()
    )
    assert peer == 0


def test_entropy_of_certainty_is_zero_and_sorts_first():
    probs = torch.tensor([[[1.0, 0.0], [0.5, 0.5]]])
    entropy = categorical.combine({"probs": probs}, torch.ones(1, 1)).entropy[0]
    assert entropy.tolist() == pytest.approx([0, np.log(2)])
    peer = -(probs * probs.log()).sum(-1)[0]
    assert peer.argsort()[-1] == 0  # NaN: the most certain pixel counts as the most uncertain


def random_uncertainty(size=200_000):
    rng = np.random.default_rng(0)
    return rng.random(size), rng.normal(size=size) ** 2


@pytest.mark.parametrize(("error", "expected"), [("mae", 0.758), ("rmse", 0.585)])
def test_ause_of_random_uncertainty_is_what_the_definition_gives(error, expected):
    """Squared normal errors: "mae" takes the plain mean of the loss, which here is the MSE."""
    assert float(metrics.ause(*random_uncertainty(), error)) == pytest.approx(expected, abs=5e-3)


def test_ause_from_sums_of_the_remaining_errors_is_less_than_half_of_it():
    uncertainty, loss = random_uncertainty()
    by_key, by_loss = (np.cumsum(values) / values.sum() for values in (loss[uncertainty.argsort()], np.sort(loss)))
    kept = len(loss) - np.arange(100) * len(loss) // 100 - 1
    assert np.trapezoid(by_key[kept] - by_loss[kept], dx=0.01) == pytest.approx(0.318, abs=5e-3)


def test_a_spread_of_5_mm_at_60_m_survives():
    means = (60 + 0.005 * torch.randn(8, 1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).float()
    outputs = {"mean": means, "variance": torch.full((8, 1000), 2.5e-5)}
    epistemic = gaussian.combine(outputs, torch.full((1, 8), 1 / 8)).epistemic[0]
    np.testing.assert_allclose(epistemic, means.double().var(0, unbiased=False), rtol=1e-4)
    peer = (means.square().mean(0) - means.mean(0).square()).sqrt()
    assert float(peer.isnan().double().mean()) > 0.2


def test_rmse_does_not_depend_on_the_batches():
    rng = np.random.default_rng(0)
    mean, target = np.zeros(1000), rng.normal(size=1000) * np.linspace(0, 10, 1000)
    batches = [np.split(np.arange(1000), parts) for parts in (10, 100)]

    def streamed(parts):
        metric = metrics.RootMeanSquaredError()
        for part in parts:
            metric.update(mean[part], target[part])
        return float(metric.compute()["rmse"])

    ours = [streamed(parts) for parts in batches]
    assert ours == pytest.approx([np.sqrt(np.mean(target**2))] * 2, rel=1e-12)
    peer = [np.mean([np.sqrt(np.mean(target[part] ** 2)) for part in parts]) for parts in batches]
    assert abs(peer[0] - peer[1]) > 0.05


def test_miou_is_of_the_data_set_not_of_its_images():
    predicted, target = np.array([[0, 0, 0, 1], [0, 0, 0, 0]]), np.array([[0, 0, 1, 1], [0, 0, 0, 1]])
    probs = np.eye(2)[predicted]
    assert float(metrics.miou(probs, target)) == pytest.approx((5 / 7 + 1 / 3) / 2)
    peer = np.mean([float(metrics.miou(*image)) for image in zip(probs, target, strict=True)])
    assert peer != pytest.approx((5 / 7 + 1 / 3) / 2, abs=0.01)
