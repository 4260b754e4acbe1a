"""From settings to a file: the same again, resumed, refused, and put together rightly."""

import dataclasses
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("numpyro", reason="the reference needs numpyro: pip install 'epibench[reference]'")
pytest.importorskip("arviz", reason="the reference needs arviz: pip install 'epibench[reference]'")

from epibench.errors import InputError
from epibench.reference.chains import Posteriors, posteriors_of
from epibench.reference.make import batch_file, make_reference, pooled, prepare_folder, work_folder
from epibench.reference.predictions import check_fits, load_reference
from epibench.reference.settings import NutsSettings, ReferenceSettings, TemperingSettings
from toy_points import toy_problem

TINY = ReferenceSettings(
    batches=2,
    chains=4,
    group=1,
    tempering=TemperingSettings(16, 0.2, 1, 2),
    nuts=NutsSettings(1, 2, 8, 2),
    trace_draws=8,
)


@pytest.fixture(scope="module")
def problem() -> Any:
    return toy_problem("toy-classification", 40)


@pytest.fixture(autouse=True)
def _compiled_once(problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("epibench.reference.chains.posteriors_of", lambda *_: posteriors(problem))
    monkeypatch.setattr("epibench.reference.starts.TRAINING_STEPS", 20)


@lru_cache
def posteriors(problem: Any) -> Posteriors:
    return posteriors_of(problem, TINY)


def test_a_reference_is_made_resumed_and_the_same(
    problem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_reference(problem, TINY, tmp_path / "a.npz", "epibench reference", "here")
    assert not work_folder(tmp_path / "a.npz").exists()
    check_fits(load_reference(tmp_path / "a.npz"), problem)
    assert first.about["diagnostics"]["batches"][1]["start"] == "trained"
    assert first.floor()["pooled"]["reference_to_method"]["grid"] > 0

    folder = work_folder(tmp_path / "b.npz")
    with monkeypatch.context() as patch:
        patch.setattr("epibench.reference.chains.trained_start", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            make_reference(problem, TINY, tmp_path / "b.npz", "epibench reference", "here")
    finished = batch_file(folder, 0).stat().st_mtime_ns
    assert not batch_file(folder, 1).exists()
    with pytest.raises(InputError, match="made with seed 0, not 1; remove it"):
        prepare_folder(folder, problem, dataclasses.replace(TINY, seed=1))
    assert batch_file(folder, 0).stat().st_mtime_ns == finished
    second = make_reference(problem, TINY, tmp_path / "b.npz", "epibench reference", "here")
    assert torch.equal(first.values["probs"], second.values["probs"])


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_batches_are_pooled_as_one_mixture() -> None:
    rng = np.random.default_rng(0)
    means, variances = rng.normal(1, 2, (2, 30, 5)), rng.uniform(0.1, 20, (2, 30, 5))
    batches = []
    for mean, variance in zip(means, variances, strict=True):
        centre = mean[0]
        sums = {"sum_mean": (mean - centre).sum(0), "sum_squares": np.square(mean - centre).sum(0)}
        sums |= {"sum_variance_clipped": variance.sum(0)}
        batches.append({**sums, "centre": centre, "members": np.array(30)})
    found = pooled(batches)
    members = means.reshape(60, 5)
    np.testing.assert_allclose(found["mean"], members.mean(0))
    np.testing.assert_allclose(found["epistemic"], members.var(0))
    np.testing.assert_allclose(found["aleatoric"], variances.reshape(60, 5).mean(0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"prior_scale": 0.0}, "--prior-scale 0.0"),
        ({"batches": 1}, "--batches 1"),
        ({"chains": 1}, "--chains 1"),
        ({"nuts": NutsSettings(samples=2)}, "--samples 2"),
    ],
)
def test_settings_that_cannot_work_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        dataclasses.replace(TINY, **changes)  # type: ignore[arg-type]


def test_a_home_that_arviz_cannot_write_to_is_named_before_anything_is_sampled(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.touch()  # a file: no folder can be made in it, whoever asks
    environment = {key: value for key, value in os.environ.items() if key != "XDG_CACHE_HOME"}
    command = [sys.executable, "-m", "epibench", "reference", "toy-classification", "--quick", "--out", "made.npz"]
    found = subprocess.run(
        command, cwd=tmp_path, env={**environment, "HOME": str(home)}, capture_output=True, text=True, timeout=120
    )
    assert found.returncode == 2
    assert "arviz" in found.stderr
    assert "XDG_CACHE_HOME" in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
