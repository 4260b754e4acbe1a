"""A data set of the user's own: what it opens, and what is wrong with it in one line."""

import sys

import pytest
import torch

from epibench.data.batch import Batch
from epibench.data.classes import table_of_names
from epibench.data.sets.own import OwnSource
from epibench.data.source import Folders
from epibench.errors import InputError


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path, tmp_path / "cache")


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


def test_a_data_set_of_ones_own(folders, this_module):
    source = OwnSource(name=f"{this_module}:Garden", options={"length": 5}, num_images=3)
    samples = source.open("segmentation", folders, "data.train")
    assert (len(samples), samples.classes.names) == (3, ("grass", "path"))
    assert source.version == f"3-{Garden.classes.digest}"
    assert len(OwnSource(name=f"{this_module}:Garden").open("segmentation", folders, "data.train")) == 2


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Garden", {"lenght": 3}, "data.train.options: own_garden:Garden got an unexpected keyword argument 'lenght'"),
        ("Garden", {"length": 0}, "data.train: own_garden:Garden has no samples"),
        ("Bare", {}, "data.train: own_garden:Bare has no `classes`, an epibench.data.classes.ClassTable"),
        ("no_data", {}, "data.train: own_garden:no_data makes int, no data set"),
        ("Garden", {"wrong": "batch"}, "sample 0: is tuple, not an epibench.data.batch.Batch"),
        ("Garden", {"wrong": "image"}, "sample 0: image is (3, 4, 5) float32, not (3, 4, 5) uint8"),
        ("Garden", {"wrong": "target"}, "sample 0: target is (5), not (height, width)"),
        ("Garden", {"wrong": "inputs"}, "sample 0: inputs have no 'image'"),
        ("Garden", {"wrong": "class"}, "sample 0: valid targets are 5 to 5, but there are classes 0 to 1"),
        ("Gardn", {}, "has no 'Gardn'; the nearest is 'Garden'"),
    ],
)
def test_what_is_wrong_with_ones_own_is_told(folders, this_module, name, options, message):
    source = OwnSource(name=f"{this_module}:{name}", options=options)
    with pytest.raises(InputError) as caught:
        source.open("segmentation", folders, "data.train")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_depth_of_ones_own_needs_sparse_depth(folders, this_module):
    with pytest.raises(InputError, match="sample 0: inputs have no 'sparse_depth'"):
        OwnSource(name=f"{this_module}:Garden").open("depth", folders, "data.train")
