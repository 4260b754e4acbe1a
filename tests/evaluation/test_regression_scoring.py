"""Plain regression, (n,), through `score`: numbers equal brute force, and nothing speaks of pixels."""

import re

import numpy as np
import pytest

import epibench
import oracles
from epibench.errors import InputError
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.members.stored import validate
from epibench.results import counted_as
from epibench.store import StoreWriter, open_store, write_store

NUM_MEMBERS, NUM_SAMPLES = 5, 300


def heteroscedastic(targets=()):
    """A table as in UCI's collection: eight features, noise that grows with one of them; least squares on bootstraps.

    Every member fits the mean, and the log of its own squared residuals for the variance.
    """
    rng = np.random.default_rng(3)
    features = np.c_[np.ones(NUM_SAMPLES), rng.normal(size=(NUM_SAMPLES, 8))]
    weights = rng.normal(size=(9, *targets))
    noise = np.exp(0.6 * features[:, 1]).reshape(-1, *[1] * len(targets))
    target = 20 + features @ weights + noise * rng.normal(size=(NUM_SAMPLES, *targets))
    mean, variance = [], []
    for _ in range(NUM_MEMBERS):
        chosen = rng.integers(0, NUM_SAMPLES, NUM_SAMPLES)
        fit = np.linalg.lstsq(features[chosen], target[chosen])[0]
        residuals = np.log((target[chosen] - features[chosen] @ fit) ** 2 + 1e-6)
        mean.append(features @ fit)
        variance.append(np.exp(features @ np.linalg.lstsq(features[chosen], residuals)[0]))
    return {"mean": np.stack(mean), "variance": np.stack(variance), "target": target}


def scored(path, **settings):
    return prepare(open_store(path), ScoreSettings(**settings)).run().score


def page_of(folder, *stores, **options):
    epibench.score(*stores, report=folder / "page", device="cpu", **options)
    page = (folder / "page" / "score.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    return re.sub(r"<style>.*?</style>|<dt>stored.*?</dd>|class=\".*?\"", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("targets", [(), (1,)])
def test_metrics_equal_brute_force_over_all_values(tmp_path, targets):
    arrays = heteroscedastic(targets)
    write_store(tmp_path / "table.zarr", kind="gaussian", **arrays)
    result = scored(tmp_path / "table.zarr", max_draws=2)
    assert result.pixels.valid == arrays["target"].size
    for draw in result.draws:
        means, variances = (arrays[name][draw.members].reshape(draw.M, -1) for name in ("mean", "variance"))
        target, weights = arrays["target"].reshape(-1), np.full(draw.M, 1 / draw.M)
        mean, variance = means.mean(0), variances.mean(0) + means.var(0)
        expected = {
            "auce": oracles.auce(mean, np.sqrt(variance), target),
            "rmse": oracles.rmse(mean, target),
            "mae": oracles.mae(mean, target),
            "nll": np.mean(oracles.mixture_nll(means, variances, weights, target)),
            "crps": np.mean(oracles.mixture_crps(means, variances, weights, target)),
        }
        assert {name: draw.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-9)
        exact = oracles.ause(variance, (target - mean) ** 2)
        assert abs(draw.metrics["ause"] - exact) <= draw.metrics["ause_bound"] < 0.02


def test_a_variance_that_follows_the_noise_ranks_better_than_chance(tmp_path):
    write_store(tmp_path / "table.zarr", kind="gaussian", **heteroscedastic())
    largest = scored(tmp_path / "table.zarr").summary[NUM_MEMBERS]
    assert largest["ause"].mean < 0.6 * largest["ause_random"].mean


def test_an_npz_of_a_table_is_scored_alike(tmp_path):
    arrays = heteroscedastic()
    np.savez(tmp_path / "table.npz", **arrays)
    write_store(tmp_path / "table.zarr", kind="gaussian", **arrays)
    first, second = (scored(tmp_path / name) for name in ("table.npz", "table.zarr"))
    assert first.summary == second.summary


def test_images_to_numbers_are_written_from_a_loop(tmp_path):
    arrays = heteroscedastic((1,))
    options = {"num_members": NUM_MEMBERS, "num_images": NUM_SAMPLES, "dtype": "float64"}
    with StoreWriter(tmp_path / "loop.zarr", kind="gaussian", **options) as store:
        for number in range(NUM_SAMPLES):
            store.write_target(number, arrays["target"][number])
            for member in range(NUM_MEMBERS):
                outputs = {name: arrays[name][member, number] for name in ("mean", "variance")}
                store.write(member, number, **outputs)
    write_store(tmp_path / "whole.zarr", kind="gaussian", **arrays)
    assert scored(tmp_path / "loop.zarr").summary == scored(tmp_path / "whole.zarr").summary


@pytest.mark.parametrize(
    ("shape", "word"),
    [((60,), "samples"), ((60, 1), "samples"), ((2, 3, 4), "pixels"), ((2, 3, 4, 5), "pixels")],
)
def test_what_is_counted_follows_from_the_shape(shape, word):
    assert counted_as(shape) == word


@pytest.mark.parametrize("targets", [(), (1,)])
def test_the_page_and_the_notes_do_not_speak_of_pixels(tmp_path, targets):
    arrays = heteroscedastic(targets)
    arrays["mean"][0, 0] = np.nan
    write_store(tmp_path / "table.zarr", kind="gaussian", method="ensemble", **arrays)
    result = scored(tmp_path / "table.zarr", skip_invalid=True)
    page = page_of(tmp_path, tmp_path / "table.zarr", skip_invalid=True)
    assert "pixel" not in page.lower()
    assert "pixel" not in " ".join(result.notes).lower()
    assert "valid samples" in page
    assert any(note.startswith("Samples skipped") for note in result.notes)


def test_classes_of_samples_are_not_called_pixels(tmp_path):
    rng = np.random.default_rng(0)
    probs = rng.dirichlet(np.ones(3), (4, 50))
    write_store(tmp_path / "table.zarr", kind="categorical", probs=probs, target=rng.integers(0, 3, 50))
    page = page_of(tmp_path, tmp_path / "table.zarr")
    assert "pixel" not in page.lower()
    assert "Share of samples" in page


@pytest.mark.parametrize("kind", ["zarr", "npz", "loop"])
def test_several_targets_of_a_sample_are_refused(tmp_path, kind):
    arrays = heteroscedastic((2,))
    np.savez(tmp_path / "table.npz", **arrays)
    sizes = {"num_members": NUM_MEMBERS, "num_images": NUM_SAMPLES}
    ways = {
        "zarr": lambda: write_store(tmp_path / "table.zarr", kind="gaussian", **arrays),
        "npz": lambda: open_store(tmp_path / "table.npz"),
        "loop": lambda: StoreWriter(tmp_path / "loop.zarr", kind="gaussian", **sizes).write_target(
            0, arrays["target"][0]
        ),
    }
    with pytest.raises(InputError, match=r"store each target of a sample by itself|has 2 numbers; give one, or a map"):
        ways[kind]()


def test_a_broken_value_is_named_by_sample(tmp_path):
    arrays = heteroscedastic()
    arrays["mean"][1, 7] = np.inf
    write_store(tmp_path / "table.zarr", kind="gaussian", **arrays)
    store = open_store(tmp_path / "table.zarr")
    with pytest.raises(InputError, match=r"in 1 sample, first at member 1, sample 7"):
        validate(store)
