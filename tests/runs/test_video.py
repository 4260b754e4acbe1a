"""`epibench video`: a sequence of images with predictions, errors and uncertainty, as frames and one animated file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fault_injection import break_second, drawn_pictures
from PIL import Image
from silent_reporter import run_in
from small_dense_recipe import SIZE, small_dense
from small_segmentation_recipe import small_segmentation

from decoded_pictures import decoded, numbers, shown_pictures
from label_files import random_values, save, save_image
from street_runs import epibench_command

RECIPES = {"segmentation": small_segmentation, "depth": small_dense}
GAP, LINE, BAR_HEIGHT = 8, 18, 8  # pixels between panels, of a line of text and of a colour bar
PANEL = (64 * 5, 32 * 5)  # width and height: as large as the smallest panel, in whole pixels
BOTH = pytest.mark.parametrize("kind", RECIPES)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """A run of each problem: three networks of an ensemble and two of MC-dropout on four wild scenes."""
    cache, runs = tmp_path_factory.mktemp("scenes"), {}
    for kind, recipe in RECIPES.items():
        path = tmp_path_factory.mktemp("runs") / kind
        runs[kind] = path, run_in(path, recipe(cache))
    return runs


@pytest.fixture
def video(finished, tmp_path: Path):
    """Make a video of a run; return messages and frames."""

    def call(kind: str, *arguments: object, out: Path = tmp_path / "video") -> tuple[str, list[Path]]:
        status, said = epibench_command("video", finished[kind][0], "--on", "wild", "--out", out, *arguments)
        assert status == 0, said
        return said, sorted(out.glob("frame-*.png"))

    return call


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def panel(path: Path, row: int, column: int) -> np.ndarray:
    """Return the picture in a panel, in the pixels of the prediction."""
    left, top = GAP + column * (PANEL[0] + GAP), GAP + LINE + row * (LINE + PANEL[1] + GAP) + LINE
    return pixels(path)[top : top + PANEL[1] : 5, left : left + PANEL[0] : 5]


@BOTH
def test_a_frame_for_each_image_and_one_animated_file(video, kind: str, tmp_path: Path) -> None:
    said, files = video(kind, "--fps", 4)
    assert [path.name for path in files] == [f"frame-{number:06d}.png" for number in range(4)]
    shapes = {pixels(path).shape for path in files}
    assert len(shapes) == 1
    height, width, _ = shapes.pop()
    assert width == GAP + 4 * (PANEL[0] + GAP)
    assert height > 2 * (LINE + PANEL[1] + GAP)  # a row for each method
    with Image.open(tmp_path / "video" / "video.webp") as animated:
        assert (animated.n_frames, animated.size) == (4, (width, height))
        for number, path in enumerate(files):
            animated.seek(number)
            np.testing.assert_array_equal(np.asarray(animated.convert("RGB")), pixels(path))
            assert animated.info["duration"] == 250
    assert f"animated: {tmp_path}/video/video.webp" in said


@BOTH
def test_the_whole_sequence_has_the_same_scales(video, kind: str) -> None:
    _, files = video(kind)
    top = GAP + LINE + 2 * (LINE + PANEL[1] + GAP)
    keys = [pixels(path)[top:] for path in files]
    assert keys[0][:BAR_HEIGHT].std() > 0
    assert all((key == keys[0]).all() for key in keys)
    assert len({pixels(path)[:top].tobytes() for path in files}) == 4


@BOTH
def test_predictions_equal_the_pictures_of_the_run(finished, kind: str, video) -> None:
    (kept,) = shown_pictures(finished[kind][0], "wild")
    with drawn_pictures() as pictures:
        video(kind)
    assert sorted({picture.image for picture in pictures}) == [0, 1, 2, 3]
    drawn = next(picture for picture in pictures if picture.image == kept.image)
    for method, wanted in kept.methods.items():
        shown = drawn.methods[method]
        assert shown.M == wanted.M == 2
        for name in ("mean", "std", "uncertainty"):
            if (grid := getattr(wanted, name)) is not None:
                np.testing.assert_allclose(numbers(getattr(shown, name)), numbers(grid), atol=0.04)
        if wanted.predicted is not None:
            assert (decoded(shown.predicted) == decoded(wanted.predicted)).mean() > 0.99


def test_classes_have_their_colours_and_errors_mark_wrong_pixels(finished, video) -> None:
    path, results = finished["segmentation"]
    (kept,) = shown_pictures(path, "wild")
    colours = np.array([*results["domains"]["clean"]["class_colours"], *[(168, 168, 168)] * (256 - 19)], np.uint8)
    _, files = video("segmentation", "--method", "ensemble", "--method", "mc_dropout")
    truth = decoded(kept.target).astype(int)
    np.testing.assert_array_equal(panel(files[kept.image], 1, 0), colours[truth])  # beside the second method
    predicted = panel(files[kept.image], 0, 1)
    wrong = (predicted != colours[truth]).any(-1)
    shown = panel(files[kept.image], 0, 2)
    labelled = truth != 255
    assert len(np.unique(shown[labelled & wrong], axis=0)) == len(np.unique(shown[labelled & ~wrong], axis=0)) == 1
    assert (shown[labelled & wrong][0] != shown[labelled & ~wrong][0]).any()
    assert (shown[~labelled] == 168).all()


def test_some_images_one_method_and_fewer_members(video, tmp_path: Path) -> None:
    _, files = video("depth", "--frames", "1:2", "--method", "mc_dropout", "--members", 1)
    assert [path.name for path in files] == ["frame-000001.png", "frame-000002.png"]
    assert pixels(files[0]).shape[0] < 2 * PANEL[1]  # one row
    with Image.open(tmp_path / "video" / "video.webp") as animated:
        assert animated.n_frames == 2
    _, files = video("depth", "--frames", 3, out=tmp_path / "first")
    assert [path.name for path in files] == [f"frame-{number:06d}.png" for number in range(3)]


def test_a_single_image(video, tmp_path: Path) -> None:
    _, files = video("depth", "--frames", 1)
    assert len(files) == 1
    with Image.open(tmp_path / "video" / "video.webp") as picture:
        assert picture.size == pixels(files[0]).shape[1::-1]


def test_existing_frames_are_not_made_again(video) -> None:
    _, files = video("depth")
    before = [path.read_bytes() for path in files]
    with drawn_pictures() as drawn:
        video("depth")
    assert drawn == []
    files[2].write_bytes(before[2][:500])
    with drawn_pictures() as drawn:
        video("depth")
    assert [picture.image for picture in drawn] == [2]
    assert [path.read_bytes() for path in files] == before
    with drawn_pictures() as drawn:
        video("depth", "--members", 1)
    assert {picture.image for picture in drawn} == {0, 1, 2, 3}
    assert all(path.read_bytes() != content for path, content in zip(files, before, strict=True))


def test_the_end_of_the_scale_can_be_given(video) -> None:
    _, files = video("depth")
    by_data = pixels(files[0])
    scales = json.loads((files[0].parent / "scales.json").read_text())
    video("depth", "--max", 50)
    assert json.loads((files[0].parent / "scales.json").read_text())["amount"] == 50
    assert scales["depth"] == json.loads((files[0].parent / "scales.json").read_text())["depth"]
    assert (pixels(files[0]) != by_data).any()


def test_a_new_domain_with_other_classes_and_sizes(finished, tmp_path: Path) -> None:
    for number, size in enumerate([SIZE, (24, 30)]):
        save_image(tmp_path / f"own/images/{number}.png", size, number)
        save(tmp_path / f"own/labels/{number}.png", random_values([0, 1, 255], size, number))
    source = {"kind": "folder", "root": str(tmp_path / "own"), "classes": ["road", "sky"]}
    setting = f"data.domains.own={json.dumps(source)}"
    status, said = epibench_command(
        "video", finished["segmentation"][0], "--on", "own", "--set", setting, "--out", tmp_path / "video"
    )
    assert status == 0, said
    first, second = sorted((tmp_path / "video").glob("frame-*.png"))
    assert pixels(first).shape == pixels(second).shape
    colours = {tuple(colour) for colour in panel(first, 0, 1).reshape(-1, 3).tolist()}
    assert 1 <= len(colours) <= 2  # one of the two common classes, or both


def test_a_network_that_diverged_and_was_left_out_is_not_shown(tmp_path: Path, monkeypatch) -> None:
    break_second(monkeypatch, "swag")
    left_out = small_dense(tmp_path / "scenes", 'methods=["swag"]', "swag.diverged=drop", "members=[1]")
    assert run_in(tmp_path / "run", left_out)["methods"]["swag"]["num_networks"] == 1
    status, said = epibench_command("video", tmp_path / "run", "--on", "wild", "--frames", 1)
    assert status == 0, said


def test_networks_without_a_fit_for_these_settings_are_refused(tmp_path: Path) -> None:
    run_in(tmp_path / "run", small_dense(tmp_path / "scenes", 'methods=["swa"]', "members=[1]"))
    status, said = epibench_command("video", tmp_path / "run", "--on", "wild", "--set", "swa.refresh_batches=1")
    assert status == 2
    assert "swa: its networks are not trained to the end with these settings" in said


def test_the_default_place_is_the_folder_of_the_run(finished, tmp_path: Path) -> None:
    run = shutil.copytree(finished["depth"][0], tmp_path / "run")
    assert epibench_command("video", run, "--on", "clean", "--frames", 2)[0] == 0
    names = sorted(path.name for path in (run / "video" / "clean").iterdir())
    assert names == ["frame-000000.png", "frame-000001.png", "scales.json", "video.webp"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--on", "moon"], "--on moon: the run has no such domain; there are clean, wild"),
        (["--on", "wild", "--method", "sgld"], "--method sgld: the run has no such method; there are ensemble, mc_dro"),
        (["--on", "wild", "--members", "9"], "members: M = 9 is impossible: a draw of ensemble has at most 3 members"),
        (["--on", "wild", "--frames", "5"], "--frames: 'wild' has images 0 to 3; give fewer"),
        (["--on", "wild", "--frames", "2:1"], "--frames 2:1: no image is between"),
        (["--on", "wild", "--frames", "all"], "--frames all: give a number of images, as 50, or"),
        (["--on", "wild", "--frames", "0"], "--frames 0: no image is between"),
        (["--on", "wild", "--max", "0"], "--max: cannot be 0. Fix: give a number greater than 0"),
        (["--on", "wild", "--fps", "0"], "--fps: cannot be 0. Fix: give a whole number from 1 to 60"),
        (["--on", "wild", "--set", "ensemble.num_epochs=9"], "members/ensemble"),
    ],
)
def test_an_impossible_video_is_refused_in_one_line(
    finished, tmp_path: Path, arguments: list[str], message: str
) -> None:
    status, said = epibench_command("video", finished["depth"][0], "--out", tmp_path / "video", *arguments)
    assert status == 2
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "video").exists()


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    status, said = epibench_command("video", tmp_path, "--on", "wild")
    assert status == 2
    assert f"{tmp_path}" in said
