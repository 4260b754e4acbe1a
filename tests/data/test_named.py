"""Domains as they are named on a command line or in a file."""

import json

import pytest

from epibench.data.named import NamedDomain, parse_domains
from epibench.data.sets import DATA_SETS
from epibench.errors import InputError


def parse_one(text):
    (domain,) = parse_domains([text])
    return domain


def complaint(*texts):
    with pytest.raises(InputError) as raised:
        parse_domains(texts)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("kind", [kind for kind in DATA_SETS if kind not in ("street", "own", "folder")])
def test_a_path_is_the_root_of_every_kind_in_files(kind):
    assert parse_one(f"mine={kind}:some/where") == NamedDomain("mine", {"kind": kind, "root": "some/where"})


def test_values_are_json_or_text():
    domain = parse_one('val=folder:/data,images=val,classes=["a, b","c"],crop=[64, 128],num_images=5,title="x, y"')
    assert domain.source == {
        "kind": "folder",
        "root": "/data",
        "images": "val",
        "classes": ["a, b", "c"],
        "crop": [64, 128],
        "num_images": 5,
        "title": "x, y",
    }


def test_the_street_needs_no_path():
    assert parse_one("clean=street").source == {"kind": "street"}
    assert parse_one("wild=street,domain=wild,severity=3").source == {"kind": "street", "domain": "wild", "severity": 3}
    assert parse_one("wild=street:,domain=wild") == parse_one("wild=street:wild")


def test_own_data_is_named_by_what_makes_it():
    source = parse_one('mine=own:package.module:name,options={"size": 3, "names": ["a", "b"]}').source
    assert source == {"kind": "own", "name": "package.module:name", "options": {"size": 3, "names": ["a", "b"]}}


def test_a_role_is_kept_apart_from_the_source():
    domain = parse_one("rain=camvid:/data,role=shifted")
    assert domain.role == "shifted"
    assert domain.source == {"kind": "camvid", "root": "/data"}


def test_a_file_holds_one_source(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"kind": "camvid", "root": "/a"}))
    (tmp_path / "b.toml").write_text('kind = "street"\nseverity = 2.0\nrole = "in-domain"\n')
    assert parse_one(f"one={tmp_path}/a.json,split=test").source == {"kind": "camvid", "root": "/a", "split": "test"}
    assert parse_one(f"two={tmp_path}/b.toml") == NamedDomain("two", {"kind": "street", "severity": 2.0}, "in-domain")


def test_a_file_holds_several_domains(tmp_path):
    (tmp_path / "all.toml").write_text('[val]\nkind = "camvid"\nroot = "/a"\n[rain]\nkind = "street"\nrole="shifted"\n')
    assert parse_domains([f"{tmp_path}/all.toml"]) == [
        NamedDomain("val", {"kind": "camvid", "root": "/a"}),
        NamedDomain("rain", {"kind": "street"}, "shifted"),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("camvid:/data", "give NAME=KIND:PATH"),
        ("val=", "give NAME=KIND:PATH"),
        ("val=camvit:/data", "no kind of data set 'camvit'; the nearest is camvid"),
        ("val=camvid:/data,splitt=val", "'camvid' has no setting 'splitt'; the nearest is split"),
        ("val=camvid:/data,split=vall", "split: input should be 'train', 'val', 'test' or 'all', not 'vall'"),
        ("val=camvid:/data,split", "'split' is no setting; give key=value"),
        ("val=camvid:/data,crop=[1,2", "has no counterpart"),
        ("val=camvid:/data,role=new", "role is 'new'; give in-domain or shifted"),
        ("a b=camvid:/data", "'a b' cannot be a name"),
        ("val=folder:/data", "'folder' needs classes=…"),
        ("val=own", "'own' needs name; give own:package.module:name"),
        ("val=nowhere.json", "nowhere.json: there is no such file"),
        ("nowhere.toml", "nowhere.toml: there is no such file"),
    ],
)
def test_every_mistake_is_one_line_that_names_it(text, words):
    assert words in complaint(text)


def test_a_name_stands_for_one_domain():
    assert "'val' is given twice" in complaint("val=street", "val=camvid:/data")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "give an object"),
        ("{", "cannot be read"),
        ('{"val": 3}', "has no kind of data set"),
        ('{"val": {"kind": "street", "dommain": "wild"}}', "all.json: val: 'street' has no setting 'dommain'"),
    ],
)
def test_a_mistake_in_a_file_names_the_file(tmp_path, content, words):
    (tmp_path / "all.json").write_text(content)
    text = complaint(f"{tmp_path}/all.json")
    assert words in text
    assert "all.json" in text
