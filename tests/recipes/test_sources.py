"""Sources of images in a recipe: what they open, what they refuse, and what tells them apart."""

import pickle
import sys

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from epibench.data.batch import Batch
from epibench.data.labels import CITYSCAPES_TRAIN_IDS, label_ids, table_of_names
from epibench.data.sets.own import OwnSource
from epibench.errors import InputError
from epibench.recipes.sources import (
    CamVidSource,
    CityscapesSource,
    FolderSource,
    KittiSource,
    Places,
    Source,
    StreetSource,
    SynscapesSource,
    VirtualKittiSource,
)
from epibench.street import StreetDataset
from epibench.street.export import export
from label_files import random_values, save, save_image


@pytest.fixture
def places(tmp_path):
    return Places(tmp_path, tmp_path / "cache")


def make_folder(root, images="images", labels="labels", number=3):
    for seed in range(number):
        save_image(root / images / f"{seed}.png", seed=seed)
        save(root / labels / f"{seed}.png", random_values([0, 1, 255], seed=seed))


def test_every_kind_is_told_by_its_name():
    adapter = TypeAdapter(Source)
    own = {"folder": {"classes": ["a"]}, "own": {"name": "garden:Garden"}}
    kinds = ("street", "kitti", "virtual_kitti", "cityscapes", "synscapes", "camvid", "folder", "own")
    for kind in kinds:
        source = adapter.validate_python({"kind": kind, **own.get(kind, {})})
        assert adapter.validate_json(adapter.dump_json(source)) == source
        assert source.kind == kind


def test_street_has_classes(places):
    samples = StreetSource(num_images=2, size=(64, 128)).open("segmentation", places, "data.train")
    assert samples.classes is CITYSCAPES_TRAIN_IDS
    assert [samples.frame_id(index) for index in range(2)] == ["0/000000", "0/000001"]
    with pytest.raises(IndexError):
        samples.frame_id(2)


def test_cityscapes(tmp_path, places):
    scenes = StreetDataset("segmentation", length=2, size=(64, 128))
    list(export(scenes, "cityscapes", tmp_path / "cityscapes"))
    samples = CityscapesSource(num_images=1, crop=(32, 128)).open("segmentation", places, "data.train")
    assert len(samples) == 1
    assert torch.equal(samples[0].target, scenes[0].target[32:])
    assert samples.classes.name == "cityscapes"
    assert samples.frame_id(0) == "street/street_000000_000019"


def test_synscapes(tmp_path, places):
    for number in range(1, 5):
        save_image(tmp_path / f"synscapes/img/rgb/{number}.png")
        save(tmp_path / f"synscapes/img/class/{number}.png", label_ids()[random_values(range(19))])
    source = SynscapesSource(num_train=3, num_val=1, images="rgb")
    assert len(source.open("segmentation", places, "data.train")) == 3
    assert len(source.model_copy(update={"split": "val"}).open("segmentation", places, "data.train")) == 1


def test_camvid(tmp_path, places):
    make_folder(tmp_path / "camvid", "val", "valannot")
    assert len(CamVidSource().open("segmentation", places, "data.train")) == 3


def test_folder(tmp_path, places):
    make_folder(tmp_path / "mine")
    source = FolderSource(root="mine", classes=("road", "sky"), num_images=2)
    samples = pickle.loads(pickle.dumps(source.open("segmentation", places, "data.train")))  # noqa: S301
    assert (len(samples), samples.classes.names, samples.frame_id(1)) == (2, ("road", "sky"), "1")
    np.testing.assert_array_equal(samples[1].target.numpy(), random_values([0, 1, 255], seed=1))
    with pytest.raises(IndexError):
        samples[2]


def test_a_class_table_in_a_file(tmp_path, places):
    make_folder(tmp_path / "mine")
    path = tmp_path / "classes.csv"
    path.write_text("0,road\n1,sky\n")
    source = FolderSource(root="mine", classes=str(path))
    before = source.version
    assert source.open("segmentation", places, "data.train").classes.names == ("road", "sky")
    path.write_text("0,road\n1,\n")
    assert source.version != before
    assert not (source.open("segmentation", places, "data.train")[0].target == 1).any()


