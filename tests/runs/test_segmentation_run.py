"""A whole run of segmentation: its numbers are those of brute force on the predictions that it stores."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zarr
from PIL import Image
from safetensors.torch import load_file
from silent_reporter import run_in
from small_dense_recipe import SIZE
from small_segmentation_recipe import small_segmentation

import oracles
from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.errors import InputError
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.members.draws import make_draws
from epibench.members.stored import refined
from epibench.recipes.dense import DenseRecipe
from epibench.runs.folder import RunFolder
from epibench.runs.observers import CoarseGrid
from epibench.store import open_store, write_store
from epibench.street import StreetDataset

STORED = "evaluation.store=true"


def carry_out(recipe: DenseRecipe, path: Path, trained: Path | None = None) -> dict[str, Any]:
    """The results of a run; trained: another run, whose networks are those that this one would train."""
    if trained is not None:
        RunFolder(path).claim(recipe)
        shutil.copytree(trained / "members", path / "members")
    return run_in(path, recipe)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture(scope="module")
def stored(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Both methods on both domains, with everything that members predict."""
    path = tmp_path_factory.mktemp("runs") / "stored"
    return path, carry_out(small_segmentation(cache, STORED), path)


def predictions(path: Path, method: str, domain: str) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of every member for every valid pixel, (member, pixel, class), and the true classes."""
    store = whole_arrays(path / "predictions" / method / f"{domain}.zarr")
    valid, logits = store["valid"], store["logits"].astype(np.float64)
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    return probs[:, valid], store["target"][valid]


def whole_arrays(path: Path) -> dict[str, np.ndarray]:
    """All that a store holds, logits as fine as the targets."""
    arrays = refined(open_store(path)).arrays
    return {name: source.read(tuple(slice(0, length) for length in source.shape)) for name, source in arrays.items()}


def entropy(probs: np.ndarray) -> np.ndarray:
    return -(probs * np.log(np.where(probs > 0, probs, 1))).sum(-1)


def members_of(method: str) -> list[tuple[int, ...]]:
    """The draws of the small recipe."""
    if method == "ensemble":
        return make_draws(3, (1, 2), plan="random", max_draws=3, seed=0).sets
    return make_draws(4, (1, 2), plan="prefix", max_draws=3, seed=0, group=(0, 0, 1, 1)).sets


@pytest.mark.parametrize("method", ["ensemble", "mc_dropout"])
@pytest.mark.parametrize("domain", ["clean", "wild"])
def test_metrics_are_those_of_brute_force_on_stored_predictions(stored, method: str, domain: str) -> None:
    path, results = stored
    probs, target = predictions(path, method, domain)
    draws = results["draws"][method][domain]
    assert len(draws) == len(members_of(method)) > 3
    for draw, members in zip(draws, members_of(method), strict=True):
        mean, found = probs[list(members)].mean(0), draw["metrics"]
        brier = ((mean - np.eye(19)[target]) ** 2).sum(-1)
        assert found["miou"] == pytest.approx(oracles.miou(mean, target), rel=1e-9)
        assert found["accuracy"] == pytest.approx(oracles.accuracy(mean, target), rel=1e-9)
        assert found["ece"] == pytest.approx(oracles.ece(mean, target), rel=1e-5)
        assert found["brier"] == pytest.approx(brier.mean(), rel=1e-5)
        exact = oracles.ause(entropy(mean), brier, error="brier")
        assert abs(found["ause"] - exact) <= found["ause_bound"] + 1e-6


@pytest.mark.parametrize("method", ["ensemble", "mc_dropout"])
def test_logits_are_stored_on_the_networks_own_grid_and_score_the_same(stored, tmp_path: Path, method: str) -> None:
    path, results = stored
    coarse = path / "predictions" / method / "clean.zarr"
    grid = zarr.open_group(coarse, mode="r")["logits"].shape[2:4]
    assert grid[0] * grid[1] * 16 <= SIZE[0] * SIZE[1]
    arrays = whole_arrays(coarse)
    write_store(tmp_path / "fine.zarr", kind="categorical", group=open_store(coarse).group, **arrays)
    settings = ScoreSettings(sizes=(1, 2), max_draws=3, plan="random" if method == "ensemble" else "prefix")
    first, second = (prepare(open_store(each), settings).run().score for each in (coarse, tmp_path / "fine.zarr"))
    assert first.draws == second.draws
    for ours, theirs in zip(results["draws"][method]["clean"], first.draws, strict=True):
        for name in ("brier", "nll", "ece", "miou", "accuracy"):
            assert theirs.metrics[name] == pytest.approx(ours["metrics"][name], rel=1e-6), name
    assert [picture.image for picture in first.pictures] == [0, 1, 3, 4]


def test_the_largest_grid_has_room_for_the_largest_image() -> None:
    assert CoarseGrid((24, 40), (3, 5), True).largest((24, 40)) == (3, 5)
    height, width = CoarseGrid((24, 40), (3, 5), True).largest((33, 64))
    assert height >= 5
    assert width >= 8


def test_results_say_what_the_classes_are_and_look_like(stored) -> None:
    _, results = stored
    assert results["kind"] == "categorical"
    assert results["domains"]["clean"]["class_names"] == list(CITYSCAPES_TRAIN_IDS.names)
    assert results["domains"]["clean"]["class_colours"][0] == [128, 64, 128]
    picture = results["pictures"]["clean"][0]
    assert (picture["height"], picture["width"]) == SIZE
    assert set(picture["methods"]) == {"ensemble", "mc_dropout"}


def test_whole_images_and_windows_of_their_size_are_the_same(stored, cache: Path, tmp_path: Path) -> None:
    path, results = stored
    again = carry_out(small_segmentation(cache, "evaluation.window=[32, 64]"), tmp_path / "run", path)
    assert again["summary"] == results["summary"]


def test_sliding_windows_are_averaged(stored, cache: Path, tmp_path: Path) -> None:
    path, _ = stored
    recipe = small_segmentation(
        cache, STORED, "evaluation.window=[32, 32]", "evaluation.overlap=0.5", 'methods=["ensemble"]'
    )
    results = carry_out(recipe, tmp_path, path)
    store = zarr.open_group(tmp_path / "predictions" / "ensemble" / "wild.zarr", mode="r")
    network = recipe.builder(19)().eval()
    weights = next((tmp_path / "members" / "ensemble").glob("0001.safetensors"))
    saved = load_file(weights)
    network.load_state_dict({name: saved[key] for name in network.state_dict() for key in saved if key.endswith(name)})
    image = StreetDataset("segmentation", "wild", 4, 1, SIZE)[2].inputs["image"]
    total, count = torch.zeros(19, *SIZE), torch.zeros(SIZE)
    with torch.inference_mode():
        for left in (0, 16, 32):
            coarse = network({"image": image[None, :, :, left : left + 32]})
            fine = torch.nn.functional.interpolate(coarse, (32, 32), mode="bilinear", align_corners=True)[0]
            total[..., left : left + 32] += fine
            count[..., left : left + 32] += 1
    expected = (total / count).movedim(0, -1).numpy()
    assert np.allclose(store["logits"][1, 2], expected, atol=1e-4)
    assert results["summary"]["ensemble"]["wild"]["1"]["miou"]["n"] == 3


def write_folder(folder: Path, num_images: int = 3) -> None:
    """Street scenes with coarser classes in files: 0 ground, 1 vehicle, 2 thing, 255 none."""
    ids = np.full(256, 2, np.uint8)
    ids[[0, 1, 9]] = 0
    ids[13:19] = 1
    ids[[10, 255]] = 255
    samples = StreetDataset("segmentation", "clean", num_images, 1, SIZE)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True)
    for index in range(num_images):
        sample = samples[index]
        Image.fromarray(sample.inputs["image"].movedim(0, -1).numpy()).save(folder / "images" / f"{index}.png")
        Image.fromarray(ids[sample.target.numpy()]).save(folder / "labels" / f"{index}.png")


def test_a_domain_with_other_classes_is_scored_on_the_common_ones(stored, cache: Path, tmp_path: Path) -> None:
    path, _ = stored
    write_folder(tmp_path / "own", 5)
    ground = [[name, "ground"] for name in ("road", "sidewalk", "terrain")]
    vehicle = [[name, "vehicle"] for name in CITYSCAPES_TRAIN_IDS.names[13:19]]
    thing = [[name, "thing"] for name in CITYSCAPES_TRAIN_IDS.names[2:9]]  # neither person, rider nor sky
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": ["ground", "vehicle", "thing"]}
    domains = {"own": {**source, "mapping": ground + vehicle + thing}}
    recipe = small_segmentation(cache, 'methods=["ensemble"]', f"data.domains={json.dumps(domains)}", STORED)
    results = carry_out(recipe, tmp_path / "run", path)
    assert results["domains"]["own"]["class_names"] == ["ground", "thing", "vehicle"]
    # The same scenes as in `clean` of the other run: its predictions, added up by hand.
    probs, target = predictions(path, "ensemble", "clean")
    common = np.full(19, 255)
    common[[0, 1, 9]] = 0
    common[2:9] = common[11:13] = 1  # person and rider are things in these labels, whatever networks may say
    common[13:19] = 2
    merged = np.stack([probs[..., [0, 1, 9]].sum(-1), probs[..., 2:9].sum(-1), probs[..., 13:19].sum(-1)], -1)
    kept = common[target] != 255
    merged, known = merged[:, kept] / merged[:, kept].sum(-1, keepdims=True), common[target][kept]
    for draw, members in zip(results["draws"]["ensemble"]["own"], members_of("ensemble"), strict=True):
        mean, found = merged[list(members)].mean(0), draw["metrics"]
        assert found["miou"] == pytest.approx(oracles.miou(mean, known), rel=1e-6)
        assert found["ece"] == pytest.approx(oracles.ece(mean, known), rel=1e-4)
        assert found["brier"] == pytest.approx(((mean - np.eye(3)[known]) ** 2).sum(-1).mean(), rel=1e-4)


def test_classes_that_count_more_change_what_is_learnt(stored, cache: Path, tmp_path: Path) -> None:
    _, results = stored
    weights = json.dumps([5.0, *[1.0] * 18])
    again = carry_out(small_segmentation(cache, f"training.class_weights={weights}"), tmp_path / "run")
    assert again["training"]["ensemble"][0]["loss"] != results["training"]["ensemble"][0]["loss"]


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["training.class_weights=[1.0, 2.0]"], "training.class_weights: 2 numbers for 19 classes"),
        (["ensemble.batch_size=1"], "ensemble.batch_size: deeplabv3 needs batches of 2"),
        (['network={"kind": "deeplabv3", "backbone_weights": "there/is/none.pth"}'], "none.pth"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(cache: Path, tmp_path: Path, settings: list[str], complaint: str) -> None:
    try:
        said = carry_out(small_segmentation(cache, *settings, 'methods=["ensemble"]'), tmp_path / "run")["failed"][
            "ensemble"
        ]
    except InputError as error:
        said = str(error)
    assert complaint in said
    assert "\n" not in said


def test_images_of_different_sizes_are_evaluated_and_stored(stored, cache: Path, tmp_path: Path) -> None:
    path, _ = stored
    folder = tmp_path / "own"
    write_folder(folder, 4)
    for name in ("images", "labels"):
        picture = Image.open(folder / name / "2.png")
        picture.crop((0, 0, 40, 24)).save(folder / name / "2.png")
    source = {"kind": "folder", "root": str(folder), "classes": ["ground", "vehicle", "thing"]}
    pairs = [["road", "ground"], ["car", "vehicle"], ["building", "thing"]]
    domains = {"own": {**source, "mapping": pairs}}
    recipe = small_segmentation(cache, 'methods=["ensemble"]', f"data.domains={json.dumps(domains)}", STORED)
    results = carry_out(recipe, tmp_path / "run", path)
    assert results["failed"] == {}
    assert results["domains"]["own"]["num_images"] == 4
    probs, target = predictions(tmp_path / "run", "ensemble", "own")
    draw = results["draws"]["ensemble"]["own"][0]
    (members,) = members_of("ensemble")[:1]
    assert draw["metrics"]["miou"] == pytest.approx(oracles.miou(probs[list(members)].mean(0), target), rel=1e-9)
    assert results["domains"]["own"]["classes"].startswith("3 common classes by the given mapping; left out: ")


def test_training_data_without_a_label_is_refused(cache: Path, tmp_path: Path) -> None:
    write_folder(tmp_path / "own", 3)
    for label in (tmp_path / "own" / "labels").iterdir():
        Image.fromarray(np.full(SIZE, 255, np.uint8)).save(label)
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": list(CITYSCAPES_TRAIN_IDS.names)}
    recipe = small_segmentation(cache, f"data.train={json.dumps(source)}", 'methods=["ensemble"]')
    said = carry_out(recipe, tmp_path / "run")["failed"]["ensemble"]
    assert "no pixel counted in the training" in said
