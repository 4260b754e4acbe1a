"""`epibench data check RECIPE`: all that is missing for a recipe, at once, before anything is trained."""

import json
import shutil
from collections import namedtuple

import pytest
import torch
from small_dense_recipe import small_dense
from small_segmentation_recipe import small_segmentation

from epibench.data.cityscapes_classes import label_ids
from epibench.street import StreetDataset
from label_files import random_values, save, save_image
from named_recipes import NAMES, recipe_of
from street_files import write_street

WEIGHTS = "training.class_weights=[1, 2, 3]"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("scenes")


@pytest.fixture
def check(run, tmp_path, monkeypatch):
    """Check a recipe: its status, and what is said of everything, (state, text) by what it is about."""
    monkeypatch.chdir(tmp_path)

    def call(recipe, *arguments):
        (tmp_path / "recipe.json").write_text(recipe.model_dump_json())
        status, out, err = run("data", "check", "recipe.json", *arguments)
        assert err == ""
        *lines, verdict = out.splitlines()
        told = [line.split(maxsplit=1) for line in lines if not line.startswith("Where")]
        found = {text.partition(": ")[0]: (state, text.partition(": ")[2]) for state, text in told}
        return status, found, verdict

    return call


def states(found, state):
    return [about for about, (of, _) in found.items() if of == state]


