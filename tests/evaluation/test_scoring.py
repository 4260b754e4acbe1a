"""Scoring a store equals brute force on the members of each draw."""

import numpy as np
import pytest
import torch

import oracles
from epibench.errors import InputError
from epibench.evaluation import scoring
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.store import open_store, write_store
from work_sizes import set_pixels_at_once

NUM_MEMBERS = 5
SHAPE = (6, 4, 7)


def gaussian_store(path, **extra):
    rng = np.random.default_rng(0)
    target = rng.gamma(3, 5, SHAPE)
    mean = target + rng.normal(0, 1, (NUM_MEMBERS, *SHAPE))
    arrays = {
        "mean": mean,
        "variance": rng.gamma(2, 0.5, mean.shape),
        "target": target,
        "valid": rng.random(SHAPE) < 0.8,
    }
    write_store(path, kind="gaussian", unit="m", method="ensemble", **arrays, **extra)
    return arrays


def categorical_store(path, **extra):
    rng = np.random.default_rng(1)
    probs = rng.dirichlet(np.full(4, 0.5), (NUM_MEMBERS, *SHAPE))
    arrays = {"probs": probs, "target": rng.integers(0, 4, SHAPE)}
    arrays["target"][rng.random(SHAPE) < 0.1] = 255
    write_store(path, kind="categorical", method="ensemble", **arrays, **extra)
    return arrays


def score(path, **settings):
    return prepare(open_store(path), ScoreSettings(**settings)).run().score.model_dump(mode="json")


def assert_within_bound(metrics, exact):
    """The streamed AUSE is as far from the exact one as its bound says, and the bound is small."""
    assert abs(metrics["ause"] - exact) <= metrics["ause_bound"] + 1e-12
    assert metrics["ause_bound"] < 0.02


def mixture(arrays, members):
    """Mean, variance and members of one draw over the valid pixels."""
    valid = arrays["valid"]
    means, variances = arrays["mean"][members][:, valid], arrays["variance"][members][:, valid]
    return means.mean(0), variances.mean(0) + means.var(0), means, variances, arrays["target"][valid]


def test_gaussian_metrics_equal_brute_force_for_every_draw(tmp_path):
    arrays = gaussian_store(tmp_path / "store.zarr")
    draws = score(tmp_path / "store.zarr", max_draws=3)["draws"]
    assert [draw["M"] for draw in draws] == [1, 1, 1, 2, 2, 2, 4, 4, 4, 5]
    for draw in draws:
        mean, variance, means, variances, target = mixture(arrays, draw["members"])
        weights = np.full(draw["M"], 1 / draw["M"])
        expected = {
            "auce": oracles.auce(mean, np.sqrt(variance), target),
            "auce_signed": oracles.auce_signed(mean, np.sqrt(variance), target),
            "rmse": oracles.rmse(mean, target),
            "mae": oracles.mae(mean, target),
            "nll": np.mean(oracles.mixture_nll(means, variances, weights, target)),
            "nll_gaussian": np.mean(oracles.gaussian_nll(mean, variance, target)),
            "crps": np.mean(oracles.mixture_crps(means, variances, weights, target)),
            "crps_gaussian": np.mean(oracles.gaussian_crps(mean, variance, target)),
        }
        assert {name: draw["metrics"][name] for name in expected} == pytest.approx(expected, rel=1e-9)
        assert_within_bound(draw["metrics"], oracles.ause(variance, (target - mean) ** 2))


def test_categorical_metrics_equal_brute_force_for_every_draw(tmp_path):
    arrays = categorical_store(tmp_path / "store.zarr")
    valid = arrays["target"] != 255
    target = arrays["target"][valid]
    for draw in score(tmp_path / "store.zarr", max_draws=3)["draws"]:
        probs = arrays["probs"][draw["members"]].astype(np.float64).mean(0)[valid]
        entropy = -(probs * np.log(probs)).sum(-1)
        expected = {
            "ece": oracles.ece(probs, target),
            "miou": oracles.miou(probs, target),
            "accuracy": oracles.accuracy(probs, target),
            "brier": np.mean(oracles.brier(probs, target)),
            "nll": np.mean(oracles.categorical_nll(probs, target)),
        }
        assert {name: draw["metrics"][name] for name in expected} == pytest.approx(expected, rel=1e-9)
        assert_within_bound(draw["metrics"], oracles.ause(entropy, oracles.brier(probs, target), "brier"))
        assert draw["metrics"]["iou_per_class"] == pytest.approx(oracles.iou_per_class(probs, target))


