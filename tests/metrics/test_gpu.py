"""On a GPU: counts equal those of the CPU, sums and values to 1e-6. Skipped where there is none."""

import numpy as np
import pytest
import torch

import epibench
from epibench.likelihoods import categorical, gaussian
from epibench.store import write_store
from metrics.cases import CASES, Case

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("num_draws", [None, 3])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_states_and_values_equal_those_of_the_cpu(case: Case, num_draws: int | None) -> None:
    pixels = case.pixels(np.random.default_rng(0), 5000, "continuous", **({} if num_draws else {"draws": 1}))
    if num_draws is None:
        pixels = {
            k: v[0] if k in ("uncertainty", "loss", "mean", "std", "variance", "probs") else v
            for k, v in pixels.items()
        }
    here, there = case.make(num_draws), case.make(num_draws).to("cuda")
    here.update(**pixels)
    there.update(**pixels)
    for name in here.state_names:
        mine, other = getattr(here, name), getattr(there, name)
        if isinstance(mine, torch.Tensor):
            rtol = 0 if mine.dtype == torch.int64 else 1e-6
            torch.testing.assert_close(other.cpu(), mine, rtol=rtol, atol=0)
    for name, value in here.compute().items():
        torch.testing.assert_close(there.compute()[name].cpu(), value, rtol=1e-6, atol=1e-9, equal_nan=True)


def test_gaussian_predictive_equals_that_of_the_cpu() -> None:
    mean = 60 + 0.005 * torch.randn(4, 1000, dtype=torch.float64)
    outputs = {"mean": mean, "variance": torch.full_like(mean, 25e-6)}
    weights = torch.tensor([[0.5, 0.5, 0, 0], [0.25] * 4], dtype=torch.float64)
    here = gaussian.combine(outputs, weights)
    there = gaussian.combine({name: output.cuda() for name, output in outputs.items()}, weights)
    torch.testing.assert_close(there.variance.cpu(), here.variance, rtol=1e-9, atol=0)


def test_categorical_predictive_equals_that_of_the_cpu() -> None:
    probs = torch.softmax(3 * torch.randn(4, 1000, 19), -1)
    weights = torch.tensor([[0.5, 0.5, 0, 0], [0.25] * 4], dtype=torch.float64)
    here = categorical.combine({"probs": probs}, weights)
    there = categorical.combine({"probs": probs.cuda()}, weights)
    for kind in ("entropy", "mutual_information", "confidence"):
        torch.testing.assert_close(there.uncertainty(kind).cpu(), here.uncertainty(kind), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_a_score_equals_that_of_the_cpu(tmp_path, kind: str) -> None:
    rng = np.random.default_rng(0)
    if kind == "gaussian":
        target = rng.gamma(3, 5, (4, 20, 30))
        mean = target + rng.normal(0, 1, (5, *target.shape))
        arrays = {"mean": mean, "variance": rng.gamma(2, 0.5, mean.shape), "target": target}
    else:
        probs = rng.dirichlet(np.full(4, 0.5), (5, 4, 20, 30))
        arrays = {"probs": probs, "target": rng.integers(0, 4, (4, 20, 30))}
    write_store(tmp_path / "store.zarr", kind=kind, **arrays)
    here, there = (epibench.score(tmp_path / "store.zarr", device=device).scores[0] for device in ("cpu", "cuda"))
    for mine, other in zip(here.draws, there.draws, strict=True):
        for name, value in mine.metrics.items():
            assert other.metrics[name] == pytest.approx(value, rel=1e-6, abs=1e-9), name
