"""Models that give an uncertainty but no distribution are scored on ranking alone, in both directions."""

import re

import numpy as np
import pytest

import epibench
import oracles
from epibench.errors import InputError
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.members.stored import validate
from epibench.store import StoreWriter, open_store, write_store

SHAPE = (4, 10, 25)
NUM_MEMBERS = 3
CLASSES = ["road", "sky", "car"]


def values(scale=lambda noise: noise):
    """Values whose noise is known; scale: from its std to what a model says of it."""
    rng = np.random.default_rng(5)
    noise = rng.gamma(1.0, 1.0, SHAPE)
    target = 10 + rng.normal(size=SHAPE)
    mean = target + noise * rng.normal(size=(NUM_MEMBERS, *SHAPE))
    said = scale(noise) + 0.05 * rng.normal(size=mean.shape)
    return {"mean": mean, "target": target, "valid": rng.random(SHAPE) < 0.9}, said


def classes():
    rng = np.random.default_rng(6)
    target = rng.integers(0, 3, SHAPE)
    doubt = rng.random(SHAPE)
    wrong = rng.random((NUM_MEMBERS, *SHAPE)) < doubt
    predicted = np.where(wrong, rng.integers(0, 3, wrong.shape), target)
    return {"predicted": predicted, "target": target, "class_names": CLASSES}, doubt[None].repeat(NUM_MEMBERS, 0)


def scored(path, **settings):
    return prepare(open_store(path), ScoreSettings(**settings)).run().score


def page_of(folder, *stores, **options):
    epibench.score(*stores, report=folder / "page", device="cpu", **options)
    page = (folder / "page" / "score.html").read_text(encoding="utf-8").replace("\u00a0", " ")
    return re.sub(r"<style>.*?</style>|<dt>stored.*?</dd>|class=\".*?\"", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("name", ["uncertainty", "confidence"])
def test_both_directions_equal_brute_force(tmp_path, name):
    arrays, said = values(scale=lambda noise: np.log(noise))  # of both signs
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, **{name: said})
    valid, sign = arrays["valid"], 1 if name == "uncertainty" else -1
    for draw in scored(tmp_path / "a.zarr").draws:
        mean, given = arrays["mean"][draw.members].mean(0)[valid], sign * said[draw.members].mean(0)[valid]
        target = arrays["target"][valid]
        loss = (target - mean) ** 2
        shifted = given - given.min()  # the oracle wants what is not negative
        expected = {"rmse": oracles.rmse(mean, target), "mae": oracles.mae(mean, target)}
        assert {key: draw.metrics[key] for key in expected} == pytest.approx(expected, rel=1e-9)
        for key, order in (("ause", shifted), ("ause_inverted", shifted.max() - shifted)):
            assert abs(draw.metrics[key] - oracles.ause(order, loss)) <= draw.metrics[f"{key}_bound"] < 0.2


def test_nothing_that_needs_a_distribution_is_reported(tmp_path):
    arrays, said = values()
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, uncertainty=said)
    result = scored(tmp_path / "a.zarr")
    assert not [
        name for name in result.draws[0].metrics if name.startswith(("nll", "crps", "auce", "ence", "interval"))
    ]
    assert set(result.curves) == {"sparsification"}
    page = page_of(tmp_path, tmp_path / "a.zarr")
    assert "Over- or under-confident" not in page


def test_an_inverted_confidence_is_told(tmp_path):
    arrays, said = values()
    write_store(tmp_path / "wrong.zarr", kind="ranking", **arrays, confidence=said)
    write_store(tmp_path / "right.zarr", kind="ranking", **arrays, uncertainty=said)
    wrong, right = scored(tmp_path / "wrong.zarr"), scored(tmp_path / "right.zarr")
    (note,) = [note for note in wrong.notes if "inverted" in note]
    ause, inverted = (wrong.summary[NUM_MEMBERS][name].mean for name in ("ause", "ause_inverted"))
    assert inverted < ause
    assert f"Its confidence is inverted: at M = 3, AUSE {ause:.3g} as given, {inverted:.3g} inverted" in note
    straight = right.summary[NUM_MEMBERS]
    bound = straight["ause_bound"].mean + wrong.summary[NUM_MEMBERS]["ause_inverted_bound"].mean
    assert abs(straight["ause"].mean - inverted) <= bound < 0.05
    assert not [note for note in right.notes if "inverted" in note]
    page = page_of(tmp_path, tmp_path / "wrong.zarr", tmp_path / "right.zarr")
    assert "is inverted at M = 3" in page
    assert "points the right way at M = 3" in page


def test_an_uncertainty_that_knows_nothing_is_not_called_inverted(tmp_path):
    arrays, said = values()
    said = np.random.default_rng(1).normal(size=said.shape)
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, uncertainty=said)
    result = scored(tmp_path / "a.zarr")
    assert not [note for note in result.notes if "inverted" in note]
    assert "does not tell large errors from small ones" in page_of(tmp_path, tmp_path / "a.zarr")


def test_the_spread_of_members_can_be_asked_for(tmp_path):
    arrays, said = values()
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, uncertainty=said)
    result = scored(tmp_path / "a.zarr", sizes=(3,), uncertainty="spread")
    mean, valid = arrays["mean"], arrays["valid"]
    loss = (arrays["target"] - mean.mean(0))[valid] ** 2
    expected = oracles.ause(mean.var(0)[valid], loss)
    assert abs(result.summary[3]["ause"].mean - expected) <= result.summary[3]["ause_bound"].mean < 0.01
    assert result.settings["uncertainty"] == "spread"


