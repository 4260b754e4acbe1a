"""Synscapes: a selection that its seed decides, and labels at the size of the images."""

import numpy as np
import pytest
import torch

from epibench.data.cityscapes_classes import label_ids
from epibench.data.sets.synscapes import SynscapesSource
from epibench.errors import InputError
from label_files import random_values, save, save_image


def synscapes(root, split="train", num_train=2975, num_val=500, **options):
    return SynscapesSource(root=str(root), split=split, num_train=num_train, num_val=num_val, **options).read()


def make(root, scenes=20, images=("rgb-2k", "rgb"), base="img"):
    for number in range(1, scenes + 1):
        for folder in images:
            save_image(root / base / folder / f"{number}.png", (16, 32) if folder == "rgb-2k" else (10, 20), number)
        save(root / base / "class" / f"{number}.png", label_ids()[random_values([*range(19), 255], (10, 20), number)])
    return root


def ids(dataset):
    return [int(dataset.frame_id(index)) for index in range(len(dataset))]


def test_training_and_validation_share_no_scene(tmp_path):
    make(tmp_path)
    train, val = (ids(synscapes(tmp_path, split, num_train=12, num_val=8)) for split in ("train", "val"))
    assert (len(train), len(val)) == (12, 8)
    assert sorted(train + val) == list(range(1, 21))
    assert train != list(range(1, 13))


def test_the_selection_depends_on_the_seed_alone(tmp_path):
    make(tmp_path)
    first = ids(synscapes(tmp_path, "train", 10, 5))
    assert first == ids(synscapes(tmp_path, "train", 10, 2)) == ids(synscapes(tmp_path, "train", 10, 5, images="rgb"))
    assert first != ids(synscapes(tmp_path, "train", 10, 5, seed=1))
    assert ids(synscapes(tmp_path, "val", 10, 5)) == ids(synscapes(tmp_path, "val", 3, 5))


def test_labels_as_they_are(tmp_path):
    dataset = synscapes(make(tmp_path), "all", images="rgb")
    assert ids(dataset) == list(range(1, 21))
    np.testing.assert_array_equal(dataset[2].target.numpy(), random_values([*range(19), 255], (10, 20), 3))


def test_labels_are_scaled_to_the_large_images(tmp_path):
    batch = synscapes(make(tmp_path), "all")[0]
    assert batch.inputs["image"].shape == (3, 16, 32)
    assert torch.equal(batch.valid, batch.target != 255)
    small = torch.from_numpy(random_values([*range(19), 255], (10, 20), 1))
    expected = torch.nn.functional.interpolate(small[None, None].double(), (16, 32), mode="nearest-exact")[0, 0]
    assert torch.equal(batch.target, expected.long())


def test_a_label_of_another_shape_is_told(tmp_path):
    make(tmp_path, 1)
    save(tmp_path / "img/class/1.png", np.zeros((10, 21)))
    with pytest.raises(InputError, match=r"class/1.png: is 10×21, but .*rgb-2k/1.png is 16×32"):
        synscapes(tmp_path, "all")[0]


def test_images_that_were_never_published_are_left_out(tmp_path):
    (make(tmp_path) / "img/rgb-2k/7.png").unlink()
    assert 7 not in ids(synscapes(tmp_path, "all"))


def test_an_image_without_its_label(tmp_path):
    (make(tmp_path) / "img/class/7.png").unlink()
    with pytest.raises(InputError, match=r"rgb-2k/7.png: what belongs to it is missing in .*img/class"):
        synscapes(tmp_path, "all")


def test_the_folder_above_will_do(tmp_path):
    assert len(synscapes(make(tmp_path, 3, base="Synscapes/img"), "all")) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "split"),
        ({"images": "2k"}, "images"),
        ({}, "has 20 scenes, not 2,975 for training and 500 others for validation; give smaller num_train"),
        ({"num_train": 19, "num_val": 2}, "has 20 scenes, not 19 for training and 2 others"),
        ({"num_train": 0, "num_val": 2}, "num_train"),
    ],
)
def test_what_cannot_be(tmp_path, arguments, message):
    make(tmp_path)
    with pytest.raises(ValueError, match=message):
        synscapes(tmp_path, **arguments)


def test_parts_that_are_missing(tmp_path):
    with pytest.raises(InputError, match="none: folder is missing; give the one that Synscapes"):
        synscapes(tmp_path / "none")
    with pytest.raises(InputError, match="img/rgb-2k: folder is missing; unpack Synscapes into"):
        synscapes(tmp_path)
    make(tmp_path, 2, images=("rgb",))
    with pytest.raises(InputError, match=r"img/rgb-2k: folder is missing; .*, or give images=rgb"):
        synscapes(tmp_path)
    (tmp_path / "img/rgb-2k").mkdir()
    with pytest.raises(InputError, match=r"img/rgb-2k: no NUMBER.png is there"):
        synscapes(tmp_path)
