"""Class tables: what values stand for, decoded exactly, and complaints about those that stand for nothing."""

import itertools
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

from epibench.data.cityscapes_classes import CITYSCAPES, CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS, colours, label_ids
from epibench.data.classes import IGNORE, ClassTable, class_colours, read_classes, table_of_names
from epibench.data.sets.camvid import CAMVID, CAMVID_COLOURS, CAMVID_IDS
from epibench.data.sets.folder import CLASS_TABLES, find_classes
from epibench.errors import InputError
from label_files import random_values


def brute_force(table, picture):
    """Class by class, pixel by pixel."""
    classes = np.full(picture.shape[:2], -1)
    for value, number in table.values:
        classes[np.all(picture == np.asarray(value), -1) if table.in_colour else picture == value] = number
    return classes


@pytest.mark.parametrize("name", CLASS_TABLES)
def test_decoding_equals_brute_force(name):
    table = CLASS_TABLES[name]
    values = np.array([value for value, _ in table.values], np.uint8)
    picture = values[np.random.default_rng(0).integers(0, len(values), (40, 50))]
    found = table.decode(picture, "a.png")
    assert found.dtype == torch.int64
    np.testing.assert_array_equal(found.numpy(), brute_force(table, picture))
    assert set(found.unique().tolist()) == {*range(table.num_classes), IGNORE}


def test_label_ids_and_train_ids_give_the_same_classes():
    train_ids = random_values([*range(len(CITYSCAPES)), IGNORE])
    decoded = CITYSCAPES_LABEL_IDS.decode(label_ids()[train_ids], "a.png")
    assert torch.equal(decoded, CITYSCAPES_TRAIN_IDS.decode(train_ids, "b.png"))
    np.testing.assert_array_equal(decoded.numpy(), train_ids)


def test_the_colours_of_cityscapes_are_the_official_ones():
    found = dict(zip(CITYSCAPES_TRAIN_IDS.names, CITYSCAPES_TRAIN_IDS.colours, strict=True))
    official = {"road": (128, 64, 128), "sky": (70, 130, 180), "person": (220, 20, 60), "bicycle": (119, 11, 32)}
    assert found | official == found
    np.testing.assert_array_equal(np.array(CITYSCAPES_TRAIN_IDS.colours), colours()[: len(CITYSCAPES)])


def test_camvid_merges_all_32_colours():
    originals = [colour for each in CAMVID for colour in each.parts.values()]
    assert len(originals) == len(set(originals)) == 31  # and void
    assert len(CAMVID_COLOURS.values) == 32
    decoded = CAMVID_COLOURS.decode(np.array([[(64, 128, 192), (192, 0, 64), (0, 0, 0)]], np.uint8), "a.png")
    assert decoded.tolist() == [[CAMVID_IDS.names.index("car"), CAMVID_IDS.names.index("road"), IGNORE]]


def test_segnets_void_is_not_counted():
    assert CAMVID_IDS.decode(np.array([[10, 11, 255]], np.uint8), "a.png").tolist() == [[10, IGNORE, IGNORE]]


def test_an_unknown_number_is_named_with_its_place():
    picture = np.zeros((5, 6), np.uint8)
    picture[2, 3:5] = 77
    with pytest.raises(InputError) as caught:
        CITYSCAPES_LABEL_IDS.decode(picture, "berlin.png")
    assert str(caught.value).startswith(
        "berlin.png: value 77 in 2 pixels, first in row 2, column 3: not in the class table"
    )


def test_unknown_colours_are_named():
    picture = np.zeros((2, 3, 3), np.uint8)
    picture[1] = [(1, 2, 3), (250, 0, 9), (1, 2, 3)]
    with pytest.raises(InputError, match=r"a.png: colours 1 2 3, 250 0 9 in 3 pixels, first in row 1, column 0"):
        CAMVID_COLOURS.decode(picture, "a.png")


def test_many_unknown_numbers_are_counted():
    with pytest.raises(InputError, match="values 19, 20, 21 and 2 more in 5 pixels"):
        CITYSCAPES_TRAIN_IDS.decode(np.arange(19, 24, dtype=np.uint8)[None], "a.png")


def test_a_table_can_be_sent_to_another_process():
    assert pickle.loads(pickle.dumps(CAMVID_COLOURS)) == CAMVID_COLOURS  # noqa: S301


