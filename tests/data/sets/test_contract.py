"""Every data set: its line in DATA_SETS, its options in a recipe, and what `data check` says of it."""

import inspect
import json
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

import epibench.data.sets
from epibench.data.sets import DATA_SETS, AnySource
from epibench.data.sets.own import OwnSource
from epibench.errors import InputError
from named_recipes import recipe_of

ADAPTER = TypeAdapter(AnySource)
REQUIRED = {"folder": {"classes": ["a", "b"]}, "own": {"name": "collections:UserList"}}
NO_IMAGES = {"toy"}  # a file that is no source of images
ALL = pytest.mark.parametrize("name", DATA_SETS)
CHECKED = pytest.mark.parametrize("name", [name for name, source in DATA_SETS.items() if source.checked])


def source_of(name):
    return ADAPTER.validate_python({"kind": name, **REQUIRED.get(name, {})})


def test_every_file_is_listed():
    files = {path.stem for path in Path(epibench.data.sets.__file__).parent.glob("*.py")} - {"__init__"}
    assert files == {*DATA_SETS, *NO_IMAGES}
    for name, source in DATA_SETS.items():
        assert source.__module__ == f"epibench.data.sets.{name}"


@ALL
def test_its_kind_is_its_name(name):
    source = source_of(name)
    assert type(source) is DATA_SETS[name]
    assert source.kind == name


@ALL
def test_json_gives_the_same_source(name):
    source = source_of(name)
    assert ADAPTER.validate_json(ADAPTER.dump_json(source)) == source
    assert json.loads(ADAPTER.dump_json(source)) == source.model_dump(mode="json")


@ALL
def test_it_says_what_it_is(name):
    source = source_of(name)
    assert isinstance(source.label, str)
    assert source.label
    assert isinstance(source.version, str)
    assert source.version
    assert source.origin == source_of(name).origin
    assert source.shift is None or 0 <= source.shift <= 5
    assert all(source.origin != source_of(other).origin for other in DATA_SETS if other != name)


@ALL
def test_it_is_frozen_and_strict_about_names(name):
    with pytest.raises(ValidationError):
        ADAPTER.validate_python({"kind": name, **REQUIRED.get(name, {}), "colour": "green"})
    with pytest.raises(ValidationError):
        source_of(name).kind = "other"


@ALL
def test_only_so_many_images_can_be_asked_for(name):
    assert source_of(name).model_copy(update={"num_images": 3}).num_images == 3


@ALL
def test_a_recipe_takes_it_as_a_domain(name):
    given = json.dumps({"kind": name, **REQUIRED.get(name, {})})
    recipe = recipe_of("street-segmentation", f"data.domains.new={given}")
    assert recipe.data.domains["new"] == source_of(name)


@CHECKED
def test_what_the_check_opens_names_the_folder_that_is_missing(name, tmp_path):
    source = DATA_SETS[name]
    options = {"classes": "camvid"} if name == "folder" else {}
    if name == "street":
        assert all(len(part()) for split in source.splits() for part in split.parts)
        return
    with pytest.raises(InputError) as error:
        [part() for split in source.splits(root=str(tmp_path), **options) for part in split.parts]
    assert str(tmp_path) in str(error.value)


@CHECKED
def test_the_check_says_where_to_get_what_is_not_made_here(name):
    where = DATA_SETS[name].where
    assert (where is None) == (name in ("street", "folder"))
    assert where is None or "\n" not in where


def test_ones_own_is_not_checked_from_a_folder():
    assert not OwnSource.checked


@ALL
def test_it_reads_well(name):
    assert inspect.getdoc(DATA_SETS[name])
