"""Whatever lies damaged in a run folder is refused by its name, or made anew: no other number comes out.

Every case damages a copy of a finished or an unfinished run and gives the same command again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_recipes import small
from small_segmentation_recipe import small_segmentation

import epibench
from epibench import files
from epibench.recipes import Recipe
from street_runs import epibench_command, numbers

pytestmark = pytest.mark.usefixtures("eager")
REMEDIES = (
    "give yourself read access",
    "remove it",
    "remove the file",
    "give another --out",
    "give a new folder",
    "run the same command again",
)


class Killed(BaseException):
    """As a kill: nothing catches it."""


def image_recipe(cache: Path, *settings: str) -> Recipe:
    """Two networks, two domains, weights by class, and stores."""
    one = ('methods=["ensemble"]', "ensemble.num_members=2", "members=[1,2]", "draws=2", "training.class_weights=rare")
    few = ("data.domains.clean.num_images=3", "data.domains.wild.num_images=2", "evaluation.batch_size=1")
    return small_segmentation(cache, *one, *few, "evaluation.store=true", *settings)


def toy_recipe(*settings: str) -> Recipe:
    return small("toy-regression", 'methods=["sgld"]', "test_points=5", *settings)


class Folders(NamedTuple):
    """Folders of runs by the state that they are in, their recipes, and the numbers of the finished ones."""

    place: Path
    recipes: dict[str, Recipe]
    numbers: dict[str, dict[str, Any]]


run = partial(epibench.run, device="cpu", jobs=1)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> Folders:
    place, cache = tmp_path_factory.mktemp("folders"), tmp_path_factory.mktemp("scenes")
    recipes = {"images": image_recipe(cache), "toy": toy_recipe()}
    found = {}
    for kind, recipe in recipes.items():
        found[kind] = numbers(run(recipe, place / f"{kind}-finished"))
        shutil.copytree(place / f"{kind}-finished", place / f"{kind}-evaluated")
        (place / f"{kind}-evaluated" / "results.json").unlink()
        shutil.copytree(place / f"{kind}-evaluated", place / f"{kind}-trained")
        for part in ("evaluation", "predictions"):
            shutil.rmtree(place / f"{kind}-trained" / part, ignore_errors=True)
        run(recipe.model_copy(update={"seed": 1}), place / f"{kind}-other-seed")
        with (
            pytest.raises(Killed),
            killed_after("*0001.unfinished.safetensors", 2),
        ):  # in the last training
            run(recipe, place / f"{kind}-training")
    stop_in_evaluation(place / "images-evaluating", recipes["images"], place / "images-trained")
    return Folders(place, recipes, found)


@contextmanager
def killed_after(name: str, count: int) -> Iterator[None]:
    """Kill what is done here once a file of such a name was put in place so many times."""
    replace, times = os.replace, itertools.count(1)

    def replace_and_die(source: Path, target: Path) -> None:
        replace(source, target)
        if fnmatch(Path(target).name, name) and next(times) == count:
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace_and_die)
        yield


def stop_in_evaluation(folder: Path, recipe: Recipe, trained: Path) -> None:
    """A run that was killed after the first image of its first domain."""
    shutil.copytree(trained, folder)
    with pytest.raises(Killed), killed_after("clean-*.unfinished.safetensors", 1):
        run(recipe, folder)


# What can happen to a file


def flip(place: float) -> Callable[[Path], None]:
    """One bit, at a share of the file."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 4
        path.write_bytes(content)

    return damage


