"""KITTI depth completion in its official layout: exact values, both cameras, and complaints that name the place."""

import os
import pickle
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import ValidationError
from torch.utils.data import DataLoader

from epibench.data.batch import stack
from epibench.data.sets.kitti import KittiSource
from epibench.errors import InputError
from epibench.street import StreetDataset
from street_files import write_street

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
DRIVES = ("2011_09_26_drive_0002_sync", "2011_09_29_drive_0026_sync")
CAMERAS = ("image_02", "image_03")
SIZE = (9, 12)
CROPPED = (6, 9)
VALUES = [0, 1, 255, 256, 65535]
CROP = KittiSource().crop


def kitti(root, split="selection", raw_root=None, **options):
    raw = None if raw_root is None else str(raw_root)
    return KittiSource(root=str(root), split=split, raw_root=raw, **options).read()


def pictures(seed, size=SIZE):
    """Image, sparse depth and target as stored; their bottom row begins with the values that matter most."""
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (*size, 3), np.uint8)
    sparse = (rng.integers(0, 2**16, size) * (rng.random(size) < 0.1)).astype(np.uint16)
    target = (rng.integers(0, 2**16, size) * (rng.random(size) < 0.4)).astype(np.uint16)
    target[-1, 2:7] = VALUES
    sparse[-1, 2:7] = VALUES[::-1]
    return image, sparse, target