def test_one_of_several_maps_can_be_chosen(tmp_path):
    arrays, said = values()
    maps = np.stack([said, -said], -1)
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, uncertainty=maps, uncertainty_names=["head", "edge"])
    write_store(tmp_path / "b.zarr", kind="ranking", **arrays, uncertainty=-said)
    edge = scored(tmp_path / "a.zarr", uncertainty="edge")
    assert (edge.settings["uncertainty"], edge.summary) == ("edge", scored(tmp_path / "b.zarr").summary)


def test_classes_are_voted_on_and_ranked(tmp_path):
    arrays, doubt = classes()
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, confidence=1 - doubt)
    result = scored(tmp_path / "a.zarr", sizes=(1, 3))
    for draw in result.draws:
        votes = np.stack([(arrays["predicted"][draw.members] == label).sum(0) for label in range(3)])
        correct = votes.argmax(0) == arrays["target"]
        expected = oracles.ause(doubt[0].ravel(), 1.0 - correct.ravel(), "brier")
        assert abs(draw.metrics["ause"] - expected) <= draw.metrics["ause_bound"] < 0.05
        assert draw.metrics["accuracy"] == pytest.approx(correct.mean())
    assert epibench.score(tmp_path / "a.zarr").domains["no domain given"].class_names == CLASSES
    assert "brier" not in result.draws[0].metrics


def test_a_loop_writes_the_same_as_whole_arrays(tmp_path):
    arrays, said = values()
    maps = np.stack([said, 2 * said], -1)
    names = {"uncertainty_names": ["one", "two"]}
    options = {"num_members": NUM_MEMBERS, "num_images": SHAPE[0], "dtype": "float64"}
    with StoreWriter(tmp_path / "loop.zarr", kind="ranking", **options, **names) as store:
        for image in range(SHAPE[0]):
            store.write_target(image, arrays["target"][image], arrays["valid"][image])
            for member in range(NUM_MEMBERS):
                store.write(member, image, mean=arrays["mean"][member, image], uncertainty=maps[member, image])
    write_store(tmp_path / "whole.zarr", kind="ranking", **arrays, uncertainty=maps, **names)
    first, second = (scored(tmp_path / f"{name}.zarr", uncertainty="two") for name in ("loop", "whole"))
    assert first.summary == second.summary


def test_a_loop_writes_classes(tmp_path):
    arrays, doubt = classes()
    options = {"num_members": NUM_MEMBERS, "num_images": SHAPE[0], "dtype": "float64", "class_names": CLASSES}
    with StoreWriter(tmp_path / "loop.zarr", kind="ranking", **options) as store:
        for image in range(SHAPE[0]):
            store.write_target(image, arrays["target"][image])
            for member in range(NUM_MEMBERS):
                outputs = {"predicted": arrays["predicted"][member, image], "confidence": doubt[member, image]}
                store.write(member, image, **outputs)
    write_store(tmp_path / "whole.zarr", kind="ranking", **arrays, confidence=doubt)
    assert scored(tmp_path / "loop.zarr").summary == scored(tmp_path / "whole.zarr").summary


def test_an_npz_tells_its_kind_by_its_names(tmp_path):
    arrays, said = values()
    np.savez(tmp_path / "a.npz", **arrays, confidence=said)
    assert open_store(tmp_path / "a.npz").kind == "ranking"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"confidence": None}, "no array 'uncertainty'"),
        ({"uncertainty": ...}, "both 'uncertainty' and 'confidence'"),
        ({"uncertainty_names": ["a"]}, "1 uncertainty_names for"),
        ({"mean": None}, "no array 'mean'"),
    ],
)
def test_what_is_missing_or_too_much_is_named(tmp_path, change, message):
    arrays, said = values()
    given = {**arrays, "confidence": said, **{key: said if each is Ellipsis else each for key, each in change.items()}}
    with pytest.raises(InputError, match=message):
        write_store(tmp_path / "a.zarr", kind="ranking", **given)


def test_maps_without_names_are_refused(tmp_path):
    arrays, said = values()
    with pytest.raises(InputError, match="no uncertainty_names for"):
        write_store(tmp_path / "a.zarr", kind="ranking", **arrays, confidence=said[..., None])


def test_classes_need_their_names_and_must_be_among_them(tmp_path):
    arrays, doubt = classes()
    with pytest.raises(InputError, match="'predicted' without class_names"):
        write_store(tmp_path / "a.zarr", kind="ranking", **{**arrays, "class_names": None}, confidence=doubt)
    arrays["predicted"][1, 2, 3, 4] = 7
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, confidence=doubt)
    with pytest.raises(InputError, match="predicted 7 at member 1, image 2, row 3, column 4 is none of the 3 classes"):
        validate(open_store(tmp_path / "a.zarr"))


def test_an_unknown_uncertainty_names_those_that_are_there(tmp_path):
    arrays, said = values()
    write_store(tmp_path / "a.zarr", kind="ranking", **arrays, confidence=said)
    with pytest.raises(InputError, match="uncertainty 'total' is not in this store; it has confidence, spread"):
        prepare(open_store(tmp_path / "a.zarr"), ScoreSettings(uncertainty="total"))
