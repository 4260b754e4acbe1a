"""Label images: read exactly, and every kind of file that might hold other numbers is refused by name."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image

from epibench.data.classes import table_of_names
from epibench.data.images import LabelledFrame, LabelledImages, read_labels, resized
from epibench.data.sets.camvid import CAMVID_COLOURS, CAMVID_IDS
from epibench.errors import InputError
from label_files import random_values, save, save_image

TABLE = table_of_names(["a", "b", "c"])


def write_png(path, bits, colour_type, row):
    """A PNG file of one row with any depth, which Pillow cannot write."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 2, 1, bits, colour_type, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" + row)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


def test_numbers(tmp_path):
    values = random_values([0, 1, 2, 255])
    found = read_labels(save(tmp_path / "a.png", values), TABLE)
    assert found.dtype == torch.int64
    np.testing.assert_array_equal(found.numpy(), values)


def test_colours(tmp_path):
    colours = np.array([value for value, _ in CAMVID_COLOURS.values], np.uint8)
    numbers = random_values(range(32))
    expected = np.array([number for _, number in CAMVID_COLOURS.values])[numbers]
    found = read_labels(save(tmp_path / "a.png", colours[numbers]), CAMVID_COLOURS)
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(
    ("mode", "table", "message"),
    [
        ("I;16", TABLE, "is in 16-bit grey, not in 8-bit grey; save it as 8-bit grey PNG"),
        ("P", TABLE, "is in palette colours, not in 8-bit grey; save its indices"),
        ("P", CAMVID_COLOURS, "is in palette colours, not in 8-bit RGB; save it as 8-bit RGB PNG"),
        ("LA", TABLE, "is in grey with transparency, not in 8-bit grey"),
        ("RGBA", CAMVID_COLOURS, "is in RGB with transparency, not in 8-bit RGB"),
        ("1", TABLE, "is in 1-bit grey, not in 8-bit grey"),
        (
            "RGB",
            TABLE,
            "is in 8-bit RGB, not in 8-bit grey; class table 'own' has numbers: give the table of these files",
        ),
        (
            "L",
            CAMVID_COLOURS,
            "is in 8-bit grey, not in 8-bit RGB; class table 'camvid' has colours: give the table of these files",
        ),
    ],
)
def test_other_kinds_of_png_are_refused(tmp_path, mode, table, message):
    path = tmp_path / "a.png"
    Image.new(mode, (3, 2)).save(path)
    with pytest.raises(InputError) as caught:
        read_labels(path, table)
    assert str(caught.value).startswith(f"{path}: {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("bits", "colour_type", "row", "table", "message"),
    [
        (4, 0, b"\x12", TABLE, "is in 4-bit grey"),  # which Pillow reads as 17 and 34
        (16, 2, bytes(12), CAMVID_COLOURS, "is in 16-bit RGB"),  # of which Pillow keeps 8
    ],
)
def test_depths_that_pillow_changes_are_refused(tmp_path, bits, colour_type, row, table, message):
    with pytest.raises(InputError, match=message):
        read_labels(write_png(tmp_path / "a.png", bits, colour_type, row), table)


def test_broken_and_missing_files(tmp_path):
    path = save(tmp_path / "a.png", random_values([0, 1, 2], (200, 200)))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(InputError, match=r"a.png: is broken or truncated"):
        read_labels(path, TABLE)
    with pytest.raises(InputError, match=r"b.png: cannot be read \(No such file"):
        read_labels(tmp_path / "b.png", TABLE)
    (tmp_path / "c.png").write_bytes(b"hello")
    with pytest.raises(InputError, match=r"c.png: is no PNG or JPEG file"):
        read_labels(tmp_path / "c.png", TABLE)


def test_jpeg_is_refused(tmp_path):
    path = save(tmp_path / "a.jpg", random_values([0, 1, 2]))
    with pytest.raises(InputError, match=r"a.jpg: is JPEG, which changes values"):
        read_labels(path, TABLE)


def test_a_sample(tmp_path):
    values = random_values([0, 1, 255], (12, 16))
    image = save_image(tmp_path / "images/a.png")
    dataset = LabelledImages(
        "mine", [LabelledFrame("a", str(image), str(save(tmp_path / "labels/a.png", values)))], TABLE, crop=(8, 10)
    )
    batch = dataset[0]
    assert (batch.inputs["image"].shape, batch.inputs["image"].dtype) == ((3, 8, 10), torch.uint8)
    np.testing.assert_array_equal(batch.target.numpy(), values[4:, 3:13])
    assert torch.equal(batch.valid, batch.target != 255)
    np.testing.assert_array_equal(batch.inputs["image"][:, 0, 0].numpy(), np.asarray(Image.open(image))[4, 3])
    assert (dataset.frame_id(0), dataset.classes, len(dataset)) == ("a", TABLE, 1)
    with pytest.raises(IndexError, match="mine has frames 0 to 0, not 1"):
        dataset[1]


def test_image_and_label_of_different_sizes(tmp_path):
    image = save_image(tmp_path / "images/a.png", (12, 16))
    label = save(tmp_path / "labels/a.png", np.zeros((12, 17)))
    dataset = LabelledImages("mine", [LabelledFrame("a", str(image), str(label))], TABLE)
    with pytest.raises(InputError) as caught:
        dataset[0]
    assert str(caught.value).startswith(f"{tmp_path}/labels/a.png: is 12×17, but {tmp_path}/images/a.png is 12×16;")


def test_an_unknown_value_names_the_file(tmp_path):
    path = save(tmp_path / "a.png", [[0, 12]])
    with pytest.raises(InputError, match=r"a.png: value 12 in 1 pixel, first in row 0, column 1"):
        read_labels(path, CAMVID_IDS)


def test_scaling_takes_the_nearest_pixel():
    target = torch.arange(6).reshape(2, 3)
    twice = resized(target, (4, 6))
    assert torch.equal(twice, target.repeat_interleave(2, 0).repeat_interleave(2, 1))
    assert torch.equal(resized(twice, (2, 3)), target)
    third = torch.nn.functional.interpolate(target[None, None].double(), (7, 10), mode="nearest-exact")[0, 0]
    assert torch.equal(resized(target, (7, 10)), third.long())