def test_the_digest_tells_other_classes_but_not_other_colours():
    table = table_of_names(["a", "b"])
    assert table.digest == table_of_names(["a", "b"], "other").digest
    assert table.digest == replace(table, colours=((0, 0, 0), (1, 1, 1))).digest
    assert table.digest != table_of_names(["b", "a"]).digest
    assert table.digest != replace(table, values=((0, 1), (1, 0), (255, 255))).digest


@pytest.mark.parametrize("names", [[], ["a", "a"], ["a", ""], [str(number) for number in range(255)]])
def test_impossible_names_are_refused(names):
    with pytest.raises(InputError, match="class table 'mine'"):
        table_of_names(names, "mine")


def test_colours_of_ones_own_classes_are_distinct_and_stay():
    found = class_colours(40)
    assert found[:5] == class_colours(5)
    assert min(np.abs(np.subtract(a, b)).max() for a, b in itertools.combinations(found, 2)) >= 15


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_table_of_numbers(tmp_path):
    table = read_classes(
        write(tmp_path / "mine.csv", "value,name,colour\n7,road,#804080\n0,\n9,car\n8,road\n12,tree,0 200 0\n")
    )
    assert (table.name, table.names, table.num_classes) == ("mine", ("road", "car", "tree"), 3)
    assert table.decode(np.array([[7, 0, 9, 8, 12, 255]], np.uint8), "a").tolist() == [[0, IGNORE, 1, 0, 2, IGNORE]]
    assert table.colours == ((128, 64, 128), class_colours(2)[1], (0, 200, 0))


def test_a_table_of_colours(tmp_path):
    table = read_classes(write(tmp_path / "mine.csv", "128 64 128,road\n#000000,\n64 0 128,car,1 2 3\n255 0 0,road\n"))
    assert table.in_colour
    picture = np.array([[(128, 64, 128), (0, 0, 0), (64, 0, 128), (255, 0, 0)]], np.uint8)
    assert table.decode(picture, "a").tolist() == [[0, IGNORE, 1, 0]]
    assert table.colours == ((128, 64, 128), (1, 2, 3))


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_and_a_byte_order_mark(tmp_path, delimiter):
    text = "\ufeff" + "value,name\r\n\r\n0,road\r\n1,traffic light\r\n".replace(",", delimiter)
    assert read_classes(write(tmp_path / "mine.csv", text)).names == ("road", "traffic light")


def test_255_may_be_a_class(tmp_path):
    table = read_classes(write(tmp_path / "mine.csv", "0,road\n255,sky\n"))
    assert table.decode(np.array([[0, 255]], np.uint8), "a").tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,road\n0,car\n", "line 2: value '0' has a row already"),
        ("0,road\n1 2 3,car\n", "line 2: '1 2 3' mixes numbers and colours"),
        ("256,road\n", "line 1: '256' is neither a number from 0 to 255 nor a colour"),
        ("0,road,red\n", "line 1: 'red' is no colour"),
        ("0,road,#112233\n1,road,#112234\n", "line 2: 'road' has another colour already"),
        ("0,road,1,2,3\n", "line 1: has 5 cells"),
        ("0,\n", "has no classes"),
        ("", "has no classes"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path, text, message):
    path = write(tmp_path / "mine.csv", text)
    with pytest.raises(InputError) as caught:
        read_classes(path)
    assert str(caught.value).startswith(f"{path}")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_table(tmp_path):
    with pytest.raises(InputError, match=r"none.csv: file is missing"):
        find_classes(str(tmp_path / "none.csv"))
    (tmp_path / "image.csv").write_bytes(b"\x89PNG\xff\xfe")
    with pytest.raises(InputError, match=r"image.csv: is no text in UTF-8"):
        find_classes(tmp_path / "image.csv")


def test_tables_are_found_by_name_file_or_names(tmp_path):
    assert find_classes("camvid") is CAMVID_IDS
    assert find_classes(str(write(tmp_path / "a.csv", "3,x\n"))).names == ("x",)
    assert find_classes(("a", "b")) == table_of_names(("a", "b"))
    with pytest.raises(InputError, match=r"classes 'citscapes': no class table .* nearest is cityscapes \("):
        find_classes("citscapes")


def test_as_many_colours_as_names():
    with pytest.raises(InputError, match="2 names, but 1 colours"):
        ClassTable("mine", ("a", "b"), ((0, 0, 0),), ((0, 0), (1, 1)))
