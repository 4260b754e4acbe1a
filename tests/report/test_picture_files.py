"""Pictures beside results: written before them, checked when they are read, removed when no results name them."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import fake
import pytest

from epibench import load_results
from epibench.errors import InputError
from epibench.files import DamagedError, with_checksum
from epibench.report import write_run_page
from epibench.results import RESULTS_NAME, PictureFile, Results

KINDS = pytest.mark.parametrize("kind", ["gaussian", "categorical"])


def saved(folder: Path, results: Results, name: str = RESULTS_NAME) -> Path:
    results.save(folder / name)
    return folder / name


def named(file: Path) -> set[str]:
    return set(re.findall(r'"(pictures/[^"]+)"', file.read_text(encoding="utf-8")))


def files(folder: Path) -> set[str]:
    return {f"pictures/{path.name}" for path in (folder / "pictures").iterdir()}


@KINDS
def test_loaded_results_have_the_same_page_as_those_in_memory(kind: str, tmp_path: Path) -> None:
    made = fake.small(kind)
    file = saved(tmp_path, made)
    assert named(file) == files(tmp_path)
    assert load_results(file).computed() == made.computed()
    pages = [write_run_page([each], tmp_path / "page.html", ["run"]).read_text() for each in (made, load_results(file))]
    assert pages[0] == pages[1]
    assert pages[0].count("data:image/png;base64") > 8


def test_another_picture_is_another_result() -> None:
    made, other = fake.small(), fake.small()
    assert made.computed() == other.computed()
    other.domains["clean"].pictures[0].photo = PictureFile.of(b"another")
    assert made.computed() != other.computed()


def test_equal_pictures_are_one_file(tmp_path: Path) -> None:
    made = load_results(saved(tmp_path, fake.small()))
    clean, wild = (made.domains[name].pictures[0] for name in ("clean", "wild"))
    assert clean.photo.name == wild.photo.name
    texts = re.findall("pictures/", (tmp_path / RESULTS_NAME).read_text())
    assert len(texts) > len(files(tmp_path)) > 8


def test_results_follow_their_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order, replace = [], os.replace
    monkeypatch.setattr(os, "replace", lambda source, target: (order.append(Path(target)), replace(source, target)))
    saved(tmp_path, fake.small())
    assert len(order) > 8
    assert [path.parent.name == "pictures" for path in order] == [*[True] * (len(order) - 1), False]


def test_pictures_are_read_only_for_pages(tmp_path: Path) -> None:
    results = load_results(saved(tmp_path, fake.small()))
    for name in files(tmp_path):
        (tmp_path / name).unlink()
    assert len(results.frame("draws")) > 0
    assert load_results(tmp_path).computed() == fake.small().computed()


def altered(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"\0")


def replaced(path: Path) -> None:
    """Another picture that can be decoded."""
    other = next(each for each in path.parent.glob(f"*{path.suffix}") if each != path)
    path.write_bytes(other.read_bytes())


def hole(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(2**36)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("damage", [Path.unlink, altered, replaced, hole, pipe, device, folder])
def test_a_page_leaves_a_damaged_picture_out_and_names_it(damage: Callable[[Path], None], tmp_path: Path) -> None:
    results = load_results(saved(tmp_path, fake.small()))
    std = fake.score(results, "ensemble", "clean").pictures[0].std
    assert std is not None
    file = tmp_path / std.png.name
    assert "no picture<" not in write_run_page([results], tmp_path / "whole.html").read_text()
    damage(file)
    with pytest.warns(UserWarning, match=rf"^{file}: (missing|damaged)\. Fix: .*\.$") as warned:
        page = write_run_page([results], tmp_path / "page.html").read_text()
    assert len({str(each.message) for each in warned}) == 1
    assert page.count("no picture<") == 1


def test_a_missing_folder_of_pictures_is_one_line(tmp_path: Path) -> None:
    made = load_results(saved(tmp_path / "made", fake.small()))
    (tmp_path / "made" / "pictures").rename(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match=rf"^{tmp_path}/made/pictures: missing\. Fix: ") as warned:
        write_run_page([made], tmp_path / "page.html")
    assert len({str(each.message) for each in warned}) == 1


@pytest.mark.parametrize("name", ["pictures/../../x.png", "/etc/passwd", "pictures/x.png", "iVBORw0KGgo=", "", 3, None])
def test_other_names_are_refused(name: object, tmp_path: Path) -> None:
    file = saved(tmp_path, fake.small())
    content = json.loads(file.read_text())
    content.pop("checksum")
    content["domains"]["clean"]["pictures"][0]["photo"] = name
    file.write_text(with_checksum(json.dumps(content, indent=1)))
    with pytest.raises(InputError, match=r"domains\.clean\.pictures\.0\.photo: .*not the name of a picture") as refused:
        load_results(file)
    assert "\n" not in str(refused.value)


def test_pictures_that_no_results_name_are_removed(tmp_path: Path) -> None:
    first = saved(tmp_path, fake.small(), "a.json")
    second = saved(tmp_path, fake.small("categorical"), "b.json")
    own = tmp_path / "pictures" / "mine.png"
    own.touch()
    both = named(first) | named(second)
    assert files(tmp_path) == both | {"pictures/mine.png"}
    first.rename(tmp_path / "kept.json")
    saved(tmp_path, fake.bare(), "a.json")
    saved(tmp_path, fake.bare(), "b.json")
    assert files(tmp_path) == named(tmp_path / "kept.json") | {"pictures/mine.png"}
    assert named(second) == set()


def test_saving_again_repairs_and_copies(tmp_path: Path) -> None:
    made = fake.small()
    file = saved(tmp_path / "a", made)
    before = {name: (tmp_path / "a" / name).read_bytes() for name in files(tmp_path / "a")}
    damaged, missing, *_ = sorted(before)
    altered(tmp_path / "a" / damaged)
    (tmp_path / "a" / missing).unlink()
    with pytest.raises(DamagedError, match=damaged):
        load_results(file).save(tmp_path / "b" / RESULTS_NAME)
    made.save(file)
    load_results(file).save(tmp_path / "b" / RESULTS_NAME)
    for folder in ("a", "b"):
        assert {name: (tmp_path / folder / name).read_bytes() for name in files(tmp_path / folder)} == before


def link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parents[1] / "mine.txt")


@pytest.mark.parametrize("damage", [pipe, link, device])
def test_saving_replaces_links_and_pipes(damage: Callable[[Path], None], tmp_path: Path) -> None:
    saved(tmp_path, fake.small())
    (tmp_path / "mine.txt").write_text("mine")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    damage(tmp_path / min(before))
    saved(tmp_path, fake.small())
    assert not (tmp_path / min(before)).is_symlink()
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_a_device_gets_results_without_pictures(tmp_path: Path) -> None:
    (tmp_path / "out.json").symlink_to("/dev/null")
    fake.small().save(tmp_path / "out.json")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_pictures_are_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "run", fake.small())
    monkeypatch.chdir(tmp_path / "run")
    results = load_results(".")
    monkeypatch.chdir(tmp_path)
    results.save("copy/results.json")
    assert files(tmp_path / "copy") == files(tmp_path / "run")
