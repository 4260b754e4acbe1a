"""A whole run of segmentation: its numbers equal brute force on its stored predictions."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from PIL import Image
from silent_reporter import run_in
from small_dense_recipe import SIZE
from small_segmentation_recipe import small_segmentation, write_scenes

import epibench
import oracles
from decoded_pictures import decoded, shown_pictures
from decoded_pictures import numbers as numbers_in
from epibench.errors import InputError
from stored_pixels import stored_arrays

STORED = "evaluation.store=true"
ONE_METHOD = 'methods=["ensemble"]'
CITYSCAPES = [
    *("road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign", "vegetation"),
    *("terrain", "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"),
]
COARSE = ["ground", "vehicle", "thing"]  # the classes of `write_scenes`


def with_networks_of(run: Path, path: Path) -> Path:
    """Copy the networks and the recipe of a run into a new folder."""
    shutil.copytree(run / "members", path / "members")
    shutil.copy(run / "recipe.json", path / "recipe.json")
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture(scope="module")
def stored(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Both methods on both domains, with all predictions of all members."""
    path = tmp_path_factory.mktemp("runs") / "stored"
    return path, run_in(path, small_segmentation(cache, STORED))


def predictions(path: Path, method: str, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Return probabilities of every member for every valid pixel, (member, pixel, class), and the true classes."""
    store = stored_arrays(path / "predictions" / method / f"{domain}.zarr")
    return probabilities(store["logits"])[:, store["valid"]], store["target"][store["valid"]]


def probabilities(logits: np.ndarray) -> np.ndarray:
    logits = logits.astype(np.float64)
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    return probs / probs.sum(-1, keepdims=True)


def entropy(probs: np.ndarray) -> np.ndarray:
    return -(probs * np.log(np.where(probs > 0, probs, 1))).sum(-1)


DRAWS = {
    "ensemble": [[0], [1], [2], [0, 1], [0, 2], [1, 2]],  # all sets of one and of two networks
    "mc_dropout": [[0], [2], [0, 1], [2, 3]],  # the first passes of each network
}


@pytest.mark.parametrize("method", ["ensemble", "mc_dropout"])
@pytest.mark.parametrize("domain", ["clean", "wild"])
def test_metrics_are_those_of_brute_force_on_stored_predictions(stored, method: str, domain: str) -> None:
    path, results = stored
    probs, target = predictions(path, method, domain)
    draws = results["draws"][method][domain]
    assert sorted(draw["members"] for draw in draws) == sorted(DRAWS[method])
    for draw in draws:
        mean, found = probs[draw["members"]].mean(0), draw["metrics"]
        brier = ((mean - np.eye(19)[target]) ** 2).sum(-1)
        assert found["miou"] == pytest.approx(oracles.miou(mean, target), rel=1e-9)
        assert found["accuracy"] == pytest.approx(oracles.accuracy(mean, target), rel=1e-9)
        assert found["ece"] == pytest.approx(oracles.ece(mean, target), rel=1e-5)
        assert found["brier"] == pytest.approx(brier.mean(), rel=1e-5)
        exact = oracles.ause(entropy(mean), brier, error="brier")
        assert abs(found["ause"] - exact) <= found["ause_bound"] + 1e-6


@pytest.mark.parametrize("method", ["ensemble", "mc_dropout"])
def test_logits_on_the_networks_grid_have_the_scores_of_whole_ones(stored, method: str) -> None:
    path, results = stored
    coarse = path / "predictions" / method / "clean.zarr"
    grid = zarr.open_group(coarse, mode="r")["logits"].shape[2:4]
    assert grid[0] * grid[1] * 16 <= SIZE[0] * SIZE[1]
    fine = stored_arrays(coarse)
    assert fine["logits"].shape[2:4] == SIZE
    how = {"members": (1, 2), "draws": 3, "plan": "random" if method == "ensemble" else "prefix"}
    first, second = (epibench.score(each, **how).scores[0] for each in (coarse, fine))
    assert first.draws == second.draws
    for ours, theirs in zip(results["draws"][method]["clean"], first.draws, strict=True):
        for name in ("brier", "nll", "ece", "miou", "accuracy"):
            assert theirs.metrics[name] == pytest.approx(ours["metrics"][name], rel=1e-6), name
    assert [picture.image for picture in first.pictures] == [0, 1, 3, 4]


@pytest.mark.parametrize("method", ["ensemble", "mc_dropout"])
@pytest.mark.parametrize("domain", ["clean", "wild"])
def test_pictures_show_classes_and_entropy_of_the_draw(stored, method: str, domain: str) -> None:
    path, results = stored
    (shown,) = shown_pictures(path, domain)
    arrays = stored_arrays(path / "predictions" / method / f"{domain}.zarr")
    members = next(draw["members"] for draw in results["draws"][method][domain] if draw["M"] == 2)
    probs, drawn = probabilities(arrays["logits"][members, shown.image]).mean(0), shown.methods[method]
    assert (drawn.image, drawn.M) == (shown.image, 2)
    assert (decoded(drawn.predicted) == probs.argmax(-1)).all()
    assert np.abs(numbers_in(drawn.uncertainty) - entropy(probs)).max() <= 1 / 512
    target = np.where(arrays["valid"][shown.image], arrays["target"][shown.image], 255)
    assert (decoded(shown.target) == target).all()


def test_results_have_names_and_colours_of_classes(stored) -> None:
    _, results = stored
    assert results["kind"] == "categorical"
    assert results["domains"]["clean"]["class_names"] == CITYSCAPES
    assert results["domains"]["clean"]["class_colours"][0] == [128, 64, 128]
    picture = results["pictures"]["clean"][0]
    assert (picture["height"], picture["width"]) == SIZE
    assert set(picture["methods"]) == {"ensemble", "mc_dropout"}


def test_whole_images_and_windows_of_their_size_are_the_same(stored, cache: Path, tmp_path: Path) -> None:
    path, results = stored
    recipe = small_segmentation(cache, "evaluation.window=[32, 64]")
    again = run_in(with_networks_of(path, tmp_path / "run"), recipe)
    assert again["summary"] == results["summary"]


def test_sliding_windows_are_averaged(stored, cache: Path, tmp_path: Path) -> None:
    """Each window is also an image of its own in a further domain."""
    path, domains = stored[0], {}
    for left in (0, 16, 32):
        write_scenes(tmp_path / f"{left}", 4, "wild", coarse=False)
        for file in (tmp_path / f"{left}").rglob("*.png"):
            Image.open(file).crop((left, 0, left + 32, 32)).save(file)
        domains[f"from{left}"] = {"kind": "folder", "root": str(tmp_path / f"{left}"), "classes": CITYSCAPES}
    settings = [f"data.domains.{name}={json.dumps(source)}" for name, source in domains.items()]
    windows = ("evaluation.window=[32, 32]", "evaluation.overlap=0.5")
    results = run_in(
        with_networks_of(path, tmp_path / "run"), small_segmentation(cache, STORED, ONE_METHOD, *windows, *settings)
    )
    logits = {
        name: stored_arrays(tmp_path / f"run/predictions/ensemble/{name}.zarr")["logits"] for name in results["domains"]
    }
    total, count = np.zeros_like(logits["wild"]), np.zeros(SIZE[1])
    for left in (0, 16, 32):
        total[..., left : left + 32, :] += logits[f"from{left}"]
        count[left : left + 32] += 1
    assert np.allclose(logits["wild"], total / count[:, None], atol=1e-4)
    assert results["summary"]["ensemble"]["wild"]["1"]["miou"]["n"] == 3


def test_a_domain_with_other_classes_is_scored_on_the_common_ones(stored, cache: Path, tmp_path: Path) -> None:
    path, _ = stored
    write_scenes(tmp_path / "own", 5)
    ground = [[name, "ground"] for name in ("road", "sidewalk", "terrain")]
    vehicle = [[name, "vehicle"] for name in CITYSCAPES[13:19]]
    thing = [[name, "thing"] for name in CITYSCAPES[2:9]]  # neither person, rider nor sky
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": COARSE}
    domains = {"own": {**source, "mapping": ground + vehicle + thing}}
    recipe = small_segmentation(cache, ONE_METHOD, f"data.domains={json.dumps(domains)}", STORED)
    results = run_in(with_networks_of(path, tmp_path / "run"), recipe)
    assert results["domains"]["own"]["class_names"] == ["ground", "thing", "vehicle"]
    # The same scenes as in `clean` of the other run: its predictions, added up by hand.
    probs, target = predictions(path, "ensemble", "clean")
    common = np.full(19, 255)
    common[[0, 1, 9]] = 0
    common[2:9] = common[11:13] = 1  # person and rider are things in these labels, whatever networks predict
    common[13:19] = 2
    merged = np.stack([probs[..., [0, 1, 9]].sum(-1), probs[..., 2:9].sum(-1), probs[..., 13:19].sum(-1)], -1)
    kept = common[target] != 255
    merged, known = merged[:, kept] / merged[:, kept].sum(-1, keepdims=True), common[target][kept]
    assert sorted(draw["members"] for draw in results["draws"]["ensemble"]["own"]) == sorted(DRAWS["ensemble"])
    for draw in results["draws"]["ensemble"]["own"]:
        mean, found = merged[draw["members"]].mean(0), draw["metrics"]
        assert found["miou"] == pytest.approx(oracles.miou(mean, known), rel=1e-6)
        assert found["ece"] == pytest.approx(oracles.ece(mean, known), rel=1e-4)
        assert found["brier"] == pytest.approx(((mean - np.eye(3)[known]) ** 2).sum(-1).mean(), rel=1e-4)


def test_class_weights_change_the_training(stored, cache: Path, tmp_path: Path) -> None:
    _, results = stored
    weights = json.dumps([5.0, *[1.0] * 18])
    again = run_in(tmp_path / "run", small_segmentation(cache, ONE_METHOD, f"training.class_weights={weights}"))
    assert again["training"]["ensemble"][0]["loss"] != results["training"]["ensemble"][0]["loss"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["training.class_weights=[1.0, 2.0]"], "training.class_weights: 2 numbers for 19 classes"),
        (["ensemble.batch_size=1"], "ensemble.batch_size: deeplabv3 needs batches of 2"),
        (['network={"kind": "deeplabv3", "backbone_weights": "there/is/none.pth"}'], "none.pth"),
    ],
)
def test_an_impossible_recipe_is_refused_in_one_line(
    cache: Path, tmp_path: Path, settings: list[str], complaint: str
) -> None:
    try:
        said = run_in(tmp_path / "run", small_segmentation(cache, *settings, ONE_METHOD))["failed"]["ensemble"]
    except InputError as error:
        said = str(error)
    assert complaint in said
    assert "\n" not in said


def test_images_of_different_sizes_are_evaluated_and_stored(stored, cache: Path, tmp_path: Path) -> None:
    path, _ = stored
    folder = tmp_path / "own"
    write_scenes(folder, 4)
    for name in ("images", "labels"):
        picture = Image.open(folder / name / "0.png")
        picture.crop((0, 0, 40, 24)).save(folder / name / "0.png")  # the first is smaller than later ones
    source = {"kind": "folder", "root": str(folder), "classes": COARSE}
    pairs = [["road", "ground"], ["car", "vehicle"], ["building", "thing"]]
    domains = {"own": {**source, "mapping": pairs}}
    recipe = small_segmentation(cache, ONE_METHOD, f"data.domains={json.dumps(domains)}", STORED)
    results = run_in(with_networks_of(path, tmp_path / "run"), recipe)
    assert results["failed"] == {}
    assert results["domains"]["own"]["num_images"] == 4
    probs, target = predictions(tmp_path / "run", "ensemble", "own")
    draw = results["draws"]["ensemble"]["own"][0]
    miou = oracles.miou(probs[draw["members"]].mean(0), target)
    assert draw["metrics"]["miou"] == pytest.approx(miou, rel=1e-9)
    assert results["domains"]["own"]["classes"].startswith("3 common classes by the given mapping; left out: ")


def test_training_data_without_a_label_is_refused(cache: Path, tmp_path: Path) -> None:
    write_scenes(tmp_path / "own", 3)
    for label in (tmp_path / "own" / "labels").iterdir():
        Image.fromarray(np.full(SIZE, 255, np.uint8)).save(label)
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": CITYSCAPES}
    recipe = small_segmentation(cache, f"data.train={json.dumps(source)}", ONE_METHOD)
    said = run_in(tmp_path / "run", recipe)["failed"]["ensemble"]
    assert "no pixel counted in the training" in said


def test_a_broken_training_image_is_no_divergence(cache: Path, tmp_path: Path) -> None:
    write_scenes(tmp_path / "own", 6, coarse=False)
    broken = tmp_path / "own" / "images" / "3.png"
    broken.write_bytes(broken.read_bytes()[:-100])
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": CITYSCAPES}
    recipe = small_segmentation(cache, f"data.train={json.dumps(source)}", ONE_METHOD, "ensemble.diverged=drop")
    results = run_in(tmp_path / "run", recipe)
    assert results["methods"] == {}
    assert list(results["failed"]) == ["ensemble"]
    assert re.match(rf"{broken}: .*truncated", results["failed"]["ensemble"])