def set_all(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def test_a_complete_recipe_can_be_run(check, cache):
    status, found, verdict = check(small_segmentation(cache))
    assert status == 0
    assert verdict == "small-segmentation can be run: nothing is missing."
    assert set(found) == {
        *("data.train", "data.domains.clean", "data.domains.wild", "training.crop", "network", "training.log"),
        *("training.class_weights", "ensemble.batch_size", "mc_dropout.batch_size", "--out", "device", "disk"),
    }
    assert states(found, "ok") == list(found)
    assert found["data.domains.wild"][1].startswith("street, wild: 4 frames, 4 opened (32×64)")
    assert found["training.crop"][1] == "16×32 fits"


def test_all_problems_are_told_at_once(check, cache, tmp_path, run):
    missing = json.dumps({"kind": "cityscapes", "root": str(tmp_path / "nowhere")})
    settings = set_all(
        f"data.domains.real={missing}",
        "training.crop=[64, 64]",
        "network.backbone_weights=nowhere.pth",
        WEIGHTS,
        "mc_dropout.batch_size=1",
    )
    status, found, verdict = check(small_segmentation(cache), *settings)
    assert status == 1
    assert verdict == "small-segmentation cannot be run yet: 5 problems."
    assert {about: text for about, (state, text) in found.items() if state == "problem"} == {
        "data.domains.real": f"{tmp_path}/nowhere: folder is missing; give the one that Cityscapes was unpacked into",
        "training.crop": "a crop of 64×64 does not fit into an image of 32×64; lower training.crop, or set "
        "training.pad=true",
        "network": "nowhere.pth: no such file; backbone_weights names a .safetensors file or one of torch.save",
        "training.class_weights": "training.class_weights: 3 numbers for 19 classes; give one for each",
        "mc_dropout.batch_size": "mc_dropout.batch_size: deeplabv3 needs batches of 2 or more images "
        "for its batch norm",
    }
    assert not (tmp_path / "runs").exists()
    status, _, err = run("run", "recipe.json", *settings)
    assert status == 2
    assert err.endswith(f"epibench: {found['data.domains.real'][1]}\n")  # a run stops at the first


def test_without_training_data_the_rest_is_checked(check, cache, tmp_path):
    recipe = small_segmentation(cache, 'data.train={"kind": "synscapes"}', f"data.root={tmp_path}", WEIGHTS)
    status, found, _ = check(recipe)
    assert status == 1
    assert states(found, "problem") == ["data.train", "training.class_weights"]
    assert states(found, "waits") == ["training.crop"]
    assert found["training.crop"][1] == "cannot be checked without what data.train lacks"
    assert found["data.domains.wild"][0] == found["network"][0] == found["disk"][0] == "ok"


def test_it_says_where_to_get_what_is_missing(run, tmp_path):
    status, out, _ = run("data", "check", "kitti-depth", "--set", f"data.root={tmp_path}", "--out", tmp_path / "run")
    assert status == 1
    assert "Where to get it: Virtual KITTI: Naver Labs Europe\nWhere to get it: KITTI depth completion: www." in out
    missing = [line.split()[1] for line in out.splitlines() if line.startswith("problem") and "data." in line]
    assert missing == ["data.train:", "data.domains.kitti:"]


def test_broken_frames_are_found(check, cache, tmp_path):
    for number in range(12):
        save_image(tmp_path / f"own/images/{number:02d}.png", (32, 64))
        save(tmp_path / f"own/labels/{number:02d}.png", random_values([0, 1], (32, 64)))
    (tmp_path / "own/images/01.png").write_bytes(b"no picture")
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": ["road", "sky"]}
    recipe = small_segmentation(cache, f"data.domains.own={json.dumps(source)}")
    status, found, _ = check(recipe)
    assert status == 0
    assert found["data.domains.own"][1].startswith("own: 12 frames, 5 opened (32×64); 2 common classes by equal names")
    status, found, _ = check(recipe, "--all")
    assert status == 1
    assert found["data.domains.own"] == (
        "problem",
        f"{tmp_path}/own/images/01.png: is no PNG or JPEG file; unpack or download it again",
    )


def test_classes_that_have_no_place(check, cache, tmp_path):
    save_image(tmp_path / "own/images/1.png", (32, 64))
    save(tmp_path / "own/labels/1.png", random_values([0, 1], (32, 64)))
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": ["cow", "horse"]}
    status, found, _ = check(small_segmentation(cache, f"data.domains.own={json.dumps(source)}"))
    assert status == 1
    assert states(found, "problem") == ["data.domains.own"]
    assert found["data.domains.own"][1].startswith("data.domains.own.mapping: classes of the model (road, sidewalk")


def test_fewer_frames_than_published_are_worth_a_note(check, cache, tmp_path):
    write_street(StreetDataset("segmentation", "clean", length=3, size=(32, 64)), "cityscapes", tmp_path / "cityscapes")
    recipe = small_segmentation(cache, 'data.domains.real={"kind": "cityscapes"}', f"data.root={tmp_path}")
    status, found, _ = check(recipe)
    assert status == 0
    assert found["data.domains.real as published"] == (
        "note",
        "3 of 500 frames are there: all numbers will be of these alone",
    )
    _, found, _ = check(recipe, "--set", "data.domains.real.num_images=2")
    assert found["data.domains.real as published"] == ("ok", "all of 2 frames")


def test_the_published_selection_of_synscapes_must_be_whole(check, cache, tmp_path):
    for number in (1, 2):
        save_image(tmp_path / f"synscapes/img/rgb-2k/{number}.png", (32, 64))
        save(tmp_path / f"synscapes/img/class/{number}.png", label_ids()[random_values(range(19), (16, 32))])
    recipe = small_segmentation(cache, 'data.domains.new={"kind": "synscapes"}', f"data.root={tmp_path}")
    _, found, _ = check(recipe)
    assert "2,975 of the 2,975 scenes that the paper's authors selected are missing" in found["data.domains.new"][1]
    (tmp_path / "ids.txt").write_text("2\n")
    assert check(recipe, "--set", f"data.domains.new.selection={tmp_path}/ids.txt")[0] == 0


def test_a_gpu_is_recommended_where_the_recipe_is_made_for_one(check, cache, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    recipe = small_dense(cache).model_copy(update={"machine": "a GPU", "minutes": 1860})
    status, found, _ = check(recipe)
    assert status == 0
    assert found["device"][0] == "note"
    assert "the recipe is made for a GPU (about 31 h there)" in found["device"][1]
    assert "training.class_weights" not in found


def test_too_little_room(check, cache, tmp_path, monkeypatch):
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(2_000_000))
    status, found, _ = check(small_dense(cache), "--out", tmp_path / "new" / "run")
    assert status == 1
    assert states(found, "problem") == ["disk"]
    text = found["disk"][1]
    assert text.startswith("disk: about ")
    assert text.endswith(" MB), 2 MB are free. Fix: give another --out, or make room.")
    assert "networks" in text


def test_stored_predictions_take_room(check, cache):
    _, found, _ = check(small_dense(cache, "evaluation.store=true"))
    # Members, images, pixels, mean and variance in float32.
    assert f"predictions {7 * 9 * 32 * 64 * 2 * 4 / 1e6:.0f} MB" in found["disk"][1]
    assert "predictions" not in check(small_dense(cache))[1]["disk"][1]


def test_a_folder_that_a_run_would_refuse(check, cache, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "notes.txt").write_text("mine")
    status, found, verdict = check(small_segmentation(cache), "--out", tmp_path / "there")
    assert status == 1
    assert found["--out"] == ("problem", f"--out {tmp_path / 'there'} is not empty and holds no run: give a new folder")
    assert verdict.endswith("1 problem.")


@pytest.mark.parametrize(("tested", "shared"), [((5, 6), 0), ((2, 5), 1)])
def test_images_that_are_trained_on_are_told(check, tmp_path, tested, shared):
    write_street(StreetDataset("depth", "clean", 6, seed=3, size=(64, 128)), "synscapes", tmp_path / "synscapes")
    for name, ids in (("train", (1, 2, 3, 4)), ("val", tested)):
        (tmp_path / f"{name}.txt").write_text("".join(f"{number}\n" for number in ids))
    settings = set_all(
        *(f"data.root={tmp_path}", f"data.train.selection={tmp_path}/train.txt", "training.crop=[32, 32]"),
        *(f"data.domains.synscapes.selection={tmp_path}/val.txt", "network.backbone_weights=null", "network.width=8"),
    )
    _, found, _ = check(recipe_of("cityscapes-segmentation"), *settings)
    state, text = found["data.domains.synscapes apart"]
    told = f"{shared} of its 2 images are trained on, too; give another selection or split"
    assert (state, text) == (("note", told) if shared else ("ok", "none of its images is trained on"))


def test_a_toy_recipe_with_its_reference(run, tmp_path):
    status, out, _ = run("data", "check", "toy-regression")
    assert status == 0
    assert "ok       data: 1,000 points\nok       reference: shipped: fits\n" in out
    assert "note     convergence: NOT converged: R-hat ≤ 1.05 at 33 % of points (goal 95 %). Fix: " in out
    status, out, _ = run("data", "check", "toy-regression", "--set", f"reference.path={tmp_path}/none.npz")
    assert status == 1
    assert f"problem  reference: {tmp_path}/none.npz" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kitti-depth", "--root", "."], "--root .: kitti-depth is a recipe; give --set data.root=FOLDER"),
        (["kitti-depth", "--images", "."], "--images .: kitti-depth is a recipe; give --set, as for epibench run"),
        (["kitti-depth", "--set", "sead=1"], "--set sead: recipe 'kitti-depth' has no such setting"),
        (["kitti", "--root", ".", "--set", "seed=1"], "--set: belongs to a recipe, and kitti is none; leave it out"),
        (["kitti", "--root", ".", "--out", "run"], "--out: belongs to a recipe, and kitti is none; leave it out"),
        (["nowhere.json"], "nowhere.json: there is no such recipe file"),
    ],
)
def test_what_does_not_belong_together(run, arguments, message):
    status, out, err = run("data", "check", *arguments)
    assert (status, out) == (2, "")
    assert err.startswith(f"epibench: {message}")


def test_no_recipe_is_called_as_a_data_set():
    from epibench.data.sets import DATA_SETS

    assert not {*DATA_SETS} & {*NAMES}
