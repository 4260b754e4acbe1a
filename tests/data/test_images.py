"""Picture files: exact decoding, the part of them that is used, and complaints that name the file."""

import re

import numpy as np
import pytest
import torch
from PIL import Image

from epibench.data.images import bottom_centre, check_crop, check_partners, list_files, read_depth, read_image
from epibench.errors import InputError

VALUES = [0, 1, 255, 256, 65535]


def save(path, pixels, mode=None):
    picture = Image.fromarray(np.asarray(pixels))
    (picture if mode is None else picture.convert(mode)).save(path)
    return path


@pytest.fixture
def colours():
    return np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)


def test_an_image_is_decoded_exactly(tmp_path, colours):
    image = read_image(save(tmp_path / "a.png", colours))
    assert image.dtype == torch.uint8
    assert image.is_contiguous()
    np.testing.assert_array_equal(image.numpy().transpose(1, 2, 0), colours)


def test_jpeg(tmp_path):
    image = read_image(save(tmp_path / "a.jpg", np.full((16, 24, 3), 100, np.uint8)))
    assert image.shape == (3, 16, 24)
    assert (image.int() - 100).abs().max() <= 2


def test_grey_becomes_three_equal_channels(tmp_path, colours):
    image = read_image(save(tmp_path / "a.png", colours[..., 0]))
    for channel in image:
        np.testing.assert_array_equal(channel.numpy(), colours[..., 0])


@pytest.mark.parametrize("mode", ["RGBA", "P", "LA", "1"])
def test_other_modes_become_rgb(tmp_path, colours, mode):
    path = save(tmp_path / "a.png", colours, mode)
    with Image.open(path) as picture:
        expected = np.asarray(picture.convert("RGB"))
    np.testing.assert_array_equal(read_image(path).numpy().transpose(1, 2, 0), expected)


def test_one_pixel(tmp_path):
    assert read_image(save(tmp_path / "a.png", np.full((1, 1, 3), 7, np.uint8))).tolist() == [[[7]]] * 3
    assert read_depth(save(tmp_path / "b.png", np.full((1, 1), 512, np.uint16)), 256).tolist() == [[2.0]]


@pytest.mark.parametrize("per_metre", [256, 100])
def test_depth_is_decoded_exactly(tmp_path, per_metre):
    depth = read_depth(save(tmp_path / "a.png", np.array([VALUES, VALUES[::-1]], np.uint16)), per_metre)
    assert depth.dtype == torch.float32
    nearest = (np.array(VALUES, np.float64) / per_metre).astype(np.float32)
    np.testing.assert_array_equal(depth.numpy(), [nearest, nearest[::-1]])


def test_every_value_of_16_bits_survives(tmp_path):
    values = np.arange(2**16, dtype=np.uint16).reshape(256, 256)
    depth = read_depth(save(tmp_path / "a.png", values), 256)
    np.testing.assert_array_equal((depth.double() * 256).numpy(), values)


def test_16_bits_are_no_image(tmp_path):
    with pytest.raises(InputError, match=r"a\.png: has more than 8 bits per channel"):
        read_image(save(tmp_path / "a.png", np.zeros((2, 2), np.uint16)))


@pytest.mark.parametrize("pixels", [np.zeros((2, 2), np.uint8), np.zeros((2, 2, 3), np.uint8)])
def test_8_bits_are_no_depth(tmp_path, pixels):
    with pytest.raises(InputError, match=r"a\.png: is no 16-bit grey PNG"):
        read_depth(save(tmp_path / "a.png", pixels), 256)


@pytest.mark.parametrize("left", [0.02, 0.1, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_named(tmp_path, left):
    values = np.random.default_rng(0).integers(0, 2**16, (20, 20)).astype(np.uint16)
    path = save(tmp_path / "part.png", values)
    whole = path.read_bytes()
    path.write_bytes(whole[: round(left * len(whole))])
    with pytest.raises(InputError) as caught:
        read_depth(path, 256)
    assert re.match(
        rf"{path}: is (no PNG file|broken or truncated \(.*\)); unpack or download it again$", str(caught.value)
    )


@pytest.mark.parametrize("read", [read_image, lambda path: read_depth(path, 256)])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"<html>log in first</html>"), "is no PNG"),
        (lambda path: path.write_bytes(b""), "is no PNG"),
        (lambda path: path.mkdir(), "cannot be read (Is a directory)"),
        (lambda path: None, "cannot be read (No such file or directory)"),
    ],
)
def test_what_is_no_picture_is_named(tmp_path, read, make, message):
    path = tmp_path / "a.png"
    make(path)
    with pytest.raises(InputError) as caught:
        read(path)
    assert f"{path}: {message}" in str(caught.value)
    assert "\n" not in str(caught.value)


def positions(height, width):
    """(2, height, width): row and column of each pixel."""
    return torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"))


@pytest.mark.parametrize(
    ("size", "crop", "rows", "columns"),
    [
        ((375, 1242), (352, 1216), (23, 374), (13, 1228)),
        ((376, 1241), (352, 1216), (24, 375), (12, 1227)),  # 12 on the left, 13 on the right
        ((370, 1224), (352, 1216), (18, 369), (4, 1219)),
        ((352, 1216), (352, 1216), (0, 351), (0, 1215)),
        ((7, 8), (2, 3), (5, 6), (2, 4)),
        ((7, 8), None, (0, 6), (0, 7)),
    ],
)
def test_the_bottom_centre(size, crop, rows, columns):
    picture = positions(*size)
    cut = picture[bottom_centre({"a": picture}, crop)]
    assert cut.shape[1:] == (size if crop is None else crop)
    assert (cut[0].min(), cut[0].max()) == rows
    assert (cut[1].min(), cut[1].max()) == columns


@pytest.mark.parametrize("crop", [(8, 8), (7, 9)])
def test_a_picture_smaller_than_the_crop_is_named(crop):
    with pytest.raises(InputError, match=rf"a\.png: is 7×8, smaller than the crop {crop[0]}×{crop[1]}"):
        bottom_centre({"a.png": positions(7, 8)}, crop)


def test_sizes_that_differ_are_named():
    with pytest.raises(InputError, match=r"b\.png: is 7×9, but a\.png is 7×8"):
        bottom_centre({"a.png": positions(7, 8), "b.png": positions(7, 9)}, None)


@pytest.mark.parametrize("crop", [(0, 5), (5,), (1, 2, 3), (2.5, 4), 7, "big", (-1, 4)])
def test_a_wrong_crop_is_named(crop):
    with pytest.raises(InputError, match="crop"):
        check_crop(crop)


def test_files_are_listed_by_their_names_alone(tmp_path):
    for name in ("12.png", "13.png", "._12.png", "12.txt", "12.png.part", "a12.png"):
        (tmp_path / name).touch()
    found = list_files(tmp_path, re.compile(r"(\d+)\.png"), "")
    assert found == {("12",): str(tmp_path / "12.png"), ("13",): str(tmp_path / "13.png")}


def test_a_missing_folder_is_named_with_the_remedy(tmp_path):
    with pytest.raises(InputError, match=r"nowhere: folder is missing; look again$"):
        list_files(tmp_path / "nowhere", re.compile(""), "look again")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file: no folder \(Not a directory\); look again$"):
        list_files(tmp_path / "file", re.compile(""), "look again")


def test_partners():
    check_partners({("1",): "a/1"}, {("1",): "b/1", ("2",): "b/2"}, "b", "")
    with pytest.raises(InputError, match=r"^a/1 \(and 1 more\): what belongs to it is missing in b; look again$"):
        check_partners({("2",): "a/2", ("1",): "a/1"}, {}, "b", "look again")
