"""Sheets and folders: read back exactly, in the official layouts."""

import re

import numpy as np
import pytest
from PIL import Image

from epibench.cli import app
from epibench.data.cityscapes_classes import CITYSCAPES
from epibench.data.sets.synscapes import SynscapesSource
from epibench.data.sets.virtual_kitti import VirtualKittiSource
from epibench.data.source import Folders
from epibench.errors import InputError
from epibench.preparing import export_scenes, preview
from epibench.street import StreetDataset
from epibench.street.export import export, parse_size

SIZE = (64, 128)
COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


@pytest.fixture(scope="module")
def dataset():
    return StreetDataset("depth", "wild", length=2, seed=3, size=SIZE)


def run_preview(name, out, domain, severity, size, seed, count):
    preview(name, out, domain=domain, severity=severity, size=size, seed=seed, count=count, progress=True)


def run_export(name, layout, out, domain, severity, count, size, seed):
    options = {"domain": domain, "severity": severity, "count": count, "size": size, "seed": seed}
    export_scenes(name, layout, out, **options, progress=True)


def read(path):
    with Image.open(path) as picture:
        return np.asarray(picture)


def test_cityscapes(dataset, tmp_path):
    assert list(export(dataset, "cityscapes", tmp_path)) == [0, 1]
    frame = dataset.frame(1)
    stem = "street_000001_000019"
    np.testing.assert_array_equal(read(tmp_path / f"leftImg8bit/val/street/{stem}_leftImg8bit.png"), frame.image)
    labels = tmp_path / "gtFine/val/street"
    np.testing.assert_array_equal(read(labels / f"{stem}_gtFine_labelTrainIds.png"), frame.labels)
    label_ids = read(labels / f"{stem}_gtFine_labelIds.png")
    for train_id, street_class in enumerate(CITYSCAPES):
        assert ((label_ids == street_class.label_id) == (frame.labels == train_id)).all()
    assert read(labels / f"{stem}_gtFine_color.png").shape == (*SIZE, 3)
    assert len(list(tmp_path.rglob("*.png"))) == 8


def test_kitti(dataset, tmp_path):
    assert list(export(dataset, "kitti", tmp_path)) == [0, 1]
    frame = dataset.frame(1)
    drive = "2011_09_26_drive_9999_sync"
    selection = tmp_path / "depth_selection/val_selection_cropped"
    for depth, places in (
        (frame.sparse_depth, (f"velodyne_raw/{drive}_velodyne_raw_0000000001_image_02.png", "velodyne_raw")),
        (frame.target_depth, (f"groundtruth_depth/{drive}_groundtruth_depth_0000000001_image_02.png", "groundtruth")),
    ):
        for path in (selection / places[0], tmp_path / f"val/{drive}/proj_depth/{places[1]}/image_02/0000000001.png"):
            with Image.open(path) as picture:
                assert picture.mode == "I;16"
            bits = read(path)
            np.testing.assert_array_equal(bits, np.round(depth.astype(np.float64) * 256))
            assert ((bits > 0) == (depth > 0)).all()
    for path in (
        selection / f"image/{drive}_image_0000000001_image_02.png",
        tmp_path / f"2011_09_26/{drive}/image_02/data/0000000001.png",
    ):
        np.testing.assert_array_equal(read(path), frame.image)
    matrix = np.loadtxt(selection / f"intrinsics/{drive}_image_0000000001_image_02.txt").reshape(3, 3)
    assert matrix[0, 0] == pytest.approx(721.5377 * 128 / 1242)
    np.testing.assert_allclose(matrix, frame.camera.matrix, atol=1e-5)


def test_commands(tmp_path, capsys):
    run_preview("street", tmp_path / "sheets" / "sheet.png", "night", 3, "64x128", 0, 2)
    assert read(tmp_path / "sheets" / "sheet.png").shape == (2 * 64 + 4, 5 * 128 + 4 * 4, 3)
    run_export("street", "kitti", tmp_path / "kitti", "clean", None, 1, "64x128", 0)
    assert (tmp_path / "kitti" / "val").is_dir()
    app(["data", "check", "street"], standalone_mode=False)
    assert "street wild" in capsys.readouterr().out


def test_one_scene_is_one_scene(tmp_path, capsys):
    run_preview("street", tmp_path / "sheet.png", "clean", None, "64x128", 0, 1)
    run_export("street", "kitti", tmp_path / "kitti", "clean", None, 1, "64x128", 0)
    words = " ".join(COLOURS.sub("", capsys.readouterr().err).split())  # however wide the terminal is
    assert "1 scene of street" in words
    assert "1 scene in the layout" in words


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_synscapes_layout(dataset, tmp_path):
    list(export(dataset, "synscapes", tmp_path))
    source = SynscapesSource(root=str(tmp_path), split="all")
    for number, sample in enumerate(source.open("segmentation", Folders(None, tmp_path), "data.train")):
        frame = dataset.frame(number)
        np.testing.assert_array_equal(sample.inputs["image"].permute(1, 2, 0), frame.image)
        np.testing.assert_array_equal(sample.target, frame.labels)
    assert number == 1