def cut(share: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = path.read_bytes()
        path.write_bytes(content[: int(share * len(content))])

    return damage


def fill(content: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return damage


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0" * 8)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def folder_instead(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "something").touch()


def file_instead(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def unreadable(path: Path) -> None:
    path.chmod(0)


def notes(fix_checksum: bool = False, **changes: Any) -> Callable[[Path], None]:
    """Other notes in a file of tensors, with or without a checksum that fits them."""

    def damage(path: Path) -> None:
        tensors = load_file(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        metadata["notes"] = json.dumps({**json.loads(metadata["notes"]), **changes}, sort_keys=True)
        if fix_checksum:
            text = metadata["notes"].encode()
            metadata["notes_checksum"] = hashlib.blake2b(text, digest_size=16).hexdigest()
        save_file(tensors, path, metadata)

    return damage


def tensors(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Other tensors under the same checksum."""

    def damage(path: Path) -> None:
        values = load_file(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
        change(values)
        save_file(values, path, metadata)

    return damage


def bare(path: Path) -> None:
    """The tensors alone, as somebody else may have saved them."""
    save_file(load_file(path), path)


def edit(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Other JSON."""

    def damage(path: Path) -> None:
        content = json.loads(path.read_text())
        changed = change(content)
        path.write_text(json.dumps(content if changed is None else changed))

    return damage


def put(value: Any, *keys: Any) -> Callable[[Path], None]:
    """Another value in JSON."""

    def change(content: Any) -> None:
        *way, last = keys
        for key in way:
            content = content[key]
        assert content[last] != value
        content[last] = value

    return edit(change)


def drop(*keys: Any) -> Callable[[Path], None]:
    """A key less in JSON."""

    def change(content: Any) -> None:
        *way, last = keys
        for key in way:
            content = content[key]
        del content[last]

    return edit(change)


def copied(source: str) -> Callable[[Path, Path, Path], None]:
    """Another file in its place; source: below the folder of all runs, or below the same run if it begins with `./`."""

    def damage(path: Path, folder: Path, place: Path) -> None:
        shutil.copyfile(folder / source if source.startswith("./") else place / source, path)

    return damage


NESTED = b"[" * 100_000 + b"]" * 100_000
NESTED_LITTLE = b"[" * 500 + b"]" * 500
WEIGHTS = "members/ensemble/0001.safetensors"
STATE = "members/ensemble/0001.unfinished.safetensors"
SNAPSHOTS = ("members/sgld/0000-0001.000020.safetensors", "members/sgld/0000-0001.000024.safetensors")
TOY_STATE = "members/sgld/0000-0001.unfinished.safetensors"
SCORED = "evaluation/ensemble/clean-*.json"  # * stands for a fingerprint
SCORING = "evaluation/ensemble/clean-*.unfinished.safetensors"
COST = "evaluation/ensemble-*.cost.json"
STORED = "evaluation/ensemble/clean.stored"
COUNTS = "members/class_counts.json"
LEFTOVER = f".0001.safetensors.{files.machine()}-999999999-0{files.UNFINISHED}"
STORE = "predictions/ensemble/clean.zarr"
RMSE = ("score", "summary", "2", "miou", "mean")
REFUSED, ANEW, SAME = "refused", "made anew", "not needed"


@dataclass(frozen=True)
class Case:
    """What happens to a file of a run in some state, and what the same command does then."""

    state: str
    file: str
    what: str
    damage: Callable[..., None]
    outcome: str
    needs_user: bool = field(default=False, kw_only=True)  # root may read everything

    def __str__(self) -> str:
        return f"{self.state}: {self.file}: {self.what}"


TENSOR_DAMAGES = {
    "a bit of the tensors": flip(0.9),
    "the last bit": flip(1.0),
    "a bit of the header": flip(0.002),
    "a bit of its length": flip(0.0),
    "cut in half": cut(0.5),
    "cut by a little": cut(0.999),
    "empty": fill(b""),
    "longer": longer,
    "other bytes": fill(b"\xff" * 1000),
    "a folder": folder_instead,
    "other notes": notes(seconds=1.0),
    "other fingerprint": notes(fix_checksum=True, fingerprint="0" * 32),
    "no metadata": bare,
    "a tensor less": tensors(lambda values: values.pop(min(values))),
    "a tensor more": tensors(lambda values: values.update(more=next(iter(values.values())).clone())),
    "NaN": tensors(
        lambda values: next(each for each in values.values() if each.is_floating_point()).fill_(float("nan"))
    ),
}
JSON_DAMAGES = {
    "empty": fill(b""),
    "cut in half": cut(0.5),
    "nested deeply": fill(NESTED),
    "nested": fill(NESTED_LITTLE),
    "not UTF-8": fill(b'{"version": "\xff\xfe"}'),
    "a list": fill(b"[1, 2]"),
    "null": fill(b"null"),
    "a folder": folder_instead,
}
SCORE_DAMAGES = {
    "another number": put(0.123, *RMSE),
    "a number of a draw": put(0.123, "score", "draws", 0, "metrics", "miou"),
    "text for a number": put("0.5", *RMSE),
    "null for a number": put(None, *RMSE),
    "NaN for a number": put(float("nan"), *RMSE),
    "a number for a part": put(5, "score", "summary"),
    "text for a key": edit(
        lambda content: content["score"]["summary"].update(two=content["score"]["summary"].pop("2"))
    ),
    "a key less": drop(*RMSE),
    "a part less": drop("score", "draws"),
    "a part more": put(1, "checksum"),
    "other fingerprint": put("0" * 32, "fingerprint"),
    "no fingerprint": drop("fingerprint"),
}
RESULT_DAMAGES = {
    "another number": put(0.123, "scores", 0, *RMSE[1:]),
    "other checksum": put("0" * 32, "checksum"),
    "no checksum": drop("checksum"),
}
CASES = [
    *(Case("images-trained", WEIGHTS, what, damage, REFUSED) for what, damage in TENSOR_DAMAGES.items()),
    *(Case("images-training", STATE, what, damage, REFUSED) for what, damage in TENSOR_DAMAGES.items()),
    *(
        Case(state, file, what, TENSOR_DAMAGES[what], REFUSED)
        for state, file in (
            ("images-evaluating", SCORING),
            ("toy-evaluated", SNAPSHOTS[0]),
            ("toy-training", TOY_STATE),
        )
        for what in (
            "a bit of the tensors",
            "cut in half",
            "other notes",
            "other fingerprint",
            "a tensor less",
            "a folder",
        )
    ),
    *(
        Case("images-training", STATE, f"{name} {value} {word}", notes(fixed, **{name: value}), REFUSED)
        for fixed, word in ((False, "alone"), (True, "with its checksum"))
        for name, value in (("step", 2), ("step", 0), ("step", 10**9), ("seconds", -1), ("log", [[1, "x", 0]]))
    ),
    *(
        Case("images-evaluating", SCORING, f"{name} {value} {word}", notes(fixed, **{name: value}), REFUSED)
        for fixed, word in ((False, "alone"), (True, "with its checksum"))
        for name, value in (("images", 0), ("images", 10**9), ("pixels", -1), ("forward_seconds", None))
    ),
    Case("images-evaluating", SCORING, "images 2 alone", notes(images=2), REFUSED),
    Case("images-evaluating", SCORING, "pixels 1 alone", notes(pixels=1), REFUSED),
    Case("toy-training", TOY_STATE, "step 3 alone", notes(step=3), REFUSED),
    Case("toy-training", TOY_STATE, "step 99 with its checksum", notes(True, step=99), REFUSED),
    Case("images-trained", WEIGHTS, "of another network", copied("./members/ensemble/0000.safetensors"), REFUSED),
    Case("images-trained", WEIGHTS, "of another recipe", copied(f"images-other-seed/{WEIGHTS}"), REFUSED),
    Case("images-trained", WEIGHTS, "a state instead", copied(f"images-training/{STATE}"), REFUSED),
    Case("images-training", STATE, "weights instead", copied("./members/ensemble/0000.safetensors"), REFUSED),
    Case("toy-evaluated", SNAPSHOTS[1], "another snapshot", copied(f"./{SNAPSHOTS[0]}"), REFUSED),
    Case("toy-evaluated", SNAPSHOTS[1], "of another recipe", copied(f"toy-other-seed/{SNAPSHOTS[1]}"), REFUSED),
    Case("images-training", STATE, "removed", remove, ANEW),
    Case("images-evaluating", SCORING, "removed", remove, ANEW),
    Case("toy-evaluated", SNAPSHOTS[0], "removed", remove, ANEW),
    Case("toy-evaluated", SNAPSHOTS[1], "removed", remove, ANEW),
    Case("toy-training", TOY_STATE, "removed", remove, ANEW),
    *(
        Case("images-evaluated", file, what, damage, REFUSED if what == "a folder" else ANEW)
        for file in (SCORED, COST)
        for what, damage in JSON_DAMAGES.items()
    ),
    *(Case("images-evaluated", SCORED, what, damage, ANEW) for what, damage in SCORE_DAMAGES.items()),
    Case("images-evaluated", COST, "another number", put(1, "parameters"), ANEW),
    *(
        Case("images-training", COUNTS, what, damage, REFUSED if what == "a folder" else ANEW)
        for what, damage in JSON_DAMAGES.items()
    ),
    Case("images-training", COUNTS, "another number", put(12345, "counts", 0), ANEW),
    Case("images-training", COUNTS, "removed", remove, ANEW),
    *(
        Case("images-finished", "results.json", what, damage, REFUSED if what == "a folder" else ANEW)
        for what, damage in {**JSON_DAMAGES, **RESULT_DAMAGES}.items()
    ),
    *(
        Case(state, "recipe.json", what, damage, REFUSED if what == "a folder" else ANEW)
        for state in ("toy-finished", "toy-training")
        for what, damage in JSON_DAMAGES.items()
    ),
    Case("images-training", "recipe.json", "another seed", put(5, "seed"), ANEW),
    Case("images-training", "recipe.json", "other draws", put(1, "draws"), ANEW),
    Case("images-training", "recipe.json", "a key more", put(1, "name"), ANEW),
    Case("images-training", "members/ensemble/0001.diverged.txt", "bytes", fill(b"\xff\x00\x80"), ANEW),
    Case("images-training", "members/ensemble/0001.diverged.txt", "words", fill(b"ensemble: NaN\n"), ANEW),
    Case("images-training", "members/ensemble/0001.diverged.txt", "a folder", folder_instead, ANEW),
    Case("images-trained", "members/ensemble/0001.diverged.txt", "bytes", fill(b"\xff\x00\x80"), SAME),
    Case("images-training", "members/ensemble/0001.lock", "left behind", fill(b"process 1 on nowhere\n"), ANEW),
    Case("images-training", "members/ensemble/0001.lock", "bytes", fill(b"\xff\xfe"), ANEW),
    Case("images-training", "members/ensemble/0001.lock", "a folder", folder_instead, REFUSED),
    Case("images-evaluating", "evaluation/ensemble/clean-*.lock", "left behind", fill(b""), ANEW),
    Case("images-evaluating", "evaluation/ensemble/clean-*.lock", "a folder", folder_instead, REFUSED),
    Case("toy-training", "members/sgld/0000-0001.lock", "left behind", fill(b""), ANEW),
    Case(
        "images-training",
        f"members/ensemble/.0001.safetensors.{files.machine()}-999999999-0{files.UNFINISHED}",
        "left behind",
        fill(b"half"),
        ANEW,
    ),
    Case("images-training", "members/ensemble/0000.csv", "other bytes", fill(b"\xff"), SAME),
    Case("images-training", "members/ensemble/0001.csv", "a folder", folder_instead, REFUSED),
    Case("images-evaluated", STORE, "removed", remove, ANEW),
    Case("images-evaluated", STORED, "of other settings", put("0" * 32, "fingerprint"), ANEW),
    Case("images-evaluating", STORED, "of other settings", put("0" * 32, "fingerprint"), ANEW),
    Case("images-evaluating", STORED, "empty", fill(b""), ANEW),
    Case("images-evaluating", STORED, "removed", remove, ANEW),
    Case("images-evaluated", STORE, "a file", file_instead, REFUSED),
    Case("images-evaluated", f"{STORE}/zarr.json", "removed", remove, REFUSED),
    Case("images-evaluated", f"{STORE}/zarr.json", "cut in half", cut(0.5), ANEW),
    Case("images-evaluated", f"{STORE}/logits/zarr.json", "removed", remove, ANEW),
    Case("images-evaluated", f"{STORE}/logits/c/1/2/0/0/0", "removed", remove, ANEW),
    Case("images-evaluating", f"{STORE}/logits/c/0/0/0/0/0", "removed", remove, REFUSED),
    Case("images-evaluating", f"{STORE}/zarr.json", "removed", remove, REFUSED),
    Case("images-evaluating", STORE, "removed", remove, ANEW),
    Case("images-evaluated", "evaluation", "a file", file_instead, REFUSED),
    Case("images-trained", "members", "a file", file_instead, REFUSED),
    Case("toy-evaluated", "members/sgld", "a file", file_instead, REFUSED),
    Case("images-evaluated", "predictions", "a file", file_instead, REFUSED),
    Case("images-finished", "report.html", "a folder", folder_instead, REFUSED),
    *(
        Case(state, file, "unreadable", unreadable, outcome, needs_user=True)
        for state, file, outcome in (
            ("images-trained", WEIGHTS, REFUSED),
            ("images-training", STATE, REFUSED),
            ("images-evaluated", SCORED, ANEW),
            ("images-training", "recipe.json", REFUSED),
            ("images-finished", "results.json", REFUSED),
        )
    ),
]


def find(folder: Path, file: str) -> Path:
    """The file of that name, with the fingerprint that others of the same evaluation have in their names."""
    start, star, ending = file.partition("*")
    if not star:
        return folder / file
    other = next(folder.glob(f"{start}*"))
    return other.with_name(other.name.partition(".")[0] + ending)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_damage_is_refused_by_its_name_or_what_was_damaged_is_made_anew(
    case: Case, folders: Folders, tmp_path: Path
) -> None:
    if case.needs_user and os.geteuid() == 0:
        pytest.skip("root may read everything")
    kind = case.state.partition("-")[0]
    folder, recipe = tmp_path / "run", tmp_path / "recipe.json"
    recipe.write_text(folders.recipes[kind].model_dump_json())
    shutil.copytree(folders.place / case.state, folder)
    file = find(folder, case.file)
    if case.damage.__qualname__.startswith("copied"):
        case.damage(file, folder, folders.place)
    else:
        case.damage(file)
    status, said = epibench_command("run", recipe, "--out", folder, "--jobs", 1)
    assert "Traceback" not in said
    if case.outcome == REFUSED:
        assert status == 2, said
        complaint = said.strip().splitlines()[-1]
        assert complaint.startswith("epibench: ")
        named = folder / STORE if case.file.startswith(STORE) else file
        assert str(named) in complaint or (named.name == "recipe.json" and str(folder) in complaint)
        assert any(remedy in complaint for remedy in REMEDIES), complaint
        assert complaint.count("epibench: ") == 1
    else:
        assert status == 0, said
        assert numbers(epibench.load_results(folder)) == folders.numbers[kind]
        assert not any(path.name.startswith(".") or path.suffix == ".lock" for path in folder.rglob("*"))
