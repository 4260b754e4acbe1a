"""`epibench data check`: what is in a folder, what is missing and where to get it."""

import shutil

import numpy as np
import pytest
from PIL import Image

from epibench.data.check import check_root
from epibench.data.street import StreetDataset
from epibench.data.street.export import export


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Three scenes in the layout of KITTI, as selection and as val."""
    root = tmp_path_factory.mktemp("kitti")
    list(export(StreetDataset("depth", "clean", length=3, size=(64, 128)), "kitti", root))
    return root


@pytest.fixture
def kitti(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "kitti")


def make_virtual_kitti(root, worlds=("0001", "0002"), variants=("clone", "fog"), frames=3):
    depth = np.full((20, 30), 1000, np.uint16)
    depth[:5] = 65535
    depth[-1] = 250
    for world in worlds:
        for variant in variants:
            for kind, pixels in (("rgb", np.zeros((20, 30, 3), np.uint8)), ("depthgt", depth)):
                folder = root / f"vkitti_1.3.1_{kind}" / world / variant
                folder.mkdir(parents=True)
                for number in range(frames):
                    Image.fromarray(pixels).save(folder / f"{number:05d}.png")
    return root


def test_kitti(run, kitti):
    status, out, err = run("data", "check", "kitti", "--root", kitti)
    assert (status, err) == (0, "")
    assert "kitti selection: 3 of 1,000 frames" in out
    assert "kitti val: 3 of 6,852 frames" in out
    assert "kitti train: 0 frames" in out
    assert "2011_09_26_drive_9999_sync/image_02/0000000001: 64×128, sparse depth in " in out
    assert f"{kitti}/train: folder is missing; unpack data_depth_velodyne.zip" in out
    assert "smaller than the usual crop 352×1216" in out
    assert "www.cvlibs.net/datasets/kitti, Depth Prediction/Completion page" in out


def test_numbers_of_a_sample(kitti):
    selection = check_root("kitti", kitti)[0]
    assert [sample.frame_id[-10:] for sample in selection.samples] == ["0000000000", "0000000001", "0000000002"]
    scene = StreetDataset("depth", "clean", length=3, size=(64, 128))[2]
    sample = selection.samples[2]
    assert sample.size == (64, 128)
    assert sample.target_share == pytest.approx(scene.valid.double().mean().item())
    assert sample.sparse_share == pytest.approx((scene.inputs["sparse_depth"] > 0).double().mean().item())
    assert sample.nearest == pytest.approx(scene.target[scene.valid].min().item(), abs=1 / 512)
    assert sample.farthest == pytest.approx(scene.target[scene.valid].max().item(), abs=1 / 512)


def test_raw_images_elsewhere(run, kitti, tmp_path):
    shutil.move(kitti / "2011_09_26", tmp_path / "raw" / "2011_09_26")
    assert "kitti val: 0 of 6,852" in run("data", "check", "kitti", "--root", kitti)[1]
    assert "kitti val: 3 of" in run("data", "check", "kitti", "--root", kitti, "--raw-root", tmp_path / "raw")[1]


def test_a_broken_file_is_told_and_the_rest_is_used(run, kitti):
    broken = sorted((kitti / "depth_selection/val_selection_cropped/velodyne_raw").iterdir())[0]
    broken.write_bytes(broken.read_bytes()[:50])
    status, out, _ = run("data", "check", "kitti", "--root", kitti)
    assert status == 0
    assert f"{broken}: is broken or truncated" in out


def test_virtual_kitti(run, tmp_path):
    status, out, err = run("data", "check", "virtual_kitti", "--root", make_virtual_kitti(tmp_path))
    assert (status, err) == (0, "")
    assert "virtual_kitti 1.3.1 train: 6 of 18,930 frames" in out
    assert "virtual_kitti 1.3.1 val: 6 of 2,330 frames" in out
    assert "0001/clone/00000: 20×30, sparse depth in 3.7%, target in 75.0% of the pixels, 2.50 to 10.00 m" in out
    assert f"{tmp_path}/vkitti_1.3.1_rgb/0001/15-deg-left: folder is missing; unpack vkitti_1.3.1_rgb.tar" in out
    assert "… and 35 more" in out  # 4 worlds of 10 variants, less two videos, less three that are named
    assert "Virtual KITTI: Naver Labs Europe" in out


def test_a_whole_data_set_has_nothing_to_get(run, kitti, monkeypatch):
    monkeypatch.setattr("epibench.data.check.KITTI_FRAMES", {"selection": 3, "val": 3, "train": None})
    monkeypatch.setattr("epibench.data.check.CROP", (64, 128))
    shutil.copytree(kitti / "val", kitti / "train")
    _, out, _ = run("data", "check", "kitti", "--root", kitti)
    assert [line for line in out.splitlines() if "frames" in line] == [
        f"kitti {split}: 3 frames" for split in ("selection", "val", "train")
    ]
    assert "Where to get it" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kitti"], "--root is missing; give the folder that kitti was unpacked into (KITTI depth completion: www."),
        (["kitti", "--root", "."], ".: nothing of kitti can be used; see above"),
        (["kitti", "--root", "nowhere"], "nowhere: folder is missing"),
        (["virtual_kitti", "--root", "."], ".: no vkitti_1.3.1_rgb or Scene01"),
        (["virtual_kitti", "--root", ".", "--raw-root", "."], "--raw-root .: virtual_kitti has no raw images"),
        (["street", "--root", "."], "--root .: street is made here"),
        (["streat"], "data set 'streat' is unknown; there are street, kitti, virtual_kitti"),
    ],
)
def test_what_cannot_be_used_is_named(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = run("data", "check", *arguments)
    assert status == 2
    assert err.startswith(f"epibench: {message}")
    assert err.count("\n") == 1


def test_folders_without_a_frame_cannot_be_used(run, tmp_path):
    (tmp_path / "Scene01").mkdir()
    status, out, err = run("data", "check", "virtual_kitti", "--root", tmp_path)
    assert status == 2
    assert "virtual_kitti 2 train: 0 of 37,860 frames" in out
    assert "nothing of virtual_kitti can be used" in err


def test_street_needs_nothing(run):
    status, out, _ = run("data", "check", "street")
    assert status == 0
    assert out.startswith("street clean: ")