def test_virtual_kitti_layout(tmp_path):
    scenes = StreetDataset("depth", "clean", length=51, seed=3, size=(32, 64))
    list(export(scenes, "virtual_kitti", tmp_path))
    train, val = (
        VirtualKittiSource(root=str(tmp_path), split=split).open("depth", Folders(None, tmp_path), "data.train")
        for split in ("train", "val")
    )
    assert (len(train), len(val)) == (41, 10)  # one for each video, and a second one for the first
    assert train.frame_id(1) == "0001/15-deg-left/00001"
    frame, sample = scenes.frame(50), train[1]
    np.testing.assert_array_equal(sample.inputs["image"].permute(1, 2, 0), frame.image)
    known = (frame.depth > 0) & (frame.depth <= 79.99)
    assert sample.valid.numpy()[known].all()
    assert not sample.valid.numpy()[(frame.depth == 0) | (frame.depth > 80.01)].any()
    np.testing.assert_allclose(sample.target.numpy()[known], frame.depth[known], atol=0.00501)


@pytest.mark.parametrize("layout", ["cityscapes", "kitti", "synscapes", "virtual_kitti"])
def test_an_interrupted_export_goes_on(dataset, layout, tmp_path, monkeypatch):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    list(export(dataset, layout, whole))
    assert next(export(dataset, layout, broken)) == 0
    last = sorted(path for path in broken.rglob("*") if path.is_file())[-1]
    last.unlink()
    (last.parent / f".{last.name}.4321").write_bytes(b"half")
    list(export(dataset, layout, broken))
    assert contents(broken) == contents(whole)
    monkeypatch.setattr(StreetDataset, "frame", None)  # nothing is drawn again
    assert list(export(dataset, layout, broken)) == [0, 1]


def test_scenes_of_another_export_are_not_mixed_in(dataset, tmp_path):
    list(export(dataset, "kitti", tmp_path))
    before = contents(tmp_path)
    other = StreetDataset("depth", "wild", length=2, seed=4, size=SIZE)
    fewer = StreetDataset("depth", "wild", length=1, seed=3, size=SIZE)
    for one, layout in ((other, "kitti"), (fewer, "kitti"), (dataset, "cityscapes")):
        with pytest.raises(InputError, match="there is something already"):
            export(one, layout, tmp_path)
    assert contents(tmp_path) == before


def test_an_interrupted_sheet_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(StreetDataset, "frame", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_preview("street", tmp_path / "a.png", "clean", None, "64x128", 0, 1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["other/below", "other", "/proc/x", "long"])
def test_a_place_that_cannot_be_written_to_is_named_before_drawing(place, tmp_path, monkeypatch):
    (tmp_path / "other").touch()
    monkeypatch.setattr(StreetDataset, "frame", None)
    out = tmp_path / ("n" * 300 if place == "long" else place)
    for command in (
        lambda: run_preview("street", out / "a.png", "clean", None, "64x128", 0, 1),
        lambda: run_export("street", "kitti", out, "clean", None, 1, "64x128", 0),
    ):
        with pytest.raises(InputError) as caught:
            command()
        assert str(out.parent) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            lambda out: run_preview("streat", out / "a.png", "clean", None, "64x128", 0, 1),
            "data set 'streat' is not made",
        ),
        (
            lambda out: run_preview("street", out / "a.png", "clean", None, "64x128", 0, 101),
            "count 101: a sheet has at most 100 scenes",
        ),
        (
            lambda out: run_preview("street", out.parent / ("n" * 300 + ".png"), "clean", None, "64x128", 0, 1),
            "cannot be written to (File name too long)",
        ),
        (lambda out: run_preview("street", out / "a.txt", "clean", None, "64x128", 0, 1), "out "),
        (
            lambda out: run_preview("street", out / "a.png", "clean", None, "64", 0, 1),
            "size '64': give height and width",
        ),
        (lambda out: run_export("street", "coco", out, "clean", None, 1, "64x128", 0), "layout 'coco' is unknown"),
        (lambda out: run_export("street", "kitti", out, "clean", 9, 1, "64x128", 0), "street severity 9"),
        (lambda out: run_export("street", "kitti", out.parent, "clean", None, 1, "64x128", 0), "there is something"),
    ],
)
def test_wrong_use_is_named(command, message, tmp_path):
    out = tmp_path / "new"
    (tmp_path / "other").touch()
    with pytest.raises(InputError) as caught:
        command(out)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not out.exists()


def test_sizes():
    assert parse_size("256x512") == parse_size("256×512") == (256, 512)