def save(pixels, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def make_selection(root, size=SIZE, folder="depth_selection/val_selection_cropped"):
    seed = 0
    for drive in DRIVES:
        for number in (5, 14):
            for camera in CAMERAS:
                for kind, pixels in zip(
                    ("image", "velodyne_raw", "groundtruth_depth"), pictures(seed, size), strict=True
                ):
                    save(pixels, root / folder / kind / f"{drive}_{kind}_{number:010d}_{camera}.png")
                seed += 1
    return root


def make_drives(root, split="val", raw=""):
    """Two drives with frames 5 and 6 of both cameras; of images there are 4 to 7."""
    seed = 0
    for drive in DRIVES:
        depth = root / split / drive / "proj_depth"
        for camera in CAMERAS:
            images = root / raw / drive[:10] / drive / camera / "data"
            for number in (5, 6):
                image, sparse, target = pictures(seed)
                save(image, images / f"{number:010d}.png")
                save(sparse, depth / "velodyne_raw" / camera / f"{number:010d}.png")
                save(target, depth / "groundtruth" / camera / f"{number:010d}.png")
                seed += 1
            for number in (4, 7):
                (images / f"{number:010d}.png").touch()
    return root


def assert_holds(batch, seed, rows, columns):
    image, sparse, target = pictures(seed)
    np.testing.assert_array_equal(batch.inputs["image"].numpy(), image[rows, columns].transpose(2, 0, 1))
    np.testing.assert_array_equal(batch.inputs["sparse_depth"].double().numpy()[0] * 256, sparse[rows, columns])
    np.testing.assert_array_equal(batch.target.double().numpy() * 256, target[rows, columns])
    np.testing.assert_array_equal(batch.valid.numpy(), target[rows, columns] > 0)
    assert batch.inputs["image"].dtype == torch.uint8
    assert batch.inputs["sparse_depth"].dtype == batch.target.dtype == torch.float32


def test_the_selection(tmp_path):
    dataset = kitti(make_selection(tmp_path), crop=CROPPED)
    assert len(dataset) == 8
    assert [dataset.frame_id(index) for index in range(4)] == [
        f"{DRIVES[0]}/{camera}/{number}" for number in ("0000000005", "0000000014") for camera in CAMERAS
    ]
    for seed, batch in enumerate(dataset):
        assert_holds(batch, seed, slice(3, 9), slice(1, 10))


def test_a_selection_that_was_moved_up_is_found(tmp_path):
    assert len(kitti(make_selection(tmp_path, folder="val_selection_cropped"))) == 8


@pytest.mark.parametrize("split", ["val", "train"])
def test_drives(tmp_path, split):
    dataset = kitti(make_drives(tmp_path, split), split, crop=CROPPED)
    assert len(dataset) == 8
    assert dataset.frame_id(0) == f"{DRIVES[0]}/image_02/0000000005"
    assert dataset.frame_id(7) == f"{DRIVES[1]}/image_03/0000000006"
    for seed, batch in enumerate(dataset):
        assert_holds(batch, seed, slice(3, 9), slice(1, 10))


def test_raw_images_may_lie_elsewhere(tmp_path):
    make_drives(tmp_path / "a", raw="raw")
    assert_holds(kitti(tmp_path / "a", "val", crop=None)[7], 7, slice(None), slice(None))
    shutil.move(tmp_path / "a" / "raw", tmp_path / "b")
    assert_holds(kitti(tmp_path / "a", "val", crop=None, raw_root=tmp_path / "b")[7], 7, slice(None), slice(None))
    with pytest.raises(InputError, match=rf"image_02/data: folder is missing; get {DRIVES[0]} of KITTI raw"):
        kitti(tmp_path / "a", "val")


def test_one_camera_is_enough(tmp_path):
    make_drives(tmp_path)
    for drive in DRIVES:
        for kind in ("velodyne_raw", "groundtruth"):
            shutil.rmtree(tmp_path / "val" / drive / "proj_depth" / kind / "image_03")
    assert len(kitti(tmp_path, "val")) == 4


def test_full_size_frames_are_cropped_to_the_bottom_centre(tmp_path):
    folder = make_selection(tmp_path, (360, 1221)) / "depth_selection/val_selection_cropped/image"
    batch = kitti(tmp_path)[0]
    assert batch.target.shape == CROP == (352, 1216)
    with Image.open(sorted(folder.iterdir())[0]) as picture:
        np.testing.assert_array_equal(batch.inputs["image"].numpy().transpose(1, 2, 0), np.asarray(picture)[8:, 2:-3])


def test_samples_make_batches(tmp_path):
    dataset = kitti(make_selection(tmp_path), crop=CROPPED)
    batch = next(iter(DataLoader(dataset, batch_size=3, collate_fn=stack)))
    assert batch.inputs["sparse_depth"].shape == (3, 1, *CROPPED)
    assert torch.equal(pickle.loads(pickle.dumps(dataset))[2].target, batch.target[2])  # noqa: S301


@pytest.mark.parametrize("index", [8, -1])
def test_an_index_out_of_range(tmp_path, index):
    dataset = kitti(make_selection(tmp_path))
    for ask in (dataset.__getitem__, dataset.frame_id):
        with pytest.raises(IndexError, match=f"KITTI selection has frames 0 to 7, not {index}"):
            ask(index)
    with pytest.raises(TypeError):
        dataset[0.5]


def test_street_exports_are_read_back(tmp_path):
    scenes = StreetDataset("depth", "wild", length=2, size=(64, 128))
    write_street(scenes, "kitti", tmp_path)
    for split in ("selection", "val"):
        dataset = kitti(tmp_path, split, crop=None)
        assert len(dataset) == 2
        for batch, scene in zip(dataset, scenes, strict=True):
            assert torch.equal(batch.inputs["image"], scene.inputs["image"])
            assert torch.equal(batch.valid, scene.valid)
            assert (batch.target - scene.target).abs().max() <= 0.5 / 256


def test_constructing_opens_nothing_and_is_fast(tmp_path):
    """20,000 empty files; the whole of KITTI has 14 times as many."""
    depth, images = tmp_path / "train" / DRIVES[0] / "proj_depth", tmp_path / DRIVES[0][:10] / DRIVES[0]
    places = (images / "image_02" / "data", depth / "velodyne_raw" / "image_02", depth / "groundtruth" / "image_02")
    for place in places:
        place.mkdir(parents=True)
        for number in range(20_000 // 3):
            os.close(os.open(place / f"{number:010d}.png", os.O_CREAT))
    begun = time.perf_counter()
    dataset = kitti(tmp_path, "train")
    assert time.perf_counter() - begun < 2  # 0.05 s on a quiet machine
    assert len(dataset) == 6666
    with pytest.raises(InputError, match=r"0000000003\.png: is no PNG"):
        dataset[3]


def first(root, kind):
    return sorted((root / "depth_selection/val_selection_cropped" / kind).iterdir())[0]


def truncate(path):
    path.write_bytes(path.read_bytes()[:60])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda root: shutil.rmtree(root), ": folder is missing; give the one that KITTI"),
        (lambda root: shutil.rmtree(root / "depth_selection"), "image: folder is missing; unpack data_depth_selection"),
        (lambda root: shutil.rmtree(first(root, "image").parent), "image: folder is missing; unpack data_depth_sele"),
        (lambda root: shutil.rmtree(first(root, "velodyne_raw").parent), "velodyne_raw: folder is missing"),
        (lambda root: first(root, "velodyne_raw").unlink(), "_image_02.png: what belongs to it is missing in"),
        (lambda root: first(root, "image").unlink(), "_image_02.png: what belongs to it is missing in"),
        (lambda root: [path.rename(path.with_suffix(".jpg")) for path in root.rglob("*.png")], "no DRIVE_image_NUMBER"),
    ],
)
def test_what_is_missing_is_named_at_once(tmp_path, harm, message):
    root = make_selection(tmp_path / "kitti")
    harm(root)
    with pytest.raises(InputError) as caught:
        kitti(root)
    assert message in str(caught.value)
    assert str(root) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda root: shutil.rmtree(root / "val"), "val: folder is missing; unpack data_depth_velodyne.zip and"),
        (lambda root: [shutil.rmtree(path) for path in (root / "val").iterdir()], "val: no DRIVE/proj_depth"),
        (lambda root: [shutil.rmtree(path) for path in root.rglob("velodyne_raw")], "velodyne_raw/image_02: folder is"),
        (lambda root: next(root.rglob("groundtruth/image_02/*5.png")).unlink(), "groundtruth/image_02; unpack data_d"),
        (lambda root: next(root.rglob("velodyne_raw/image_03/*5.png")).unlink(), "velodyne_raw/image_03; unpack data"),
        (lambda root: next(root.rglob("image_02/data/*5.png")).unlink(), "image_02/data; get 2011"),
        (lambda root: shutil.rmtree(root / DRIVES[1][:10]), f"folder is missing; get {DRIVES[1]} of KITTI raw"),
    ],
)
def test_what_is_missing_of_drives_is_named_at_once(tmp_path, harm, message):
    root = make_drives(tmp_path)
    harm(root)
    with pytest.raises(InputError) as caught:
        kitti(root, "val")
    assert message in str(caught.value)
    assert str(root) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "harm", "message"),
    [
        ("image", truncate, "is broken or truncated"),
        ("velodyne_raw", truncate, "is broken or truncated"),
        ("groundtruth_depth", truncate, "is broken or truncated"),
        ("groundtruth_depth", lambda path: save(np.zeros(SIZE, np.uint8), path), "is no 16-bit grey PNG"),
        ("velodyne_raw", lambda path: save(np.zeros((9, 13), np.uint16), path), "is 9×13, but "),
        ("image", lambda path: save(np.zeros((9, 13, 3), np.uint8), path), "is 9×13; give files of one frame"),
    ],
)
def test_a_bad_file_is_named_when_it_is_read(tmp_path, kind, harm, message):
    path = first(make_selection(tmp_path), kind)
    harm(path)
    dataset = kitti(tmp_path, crop=None)
    with pytest.raises(InputError) as caught:
        dataset[0]
    assert str(path) in str(caught.value)
    assert message in str(caught.value)
    dataset[1]