@pytest.mark.parametrize(
    "source",
    [CityscapesSource(), SynscapesSource(), CamVidSource(), FolderSource(classes="camvid")],
    ids=lambda source: source.kind,
)
def test_classes_are_no_depth(places, source):
    with pytest.raises(InputError, match=f"'{source.kind}' has classes and no depth: it cannot be used for that"):
        source.open("depth", places, "data.train")


@pytest.mark.parametrize("source", [KittiSource(), VirtualKittiSource()], ids=lambda source: source.kind)
def test_depth_is_no_classes(places, source):
    with pytest.raises(InputError, match="has depth and no classes: it cannot be used for segmentation"):
        source.open("segmentation", places, "data.train")


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
    source = TypeAdapter(Source).validate_json('{"kind": "camvid", "mapping": [["road", "road"], ["way", "pavement"]]}')
    assert source.mapping == (("road", "road"), ("way", "pavement"))
    with pytest.raises(ValidationError):
        CamVidSource(mapping=(("road",),))


class Garden:
    """A data set of a user's own."""

    version = 3
    classes = table_of_names(["grass", "path"])

    def __init__(self, length=2, size=(4, 5), wrong=""):
        self.length, self.size, self.wrong = length, size, wrong

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        target = torch.full(self.size, 5 if self.wrong == "class" else index % 2)
        image = torch.zeros(3, *self.size, dtype=torch.float32 if self.wrong == "image" else torch.uint8)
        if self.wrong == "batch":
            return image, target
        inputs = {"picture" if self.wrong == "inputs" else "image": image}
        return Batch(inputs, target[0] if self.wrong == "target" else target, target != 255)


class Bare(Garden):
    """Without classes."""

    classes = None


def no_data():
    """Something else."""
    return 3


@pytest.fixture
def this_module(monkeypatch):
    """A name under which the classes above can be loaded."""
    monkeypatch.setitem(sys.modules, "own_garden", sys.modules[__name__])
    return "own_garden"


def test_a_data_set_of_ones_own(places, this_module):
    source = OwnSource(name=f"{this_module}:Garden", options={"length": 5}, num_images=3)
    samples = source.open("segmentation", places, "data.train")
    assert (len(samples), samples.classes.names) == (3, ("grass", "path"))
    assert source.version == f"3-{Garden.classes.digest}"
    assert len(OwnSource(name=f"{this_module}:Garden").open("segmentation", places, "data.train")) == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Garden", {"lenght": 3}, "data.train.options: own_garden:Garden got an unexpected keyword argument 'lenght'"),
        ("Garden", {"length": 0}, "data.train: own_garden:Garden has no samples"),
        ("Bare", {}, "data.train: own_garden:Bare has no `classes`, an epibench.data.labels.ClassTable"),
        ("no_data", {}, "data.train: own_garden:no_data makes int, no data set"),
        ("Garden", {"wrong": "batch"}, "sample 0: is tuple, not an epibench.data.batch.Batch"),
        ("Garden", {"wrong": "image"}, "sample 0: image is (3, 4, 5) float32, not (3, 4, 5) uint8"),
        ("Garden", {"wrong": "target"}, "sample 0: target is (5), not (height, width)"),
        ("Garden", {"wrong": "inputs"}, "sample 0: inputs have no 'image'"),
        ("Garden", {"wrong": "class"}, "sample 0: valid targets are 5 to 5, but there are classes 0 to 1"),
        ("Gardn", {}, "has no 'Gardn'; the nearest is 'Garden'"),
    ],
)
def test_what_is_wrong_with_ones_own_is_told(places, this_module, name, options, message):
    source = OwnSource(name=f"{this_module}:{name}", options=options)
    with pytest.raises(InputError) as caught:
        source.open("segmentation", places, "data.train")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_depth_of_ones_own_needs_sparse_depth(places, this_module):
    with pytest.raises(InputError, match="sample 0: inputs have no 'sparse_depth'"):
        OwnSource(name=f"{this_module}:Garden").open("depth", places, "data.train")
