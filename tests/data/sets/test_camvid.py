"""CamVid: SegNet's layout and the original one, with the same classes and splits."""

import collections
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from epibench.data.sets.camvid import CAMVID_COLOURS, CAMVID_IDS, CamVidSource, segnet_split
from epibench.errors import InputError
from label_files import random_values, save, save_image

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
FRAMES = {
    "train": ("0001TP_006690", "0001TP_008520", "0006R0_f00930", "0016E5_07920", "0016E5_08190"),
    "val": ("0016E5_07959", "0016E5_08159"),
    "test": ("0001TP_008550", "Seq05VD_f00000"),
}


def camvid(root, split="val"):
    return CamVidSource(root=str(root), split=split).read()


def make_segnet(root, splits=FRAMES, ending="png"):
    for split in splits:
        for seed, name in enumerate(FRAMES[split]):
            save_image(root / split / f"{name}.{ending}", seed=seed)
            save(root / f"{split}annot" / f"{name}.png", random_values(range(12), seed=seed))
    return root


def make_original(root):
    colours = np.array([value for value, _ in CAMVID_COLOURS.values], np.uint8)
    for names in FRAMES.values():
        for seed, name in enumerate(names):
            save_image(root / "701_StillsRaw_full" / f"{name}.png", seed=seed)
            save(root / "LabeledApproved_full" / f"{name}_L.png", colours[random_values(range(32), seed=seed)])
    return root


@pytest.mark.parametrize("ending", ["png", "jpg"])
def test_segnets_layout(tmp_path, ending):
    dataset = camvid(make_segnet(tmp_path, ending=ending), "train")
    assert [dataset.frame_id(index) for index in range(len(dataset))] == list(FRAMES["train"])
    values = random_values(range(12), seed=1)
    np.testing.assert_array_equal(dataset[1].target.numpy(), np.where(values == 11, 255, values))
    np.testing.assert_array_equal(dataset[1].valid.numpy(), values != 11)
    assert dataset.classes is CAMVID_IDS


@pytest.mark.parametrize("split", FRAMES)
def test_the_original_layout_has_the_same_splits(tmp_path, split):
    dataset = camvid(make_original(tmp_path), split)
    assert [dataset.frame_id(index) for index in range(len(dataset))] == sorted(FRAMES[split])
    classes = np.array([number for _, number in CAMVID_COLOURS.values])
    np.testing.assert_array_equal(dataset[0].target.numpy(), classes[random_values(range(32))])
    assert dataset.classes.names == CAMVID_IDS.names


@pytest.mark.parametrize("make", [make_segnet, make_original])
def test_all(tmp_path, make):
    assert len(camvid(make(tmp_path), "all")) == 9


def test_all_that_is_there(tmp_path):
    assert len(camvid(make_segnet(tmp_path, ["val", "test"]), "all")) == 4


def test_the_split_of_all_701_frames():
    frames = [f"0001TP_{number:06d}" for number in range(6690, 10381, 30)]
    frames += [f"0006R0_f{number:05d}" for number in range(930, 3931, 30)]
    frames += [f"Seq05VD_f{number:05d}" for number in range(0, 5101, 30)]
    dense = [f"0016E5_{number:05d}" for number in range(7959, 8160, 2)]
    found = collections.Counter(map(segnet_split, frames + dense))
    assert found == {"train": 62 + 101, "val": 101, "test": 62 + 171}
    assert segnet_split("0016E5_07890") == "train"
    assert segnet_split("holiday_001") is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("701_StillsRaw_full/0001TP_006690.png", "what belongs to it is missing in .*701_StillsRaw_full"),
        ("LabeledApproved_full/0001TP_006690_L.png", "what belongs to it is missing in .*LabeledApproved_full; unpack"),
    ],
)
def test_a_frame_that_is_not_whole(tmp_path, name, message):
    (make_original(tmp_path) / name).unlink()
    with pytest.raises(InputError, match=message):
        camvid(tmp_path)


def test_what_is_not_there(tmp_path):
    with pytest.raises(InputError, match="none: folder is missing; give the one that CamVid"):
        camvid(tmp_path / "none")
    with pytest.raises(ValidationError, match="split"):
        camvid(tmp_path, "vla")
    for split in ("val", "all"):
        with pytest.raises(InputError, match="neither train, trainannot, … nor 701_StillsRaw_full"):
            camvid(tmp_path, split)
    make_segnet(tmp_path, ["val"])
    with pytest.raises(InputError, match="train: folder is missing; copy train, trainannot of SegNet's CamVid into"):
        camvid(tmp_path, "train")


def test_original_frames_of_other_names(tmp_path):
    save_image(tmp_path / "701_StillsRaw_full/mine.png")
    save(tmp_path / "LabeledApproved_full/mine_L.png", np.zeros((12, 16, 3)))
    assert len(camvid(tmp_path, "all")) == 1
    with pytest.raises(InputError, match=r"has no frame of val .* use split all"):
        camvid(tmp_path, "val")


@pytest.mark.parametrize(("split", "frames"), [("train", 123), ("val", 101)])
def test_real_frames(split, frames):
    root = SHARED / "camvid"
    if not root.is_dir():
        pytest.skip("the real frames of CamVid are not beside this checkout")
    dataset = camvid(root, split)
    assert len(dataset) == frames
    assert {segnet_split(dataset.frame_id(index)) for index in range(frames)} == {split}
    batch = dataset[frames // 2]
    assert (batch.inputs["image"].shape, batch.target.shape) == ((3, 360, 480), (360, 480))
    assert batch.valid.double().mean() > 0.8
    assert batch.target[batch.valid].max() < 11