def test_a_frame_smaller_than_the_crop_is_named(tmp_path):
    with pytest.raises(InputError, match=r"_image_02\.png: is 9×12, smaller than the crop 352×1216"):
        kitti(make_selection(tmp_path))[0]


def test_an_unknown_split_is_named(tmp_path):
    with pytest.raises(ValidationError, match="split"):
        kitti(tmp_path, "test")


def test_real_frames():
    root = SHARED / "kitti_depth"
    if not root.is_dir():
        pytest.skip("the 13 real KITTI frames are not beside this checkout")
    dataset = kitti(root)
    assert len(dataset) == 13
    for batch in (dataset[0], dataset[12]):
        sparse = batch.inputs["sparse_depth"][0]
        assert batch.target.shape == sparse.shape == CROP
        for depth in (sparse, batch.target):
            assert 0.015 < (depth > 0).double().mean() < 0.025
            assert 1 < depth[depth > 0].min() < depth.max() < 90
        # Half of the points of one scan each: near points of the other half have about the same depth.
        both = torch.nn.functional.max_pool2d(sparse[None], 3, 1, 1)[0]
        near = (both > 0) & batch.valid
        assert (both - batch.target)[near].abs().median() < 0.5


def test_a_genuine_frame_of_the_full_data_set(tmp_path):
    source = SHARED / "kitti_official_frame"
    if not source.is_dir():
        pytest.skip("the genuine frame of KITTI depth completion is not beside this checkout")
    depth, name = tmp_path / "val" / DRIVES[0] / "proj_depth", "0000000005.png"
    for camera in CAMERAS:
        for place, file in (
            (depth / "velodyne_raw" / camera, f"velodyne_raw_{camera}.png"),
            (depth / "groundtruth" / camera, f"groundtruth_{camera}.png"),
            (tmp_path / DRIVES[0][:10] / DRIVES[0] / camera / "data", "test_image.png"),
        ):
            place.mkdir(parents=True)
            shutil.copy(source / file, place / name)
    dataset = kitti(tmp_path, "val")
    assert len(dataset) == 2
    assert kitti(tmp_path, "val", crop=None)[0].target.shape == (375, 1242)
    for batch in dataset:
        assert batch.target.shape == CROP
        sparse = batch.inputs["sparse_depth"][0]
        assert 0.03 < (sparse > 0).double().mean() < 0.06
        assert 0.15 < batch.valid.double().mean() < 0.35
        both = (sparse > 0) & batch.valid
        assert (sparse - batch.target)[both].abs().median() < 0.1
