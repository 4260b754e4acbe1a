"""Two folders of one's own: which files belong together, and what is told when some do not."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from epibench.data.sets.camvid import CAMVID_IDS
from epibench.data.sets.folder import FolderSource
from epibench.errors import InputError
from label_files import random_values, save, save_image

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
NAMES = ("a", "b", "c")


def make(root, names=("x", "y"), image="images/{}.png", label="labels/{}.png"):
    for seed, name in enumerate(names):
        save_image(root / image.format(name), seed=seed)
        save(root / label.format(name), random_values([0, 1, 2, 255], seed=seed))
    return root


def open_folder(root, **options):
    return FolderSource(root=str(root), classes=NAMES, **options).read()


def test_files_with_the_same_names(tmp_path):
    dataset = open_folder(make(tmp_path, ("y", "x", "day/x")))
    assert [dataset.frame_id(index) for index in range(len(dataset))] == ["day/x", "x", "y"]
    assert dataset.classes.names == NAMES
    np.testing.assert_array_equal(dataset[2].target.numpy(), random_values([0, 1, 2, 255], seed=0))
    np.testing.assert_array_equal(
        dataset[2].inputs["image"].numpy().transpose(1, 2, 0), np.asarray(Image.open(tmp_path / "images/y.png"))
    )


def test_images_may_be_jpeg_in_any_case(tmp_path):
    make(tmp_path, ("x",), "images/{}.JPG")
    make(tmp_path, ("y",), "images/{}.jpeg")
    assert len(open_folder(tmp_path)) == 2


def test_suffixes(tmp_path):
    make(tmp_path, image="images/{}_rgb.png", label="labels/{}_L.png")
    dataset = open_folder(tmp_path, image_suffix="_rgb", label_suffix="_L")
    assert [dataset.frame_id(index) for index in range(2)] == ["x", "y"]


@pytest.mark.parametrize(
    ("image", "label", "options"),
    [
        ("images/{}.png", "images/{}_L.png", {"label_suffix": "_L"}),
        ("images/{}_rgb.png", "images/{}.png", {"image_suffix": "_rgb"}),
        ("images/{}_rgb.png", "images/{}_L.png", {"image_suffix": "_rgb", "label_suffix": "_L"}),
    ],
)
def test_both_in_one_folder(tmp_path, image, label, options):
    make(tmp_path, image=image, label=label)
    dataset = open_folder(tmp_path, labels="images", **options)
    assert [(Path(frame.image).name, Path(frame.label).name) for frame in dataset.frames] == [
        (image.format(name)[7:], label.format(name)[7:]) for name in ("x", "y")
    ]


def test_both_in_one_folder_without_suffix(tmp_path):
    make(tmp_path)
    with pytest.raises(InputError, match="images: holds images and label images; give label_suffix"):
        open_folder(tmp_path, labels="images")


def test_hidden_files_are_left_out(tmp_path):
    make(tmp_path)
    save_image(tmp_path / "images/._x.png")
    save_image(tmp_path / "images/.old/z.png")
    (tmp_path / "images/notes.txt").write_text("")
    assert len(open_folder(tmp_path)) == 2


def test_an_image_without_its_label(tmp_path):
    make(tmp_path, ("x", "y", "z"))
    (tmp_path / "labels/y.png").unlink()
    with pytest.raises(InputError) as caught:
        open_folder(tmp_path)
    message = (
        f"{tmp_path}/images/y.png: what belongs to it is missing in {tmp_path}/labels; add the label, or remove it"
    )
    assert str(caught.value).startswith(message)


def test_a_label_without_its_image(tmp_path):
    make(tmp_path, ("x", "y", "z"))
    for name in ("x", "z"):
        (tmp_path / f"images/{name}.png").unlink()
    with pytest.raises(
        InputError, match=rf"labels/x.png \(and 1 more\): what belongs .* in {tmp_path}/images; add the"
    ):
        open_folder(tmp_path)


def test_a_suffix_is_suggested(tmp_path):
    make(tmp_path, label="labels/{}_mask.png")
    with pytest.raises(InputError, match="labels seem to end in '_mask': give that as label_suffix"):
        open_folder(tmp_path)


@pytest.mark.parametrize(("kind", "names"), [("images", "….png or ….jpg or ….jpeg"), ("labels", "….png")])
def test_an_empty_folder(tmp_path, kind, names):
    make(tmp_path)
    shutil.rmtree(tmp_path / kind)
    with pytest.raises(InputError, match=f"{tmp_path}/{kind}: folder is missing; give the folder of the"):
        open_folder(tmp_path)
    (tmp_path / kind).mkdir()
    with pytest.raises(InputError, match=f"{tmp_path}/{kind}: no {names} is there; give the folder of the"):
        open_folder(tmp_path)


def test_two_images_of_one_name(tmp_path):
    make(tmp_path)
    save_image(tmp_path / "images/x.jpg")
    with pytest.raises(InputError, match=r"x.png: .*x.jpg has the same name; remove one"):
        open_folder(tmp_path)


def test_files_are_opened_when_they_are_asked_for(tmp_path):
    make(tmp_path)
    (tmp_path / "images/y.png").write_bytes(b"")
    dataset = open_folder(tmp_path)
    dataset[0]
    with pytest.raises(InputError, match=r"images/y.png: is no PNG or JPEG file"):
        dataset[1]


def test_it_can_be_sent_to_another_process(tmp_path):
    dataset = open_folder(make(tmp_path))
    assert pickle.loads(pickle.dumps(dataset)).frames == dataset.frames  # noqa: S301


@pytest.mark.parametrize(("split", "frames"), [("train", 450), ("val", 80)])
def test_rendered_frames(split, frames):
    root = SHARED / "carla"
    if not root.is_dir():
        pytest.skip("the frames rendered by CARLA are not beside this checkout")
    dataset = FolderSource(root=str(root), images=split, labels=f"{split}annot", classes="camvid").read()
    assert len(dataset) == frames
    batch = dataset[frames // 2]
    assert (batch.inputs["image"].shape, batch.target.shape) == ((3, 360, 480), (360, 480))
    assert batch.target[batch.valid].max() < CAMVID_IDS.num_classes
    assert batch.valid.double().mean() > 0.8
