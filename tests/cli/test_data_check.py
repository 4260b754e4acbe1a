"""`epibench data check`: what is in a folder, what is missing and where to get it."""

import shutil

import numpy as np
import pytest
from PIL import Image

from epibench.data.sets import synscapes
from epibench.data.sets.kitti import KittiSource
from epibench.data.source import check_split
from epibench.street import StreetDataset
from label_files import random_values, save, save_image
from streams import plain
from street_files import write_street


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Three scenes in the layout of KITTI, as selection and as val."""
    root = tmp_path_factory.mktemp("kitti")
    write_street(StreetDataset("depth", "clean", length=3, size=(64, 128)), "kitti", root)
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
    selection = check_split(next(KittiSource.splits(root=str(kitti))), False, lambda frames, name: frames)
    assert [frame.frame_id[-10:] for frame in selection.content] == ["0000000000", "0000000001", "0000000002"]
    scene = StreetDataset("depth", "clean", length=3, size=(64, 128))[2]
    sample = selection.content[2]
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
    monkeypatch.setattr(KittiSource, "published", {"selection": 3, "val": 3, "train": None})
    monkeypatch.setattr(KittiSource.model_fields["crop"], "default", (64, 128))
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
        (["virtual_kitti", "--root", ".", "--raw-root", "."], "--raw-root .: virtual_kitti has no such option"),
        (["street", "--root", "."], "--root .: street has no such option"),
        (
            ["streat"],
            "data set 'streat' is unknown; there are street, kitti, virtual_kitti, cityscapes, synscapes, camvid",
        ),
        (["camvid"], "--root is missing; give the folder that camvid was unpacked into (CamVid: mi.eng.cam.ac.uk"),
        (["cityscapes", "--root", "nowhere"], "nowhere: folder is missing; give the one that cityscapes was unpacked"),
        (["cityscapes", "--root", "."], ".: nothing of cityscapes can be used; see above"),
        (["folder", "--images", "a"], "--classes is missing"),
        (["kitti", "--images", "a"], "--images a: kitti has no such option"),
        (
            ["folder", "--images", "a", "--labels", "b", "--classes", "camvid"],
            "a: folder is missing; give the folder of",
        ),
        (["folder", "--images", "a", "--labels", "b", "--classes", "x"], "classes 'x': no class table is called so"),
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


@pytest.fixture
def folder(tmp_path):
    """Twenty frames with two classes, and a third that is never seen."""
    for number in range(20):
        save_image(tmp_path / f"images/{number:02d}.png", (10, 20))
        save(tmp_path / f"labels/{number:02d}.png", np.repeat([[0] * 12 + [1] * 4 + [255] * 4], 10, 0))
    (tmp_path / "classes.csv").write_text("0,road\n1,sky\n2,cow\n")
    return tmp_path


def check_folder(run, folder, *more):
    arguments = ("--images", folder / "images", "--labels", folder / "labels", "--classes", folder / "classes.csv")
    return run("data", "check", "folder", *arguments, *more)


def test_two_folders(run, folder):
    status, out, err = check_folder(run, folder)
    assert (status, err) == (0, "")
    assert out.splitlines() == [
        f"folder {folder}/images: 20 frames",
        "  12 of them opened: 10×20, a class in 80.0% of the pixels",
        "  ■ road  75.0%",
        "  ■ sky   25.0%",
        "  not seen there: cow",
    ]


def test_folders_below_a_root(run, folder):
    arguments = ("--root", folder, "--images", "images", "--labels", "labels", "--classes", folder / "classes.csv")
    assert run("data", "check", "folder", *arguments)[0] == 0


@pytest.mark.parametrize(("width", "between"), [(24, "\n  "), (80, "   ")])
def test_classes_stand_in_as_many_columns_as_a_terminal_has(run, folder, terminal, width, between):
    shown = terminal("stdout", width)
    check_folder(run, folder)
    assert f"  ■ road  75.0%{between}■ sky   25.0%\n" in plain(shown.getvalue())


def test_a_wrong_value_is_found_when_all_are_opened(run, folder):
    save(folder / "labels/04.png", np.full((10, 20), 9))
    assert "value 9" not in check_folder(run, folder)[1]
    status, out, _ = check_folder(run, folder, "--all")
    assert status == 0
    assert f"{folder}/labels/04.png: value 9 in 200 pixels, first in row 0, column 0: not in the class table" in out


def test_folders_of_which_nothing_can_be_opened(run, folder):
    for path in (folder / "labels").iterdir():
        save(path, np.full((10, 20), 9))
    status, out, err = check_folder(run, folder)
    assert status == 2
    assert "… and 9 more" in out
    assert "nothing of folder can be used" in err


def test_cityscapes(run, tmp_path):
    write_street(StreetDataset("segmentation", "clean", length=3, size=(64, 128)), "cityscapes", tmp_path)
    status, out, err = run("data", "check", "cityscapes", "--root", tmp_path)
    assert (status, err) == (0, "")
    assert "cityscapes train: 0 of 2,975 frames" in out
    assert (
        f"{tmp_path}/leftImg8bit/train: folder is missing; unpack leftImg8bit_trainvaltest.zip into {tmp_path}" in out
    )
    assert "cityscapes val: 3 of 500 frames\n  all opened: 64×128, a class in " in out
    assert "■ traffic light " in out
    assert "Where to get it: Cityscapes: www.cityscapes-dataset.com" in out


def test_synscapes(run, tmp_path):
    for number in (1, 2):
        save_image(tmp_path / f"img/rgb-2k/{number}.png", (16, 32))
        save(tmp_path / f"img/class/{number}.png", random_values([7, 23, 4], (8, 16)))
    status, out, _ = run("data", "check", "synscapes", "--root", tmp_path)
    assert status == 0
    assert "synscapes all: 2 of 25,000 frames\n  all opened: 16×32" in out
    assert "synscapes published train: 0 of 2,975 frames\n" in out
    assert f"  {tmp_path}: 500 of the 500 scenes that the paper's authors selected are missing (19053, 9486, " in out
    (tmp_path / "img/rgb-2k").rename(tmp_path / "img/rgb")
    assert "synscapes all: 2 of 25,000 frames" in run("data", "check", "synscapes", "--root", tmp_path)[1]


def test_the_published_selection_of_synscapes(run, tmp_path, monkeypatch):
    monkeypatch.setattr(synscapes, "published_ids", {"train": [3, 1], "val": [2, 7]}.__getitem__)
    for number in range(1, 5):
        save_image(tmp_path / f"img/rgb-2k/{number}.png", (16, 32))
        save(tmp_path / f"img/class/{number}.png", random_values([7, 23, 4], (8, 16)))
    _, out, _ = run("data", "check", "synscapes", "--root", tmp_path)
    assert "synscapes published train: 2 frames\n" in out
    assert "synscapes published val: 1 of 2 frames\n" in out
    assert "  1 absent of the 2 scenes that the paper's authors selected, left out: 7.\n" in out
    assert out.count("absent") == 1


def test_camvid(run, tmp_path):
    save_image(tmp_path / "val/a.jpg")
    save(tmp_path / "valannot/a.png", random_values(range(12)))
    status, out, _ = run("data", "check", "camvid", "--root", tmp_path)
    assert status == 0
    assert "camvid val: 1 of 101 frames\n" in out
    assert "camvid test: 0 of 233 frames\n" in out
    assert "Where to get it: CamVid: mi.eng.cam.ac.uk" in out