@pytest.mark.parametrize(
    ("uncertainty", "brute_force"),
    [
        ("aleatoric", lambda arrays, m: arrays["variance"][m].mean(0)[arrays["valid"]]),
        ("epistemic", lambda arrays, m: arrays["mean"][m].var(0)[arrays["valid"]]),
    ],
)
def test_any_uncertainty_can_be_sorted_by(tmp_path, uncertainty, brute_force):
    arrays = gaussian_store(tmp_path / "store.zarr")
    draw = score(tmp_path / "store.zarr", sizes=(4,), max_draws=1, uncertainty=uncertainty)["draws"][0]
    mean, _, _, _, target = mixture(arrays, draw["members"])
    assert_within_bound(draw["metrics"], oracles.ause(brute_force(arrays, draw["members"]), (target - mean) ** 2))


@pytest.mark.parametrize("uncertainty", ["mutual_information", "confidence"])
def test_any_uncertainty_of_classes_can_be_sorted_by(tmp_path, uncertainty):
    arrays = categorical_store(tmp_path / "store.zarr")
    draw = score(tmp_path / "store.zarr", sizes=(4,), max_draws=1, uncertainty=uncertainty)["draws"][0]
    valid = arrays["target"] != 255
    members = arrays["probs"][draw["members"]][:, valid]
    probs = members.mean(0)
    entropies = -(members * np.log(members)).sum(-1)
    key = 1 - probs.max(-1) if uncertainty == "confidence" else -(probs * np.log(probs)).sum(-1) - entropies.mean(0)
    assert_within_bound(draw["metrics"], oracles.ause(key, oracles.brier(probs, arrays["target"][valid]), "brier"))


def test_gustafsson2020_averages_rmse_over_groups_of_images(tmp_path):
    arrays = gaussian_store(tmp_path / "store.zarr")
    draw = score(tmp_path / "store.zarr", sizes=(2,), max_draws=1, convention="gustafsson2020")["draws"][0]
    mean, variance, _, _, target = mixture(arrays, draw["members"])
    image = np.broadcast_to(np.arange(SHAPE[0])[:, None, None], SHAPE)[arrays["valid"]]
    average, spread = oracles.rmse_grouped(mean, target, image)
    assert draw["metrics"]["rmse"] == pytest.approx(average, rel=1e-9)
    assert draw["metrics"]["rmse_spread"] == pytest.approx(spread, rel=1e-6)
    assert_within_bound(draw["metrics"], oracles.ause(variance, (target - mean) ** 2, convention="gustafsson2020"))


def test_gustafsson2020_needs_images(tmp_path):
    write_store(
        tmp_path / "flat.zarr", kind="gaussian", mean=np.zeros((2, 9)), variance=np.ones((2, 9)), target=np.ones(9)
    )
    with pytest.raises(InputError, match="needs an image axis"):
        prepare(open_store(tmp_path / "flat.zarr"), ScoreSettings(convention="gustafsson2020"))


@pytest.mark.parametrize("make", [gaussian_store, categorical_store])
def test_results_do_not_depend_on_the_number_of_threads(tmp_path, make):
    make(tmp_path / "store.zarr")
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = score(tmp_path / "store.zarr")
        torch.set_num_threads(2)
        assert score(tmp_path / "store.zarr") == alone
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("make", [gaussian_store, categorical_store])
def test_results_do_not_depend_on_the_size_of_chunks(tmp_path, monkeypatch, make):
    make(tmp_path / "store.zarr")
    whole = score(tmp_path / "store.zarr")["draws"]
    set_pixels_at_once(monkeypatch, 500)
    for one, other in zip(whole, score(tmp_path / "store.zarr")["draws"], strict=True):
        assert one["members"] == other["members"]
        for name, value in one["metrics"].items():
            assert other["metrics"][name] == pytest.approx(value, rel=1e-12, abs=1e-15)


def test_progress_counts_every_pixel_once(tmp_path, monkeypatch):
    gaussian_store(tmp_path / "store.zarr")
    set_pixels_at_once(monkeypatch, 300)
    heard = []
    prepare(open_store(tmp_path / "store.zarr"), ScoreSettings()).run(heard.append)
    assert sum(heard) == np.prod(SHAPE)
    assert len(heard) > 3


