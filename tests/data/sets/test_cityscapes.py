"""Cityscapes: both kinds of label images, the official layout, and what is told when a part is missing."""

import numpy as np
import pytest
import torch

from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS, label_ids
from epibench.data.sets.cityscapes import CityscapesSource
from epibench.errors import InputError
from epibench.street import StreetDataset
from label_files import random_values, save, save_image
from street_files import write_street

FRAMES = ("aachen_000000_000019", "aachen_000001_000019", "ulm_000000_000019")


def cityscapes(root, split="val", labels="auto", **options):
    return CityscapesSource(root=str(root), split=split, labels=labels, **options).read()


def make(root, split="val", kinds=("labelIds", "labelTrainIds"), images="leftImg8bit", labels="gtFine"):
    for seed, stem in enumerate(FRAMES):
        city, train_ids = stem.split("_")[0], random_values([*range(19), 255], seed=seed)
        save_image(root / images / split / city / f"{stem}_leftImg8bit.png", seed=seed)
        values = {"labelIds": label_ids()[train_ids], "labelTrainIds": train_ids, "instanceIds": train_ids}
        for kind in (*kinds, "instanceIds"):
            save(root / labels / split / city / f"{stem}_gtFine_{kind}.png", values[kind])
    return root


@pytest.mark.parametrize("kinds", [("labelIds",), ("labelTrainIds",), ("labelIds", "labelTrainIds")])
def test_both_kinds_of_labels_give_train_ids(tmp_path, kinds):
    dataset = cityscapes(make(tmp_path, kinds=kinds))
    assert [dataset.frame_id(index) for index in range(3)] == [f"{stem.split('_')[0]}/{stem}" for stem in FRAMES]
    assert dataset.classes is (CITYSCAPES_LABEL_IDS if "labelIds" in kinds else CITYSCAPES_TRAIN_IDS)
    for seed, batch in enumerate(dataset):
        np.testing.assert_array_equal(batch.target.numpy(), random_values([*range(19), 255], seed=seed))
        assert torch.equal(batch.valid, batch.target != 255)
        assert batch.inputs["image"].shape == (3, 12, 16)


def test_the_kind_can_be_chosen(tmp_path):
    make(tmp_path)
    assert cityscapes(tmp_path, labels="labelTrainIds").classes is CITYSCAPES_TRAIN_IDS
    assert cityscapes(tmp_path, labels="labelIds").classes is CITYSCAPES_LABEL_IDS


def test_archives_in_folders_of_their_own(tmp_path):
    make(tmp_path, "train", images="leftImg8bit_trainvaltest/leftImg8bit", labels="gtFine_trainvaltest/gtFine")
    assert len(cityscapes(tmp_path, "train")) == 3


def test_the_crop_is_the_bottom_centre(tmp_path):
    batch = cityscapes(make(tmp_path), crop=(4, 8))[0]
    np.testing.assert_array_equal(batch.target.numpy(), random_values([*range(19), 255])[8:, 4:12])


def test_what_street_has_written_is_read_back(tmp_path):
    scenes = StreetDataset("segmentation", "clean", length=2, size=(64, 128))
    write_street(scenes, "cityscapes", tmp_path)
    for labels in ("labelIds", "labelTrainIds"):
        dataset = cityscapes(tmp_path, "val", labels)
        assert len(dataset) == 2
        for index in range(2):
            found, scene = dataset[index], scenes[index]
            assert torch.equal(found.inputs["image"], scene.inputs["image"])
            assert torch.equal(found.target, scene.target)
            assert torch.equal(found.valid, scene.valid)
    assert scenes.classes.names == dataset.classes.names


def test_an_image_without_its_label(tmp_path):
    path = make(tmp_path) / "gtFine/val/ulm/ulm_000000_000019_gtFine_labelIds.png"
    path.unlink()
    with pytest.raises(
        InputError, match=r"ulm_000000_000019_leftImg8bit.png: what belongs to it is missing in .*gtFine/val"
    ):
        cityscapes(tmp_path)


def test_a_label_without_its_image(tmp_path):
    (make(tmp_path) / "leftImg8bit/val/ulm/ulm_000000_000019_leftImg8bit.png").unlink()
    with pytest.raises(InputError, match=r"gtFine_labelIds.png: what belongs to it is missing in .*leftImg8bit/val"):
        cityscapes(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "split"),
        ({"labels": "colours"}, "labels"),
        ({"split": "train"}, "leftImg8bit/train: folder is missing; unpack leftImg8bit_trainvaltest.zip into"),
    ],
)
def test_what_is_not_there(tmp_path, arguments, message):
    make(tmp_path, kinds=("labelIds",))
    with pytest.raises(ValueError, match=message):
        cityscapes(tmp_path, **arguments)


def test_parts_that_are_missing(tmp_path):
    with pytest.raises(InputError, match="none: folder is missing; give the one that Cityscapes"):
        cityscapes(tmp_path / "none")
    make(tmp_path, kinds=())
    with pytest.raises(
        InputError, match=r"no CITY/…_gtFine_labelIds.png or CITY/…_gtFine_labelTrainIds.png is there; unpack"
    ):
        cityscapes(tmp_path)
    (tmp_path / "leftImg8bit/train/ulm").mkdir(parents=True)
    with pytest.raises(InputError, match=r"leftImg8bit/train: no CITY/…_leftImg8bit.png is there"):
        cityscapes(tmp_path, "train")
