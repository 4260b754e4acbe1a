"""Sources of images in a recipe: what they open, what they refuse, and what tells them apart."""

import os
import pickle
import pwd
import tempfile

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS, label_ids
from epibench.data.sets import AnySource
from epibench.data.sets.camvid import CamVidSource
from epibench.data.sets.cityscapes import CityscapesSource
from epibench.data.sets.folder import FolderSource
from epibench.data.sets.kitti import KittiSource
from epibench.data.sets.own import OwnSource
from epibench.data.sets.street import StreetSource
from epibench.data.sets.synscapes import SynscapesSource
from epibench.data.sets.virtual_kitti import VirtualKittiSource
from epibench.data.source import Folders, default_cache
from epibench.errors import InputError
from epibench.street import StreetDataset
from label_files import random_values, save, save_image
from street_files import write_street


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path, tmp_path / "cache")


def make_folder(root, images="images", labels="labels", number=3):
    for seed in range(number):
        save_image(root / images / f"{seed}.png", seed=seed)
        save(root / labels / f"{seed}.png", random_values([0, 1, 255], seed=seed))


def test_street_has_classes(folders):
    samples = StreetSource(num_images=2, size=(64, 128)).open("segmentation", folders, "data.train")
    assert samples.classes is CITYSCAPES_TRAIN_IDS
    assert [samples.frame_id(index) for index in range(2)] == ["0/000000", "0/000001"]
    with pytest.raises(IndexError):
        samples.frame_id(2)


def test_cityscapes(tmp_path, folders):
    scenes = StreetDataset("segmentation", length=2, size=(64, 128))
    write_street(scenes, "cityscapes", tmp_path / "cityscapes")
    samples = CityscapesSource(num_images=1, crop=(32, 128)).open("segmentation", folders, "data.train")
    assert len(samples) == 1
    assert torch.equal(samples[0].target, scenes[0].target[32:])
    assert samples.classes.name == "cityscapes"
    assert samples.frame_id(0) == "street/street_000000_000019"


def test_synscapes(tmp_path, folders):
    for number in range(1, 5):
        save_image(tmp_path / f"synscapes/img/rgb/{number}.png")
        save(tmp_path / f"synscapes/img/class/{number}.png", label_ids()[random_values(range(19))])
    source = SynscapesSource(selection="random", num_train=3, num_val=1, images="rgb")
    assert len(source.open("segmentation", folders, "data.train")) == 3
    assert len(source.model_copy(update={"split": "val"}).open("segmentation", folders, "data.train")) == 1


def test_camvid(tmp_path, folders):
    make_folder(tmp_path / "camvid", "val", "valannot")
    assert len(CamVidSource().open("segmentation", folders, "data.train")) == 3


def test_folder(tmp_path, folders):
    make_folder(tmp_path / "mine")
    source = FolderSource(root="mine", classes=("road", "sky"), num_images=2)
    samples = pickle.loads(pickle.dumps(source.open("segmentation", folders, "data.train")))  # noqa: S301
    assert (len(samples), samples.classes.names, samples.frame_id(1)) == (2, ("road", "sky"), "1")
    np.testing.assert_array_equal(samples[1].target.numpy(), random_values([0, 1, 255], seed=1))
    with pytest.raises(IndexError):
        samples[2]


def test_a_class_table_in_a_file(tmp_path, folders):
    make_folder(tmp_path / "mine")
    path = tmp_path / "classes.csv"
    path.write_text("0,road\n1,sky\n")
    source = FolderSource(root="mine", classes=str(path))
    before = source.version
    assert source.open("segmentation", folders, "data.train").classes.names == ("road", "sky")
    path.write_text("0,road\n1,\n")
    assert source.version != before
    assert not (source.open("segmentation", folders, "data.train")[0].target == 1).any()


@pytest.mark.parametrize(
    "source",
    [CityscapesSource(), SynscapesSource(), CamVidSource(), FolderSource(classes="camvid")],
    ids=lambda source: source.kind,
)
def test_classes_are_no_depth(folders, source):
    with pytest.raises(InputError, match=f"'{source.kind}' has classes and no depth"):
        source.open("depth", folders, "data.train")


@pytest.mark.parametrize("source", [KittiSource(), VirtualKittiSource()], ids=lambda source: source.kind)
def test_depth_is_no_classes(folders, source):
    with pytest.raises(InputError, match="has depth and no classes"):
        source.open("segmentation", folders, "data.train")


def folder(root, images, **options):
    return FolderSource(root=root, images=images, labels="labels", classes="camvid", **options)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (folder("carla", "train"), folder("carla", "val"), True),
        (folder("carla", "train/images"), folder("carla", "val/images"), True),
        (folder("/data", "carla/train"), folder("/data/carla", "images/test"), True),
        (folder("carla", "train"), folder("camvid", "val"), False),
        (folder(".", "carla/train"), folder(".", "camvid/val"), False),
        (folder("carla", "train"), folder("elsewhere", "x", distribution="carla"), True),
        (folder("carla", "day", distribution="day"), folder("carla", "night", distribution="night"), False),
        (CamVidSource(split="train"), CamVidSource(split="val"), True),
        (CamVidSource(), CityscapesSource(), False),
        (OwnSource(name="a:B"), OwnSource(name="a:B", options={"split": "val"}), True),
        (OwnSource(name="a:B"), OwnSource(name="a:B", distribution="night"), False),
    ],
)
def test_which_data_is_of_one_distribution(one, other, same):
    assert (one.origin == other.origin) == same


def test_labels():
    assert folder("data/carla", "train").label == "carla"
    assert folder("data/carla", "train", title="CARLA").label == "CARLA"
    assert folder("/", "train").label == "folder"
    assert CamVidSource().label == "CamVid"
    assert OwnSource(name="own.garden:Garden").label == "Garden"


def test_a_mapping_is_pairs():
    source = TypeAdapter(AnySource).validate_json(
        '{"kind": "camvid", "mapping": [["road", "road"], ["way", "pavement"]]}'
    )
    assert source.mapping == (("road", "road"), ("way", "pavement"))
    with pytest.raises(ValidationError):
        CamVidSource(mapping=(("road",),))


def test_a_user_without_a_home_keeps_scenes_among_temporaries(tmp_path, monkeypatch):
    for name in ("HOME", "XDG_CACHE_HOME", "EPIBENCH_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    with pytest.warns(UserWarning, match=r"no home folder: .*\$EPIBENCH_CACHE names another"):
        assert default_cache() == tmp_path / f"epibench-{os.getuid()}"