def test_draws_that_mix_groups_are_noted(tmp_path):
    gaussian_store(tmp_path / "store.zarr", group=[0, 0, 1, 1, 0])
    store = open_store(tmp_path / "store.zarr")
    noted = {
        plan: prepare(store, ScoreSettings(plan=plan, sizes=(2,))).run().score.notes for plan in ("random", "prefix")
    }
    assert [note[:36] for note in noted["random"] if "mix" in note] == ["Draws mix members of 2 groups, as ne"]
    assert not [note for note in noted["prefix"] if "mix" in note]


def test_groups_give_one_prefix_draw_each(tmp_path):
    gaussian_store(tmp_path / "store.zarr", group=[0, 0, 1, 1, 0])
    result = score(tmp_path / "store.zarr", plan="prefix", sizes=(2,))
    assert [draw["members"] for draw in result["draws"]] == [[0, 1], [2, 3]]
    assert result["pool"]["num_groups"] == 2


def test_more_members_than_the_pool_is_an_error(tmp_path):
    gaussian_store(tmp_path / "store.zarr")
    with pytest.raises(InputError, match="M = 6 is impossible"):
        prepare(open_store(tmp_path / "store.zarr"), ScoreSettings(sizes=(6,)))


def test_more_draws_than_memory_holds_are_refused(tmp_path, monkeypatch):
    gaussian_store(tmp_path / "store.zarr")
    monkeypatch.setattr(scoring, "BYTES_PER_DRAW", 2**60)
    with pytest.raises(InputError, match=r"21 draws need .* GiB .*lower --draws"):
        prepare(open_store(tmp_path / "store.zarr"), ScoreSettings())


def test_an_uncertainty_of_the_other_kind_is_an_error(tmp_path):
    gaussian_store(tmp_path / "store.zarr")
    with pytest.raises(InputError, match=r"entropy.*total, aleatoric, epistemic"):
        prepare(open_store(tmp_path / "store.zarr"), ScoreSettings(uncertainty="entropy"))


def test_skipped_pixels_are_noted_and_do_not_count(tmp_path):
    arrays = gaussian_store(tmp_path / "store.zarr")
    arrays["valid"][0, 0, :3] = True
    broken = arrays["mean"].copy()
    broken[2, 0, 0, :3] = [np.nan, np.inf, -np.inf]
    write_store(tmp_path / "broken.zarr", kind="gaussian", **{**arrays, "mean": broken})
    arrays["valid"][0, 0, :3] = False
    write_store(tmp_path / "masked.zarr", kind="gaussian", **arrays)
    skipped = score(tmp_path / "broken.zarr", skip_invalid=True)
    assert skipped["pixels"]["skipped"] == 3
    assert any("infinite values: 3." in note for note in skipped["notes"])
    assert skipped["draws"] == score(tmp_path / "masked.zarr")["draws"]


def test_uncertainty_that_is_worse_than_chance_is_noted(tmp_path):
    rng = np.random.default_rng(0)
    variance = rng.gamma(2, 1, (1, 500))
    target = rng.normal(size=500) / variance[0]
    write_store(tmp_path / "a.zarr", kind="gaussian", mean=np.zeros((1, 500)), variance=variance, target=target)
    result = score(tmp_path / "a.zarr")
    assert result["draws"][0]["metrics"]["ause"] > result["draws"][0]["metrics"]["ause_random"]
    assert any("worse than chance" in note for note in result["notes"])


def test_an_infinite_nll_is_noted(tmp_path):
    arrays = {"mean": np.zeros((2, 50)), "variance": np.zeros((2, 50)), "target": np.ones(50)}
    write_store(tmp_path / "a.zarr", kind="gaussian", **arrays)
    result = score(tmp_path / "a.zarr")
    assert result["summary"]["2"]["nll"]["mean"] is None
    assert any("NLL is infinite for 3 of 3 draws" in note for note in result["notes"])


def test_values_too_large_to_compute_with_are_an_input_error(tmp_path):
    arrays = {"mean": np.full((2, 50), 1e200), "variance": np.ones((2, 50)), "target": np.ones(50)}
    write_store(tmp_path / "a.zarr", kind="gaussian", **arrays)
    with pytest.raises(InputError, match=r"a\.zarr.*check the unit and size"):
        score(tmp_path / "a.zarr")
