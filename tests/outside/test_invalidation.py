"""Effects of changes on the files of a run: every artefact is kept, made again, or the change is refused.

Every file of a run contains the seconds that it took, so a file that is made again has other bytes. The page contains
the results, so it has other bytes if the results have.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from small_recipes import SETTINGS as TOY_SETTINGS

import epibench
from label_files import random_values, save, save_image
from street_runs import (
    PASSES,
    RECIPE,
    SETTINGS,
    SIZE,
    as_options,
    epibench_command,
    flip_bit,
    numbers,
    scenes,
    texts,
)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


ARTEFACTS = {
    "weights": r"members/(\w+/\d{4}(?:-\d{4})?)(?:\.\d+)?\.safetensors",
    "fits": r"members/(\w+/\d{4})\.posterior\.safetensors",
    "states": r"evaluation/(\w+)[/-](?:(\w+)-)?\w{8}\.(?:json|(cost)\.json|stretches/.*)",
    "results": r"(results)\.json",
    "page": r"(report)\.html",
}
# A cell is `kept` (no file was written), `again` (all were written), or `+text` (those with this text in their names).
# `refused: text`: one line with this text, and no file was written. `failed: text`: one method has failed.
# change                     weights     fits   states              results  page     commands
STREET = """
another seed               | refused: seed (0 there, 1 now)                        | run seed=1
another learning rate      | refused: ensemble.learning_rate (0.01 there, 0.5 now) | run RATE
more epochs                | refused: ensemble.num_epochs (1 there, 2 now)         | run ensemble.num_epochs=2
another training batch     | refused: ensemble.batch_size (2 there, 4 now)         | run ensemble.batch_size=4
another crop               | refused: training.crop ([16, 32] there, [8, 8]        | run training.crop=[8,8]
no class weights           | refused: training.class_weights ("rare" there,        | run training.class_weights=null
a wider network            | refused: network.width (8 there, 16 now)              | run network.width=16
other training data        | refused: data.train.seed (0 there, 5 now)             | run data.train.seed=5
another seed, evaluated    | refused: networks were trained with another seed (0   | evaluate seed=1
another rate, evaluated    | refused: with another ensemble.learning_rate (0.01    | evaluate RATE
a rate of other networks   | refused: ensemble.learning_rate (0.01 there, 0.5 now) | run MINE; run RATE MINE
a rate of their source     | refused: ensemble.learning_rate (0.01 there, 0.5 now) | run LAPLACE; run RATE LAPLACE
untrained, evaluated       | refused: missing: ensemble 1 of 3                     | evaluate ensemble.num_members=3
nothing, again             | kept        kept   kept                kept     kept  | run
nothing, evaluated         | kept        kept   kept                kept     kept  | evaluate
nothing, trained           | kept        kept   kept                kept     kept  | train
a shard of a finished run  | kept        kept   kept                kept     kept  | evaluate --shard 1/2
fewer draws                | kept        kept   +ensemble|laplace   again    again | run draws=1
more draws than exist      | kept        kept   kept                again    again | run draws=3
other M                    | kept        kept   again               again    again | run members=[2]
other M, a shard           | kept        kept   +ensemble|laplace/c kept     kept  | evaluate --shard 1/2 members=[2]
one shard, then the rest   | kept        kept   +clean|wild|mine    again    again | HALF; evaluate
one more domain            | kept        kept   +fog                again    again | run data.domains.fog=FOG
one more domain, evaluated | kept        kept   +fog                again    again | evaluate HAZE
one domain less            | kept        kept   kept                again    again | run data.domains=CLEAN
other data in a domain     | kept        kept   +wild               again    again | run data.domains.wild.seed=5
a domain renamed           | kept        kept   +storm              again    again | run data.domains=STORM
scenes in another folder   | kept        kept   kept                again    again | run data.cache=PLACE/scenes
two more networks          | +000[23]    kept   +ensemble           again    again | run FOUR
two more, then two less    | kept        kept   kept                again    again | run FOUR; run TWO
a network less             | kept        +0000  +laplace            again    again | run laplace.num_networks=1
more samples of the fit    | kept        again  +laplace            again    again | run laplace.num_samples=3
more passes                | kept        kept   +mine               again    again | run variants=THREE_PASSES
what divergence does       | kept        kept   kept                again    again | run ensemble.diverged=stop
another log                | kept        kept   kept                again    again | run training.log=none
another evaluation batch   | kept        kept   again               again    again | run evaluation.batch_size=1
precision, evaluated       | kept        kept   again               again    again | evaluate BF16
precision, and back        | kept        kept   kept                again    again | evaluate BF16; run
convention                 | kept        kept   again               again    again | run PUBLISHED
uncertainty                | kept        kept   again               again    again | run CONFIDENCE
window                     | kept        kept   again               again    again | run evaluation.window=[32,32]
more pictures              | kept        kept   again               again    again | run evaluation.pictures=2
an option of GPUs          | kept        kept   kept                again    again | run evaluation.cuda_graphs=true
stored predictions         | kept        kept   +clean|wild         again    again | run STORE
a store of other settings  | kept        kept   +clean|wild         again    again | STORE_TWICE; evaluate STORE
a method less              | kept        kept   kept                again    again | run methods=["ensemble","mine"]
a method more              | +map        kept   +map                again    again | run WITH_MAP
a variant renamed          | +other      kept   +other              again    again | run RENAMED
a variant labelled         | kept        kept   kept                again    again | run variants=LABELLED
another name of the recipe | kept        kept   kept                again    again | run name=words
results deleted            | kept        kept   kept                again    again | delete RESULTS; run
results damaged            | kept        kept   kept                again    again | damage RESULTS; run
page deleted               | kept        kept   kept                kept     again | delete report.html; run
page damaged               | kept        kept   kept                kept     again | damage report.html; run
recipe deleted             | refused: is not empty and holds no run                | delete recipe.json; recipe
recipe damaged             | refused: recipe.json: damaged                         | damage recipe.json; run
recipe damaged, and given  | kept        kept   kept                kept     kept  | damage recipe.json; recipe
weights deleted            | +ble/0001   kept   kept                again    again | delete WEIGHTS RESULTS; run
weights deleted, evaluated | refused: missing: ensemble 1 of 2                     | delete WEIGHTS RESULTS; evaluate
weights damaged            | failed: members/ensemble/0001.safetensors: damaged    | damage WEIGHTS; run members=[2]
unread weights damaged     | kept        kept   kept                again    again | damage WEIGHTS; delete RESULTS; run
fit deleted                | kept        +0001  kept                again    again | delete FIT RESULTS; run
fit damaged                | failed: laplace/0001.posterior.safetensors: damaged   | damage FIT; run members=[2]
a domain's state deleted   | kept        kept   +mine/wild          again    again | delete STATE RESULTS; run
a domain's state damaged   | kept        kept   +mine/wild          again    again | damage STATE; delete RESULTS; run
measured cost damaged      | kept        kept   +mine/cost          again    again | damage COST; delete RESULTS; run
evaluation deleted         | kept        kept   again               again    again | delete evaluation RESULTS; run
class counts damaged       | kept        kept   kept                again    again | damage COUNTS; delete RESULTS; run
networks deleted           | again       again  kept                again    again | delete members RESULTS; run
"""
# The run has a domain in files besides: its folder is `own`, below `data.root`.
FILES = """
nothing                    | kept        kept   kept                again    again | run
images moved               | kept        kept   kept                again    again | run data.root=PLACE/moved
other images elsewhere     | kept        kept   +own                again    again | run data.root=PLACE/other
images replaced            | kept        kept   +own                again    again | replace; run
images replaced, evaluated | kept        kept   +own                again    again | replace; evaluate
a shard of other images    | kept        kept   +clean|wild|own     again    again | SHARD_OF_OTHER; evaluate HERE
a domain titled            | kept        kept   kept                again    again | run data.domains.own.title=Mine
"""
TOY = """
another seed               | refused: seed (0 there, 1 now)                        | run seed=1
other layers               | refused: hidden ([10, 10] there, [5] now)             | run hidden=[5]
other training data        | refused: data.seed (0 there, 7 now)                   | run data.seed=7
nothing                    | kept        kept   -                   kept     kept  | run
fewer draws                | kept        kept   -                   again    again | run draws=2
fewer test points          | kept        kept   -                   again    again | run test_points=10
two more, then two less    | kept        kept   -                   again    again | run TEN; run EIGHT
two more, then one more    | +0010       kept   -                   again    again | run TEN; run ELEVEN
more samples of the fit    | kept        again  -                   again    again | run laplace.num_samples=5
a method more              | +sgld       kept   -                   again    again | run WITH_SGLD
a chain more               | +sgld/0002  kept   -                   again    again | run WITH_SGLD; run WITH_SGLD CHAINS
options of no network      | kept        kept   -                   again    again | run sgld.num_epochs=48
results deleted            | kept        kept   -                   again    again | delete RESULTS; run
weights damaged            | failed: ensemble/0000-0007.safetensors: damaged       | damage STACK; run draws=2
"""
VALUES = {
    "HAZE": "--on fog=street:haze,num_images=2,seed=1,size=[32,64]",
    "FOG": compact(scenes("haze")),
    "CLEAN": compact({"clean": scenes()}),
    "STORM": compact({"clean": scenes(), "storm": scenes("wild")}),
    "THREE_PASSES": compact({"mine": {**PASSES, "options": {**PASSES["options"], "num_passes": 3}}}),
    "LABELLED": compact({"mine": {**PASSES, "label": "Mine"}}),
    "WITH_MAP": 'methods=["ensemble","laplace","mine","map"] map.num_restarts=1 map.num_epochs=1 map.batch_size=2',
    "WITH_SGLD": 'methods=["ensemble","laplace","sgld"]',
    "RENAMED": f'methods=["ensemble","other"] variants={compact({"other": PASSES})}',
    "TWO": "ensemble.num_members=2",
    "FOUR": "ensemble.num_members=4",
    "EIGHT": "ensemble.num_members=8",
    "TEN": "ensemble.num_members=10",
    "ELEVEN": "ensemble.num_members=11",
    "CHAINS": "sgld.num_chains=3",
    "RATE": "ensemble.learning_rate=0.5",
    "MINE": 'methods=["mine"]',
    "LAPLACE": 'methods=["laplace"]',
    "STORE": "evaluation.store=true",
    "HERE": "data.root=PLACE/here",
    "SHARD_OF_OTHER": "delete evaluation results.json; evaluate --shard 1/1 data.root=PLACE/other",
    "HALF": "delete evaluation results.json; evaluate --shard 1/2",
    "STORE_TWICE": "evaluate evaluation.store=true; evaluate evaluation.store=true evaluation.precision=bf16-mixed",
    "BF16": "evaluation.precision=bf16-mixed",
    "PUBLISHED": "evaluation.convention=gustafsson2020",
    "CONFIDENCE": "evaluation.uncertainty=confidence",
    "RESULTS": "results.json",
    "WEIGHTS": "members/ensemble/0001.safetensors",
    "STACK": "members/ensemble/0000-0007.safetensors",
    "COUNTS": "members/class_counts.json",
    "FIT": "members/laplace/0001.posterior.safetensors",
    "STATE": "evaluation/mine/wild-*.json",
    "COST": "evaluation/mine-*.cost.json",
}


def rows(table: str) -> list[Any]:
    """Cells and commands of a table, as parameters."""
    found = [[cell.strip() for cell in line.split(" | ")] for line in table.strip().splitlines()]
    return [
        pytest.param(cells, re.sub(r"[A-Z_\d]{3,}", lambda name: VALUES.get(name[0], name[0]), commands), id=change)
        for change, cells, commands in found
    ]


SETTING = re.compile(r"(?!fog)[a-z_.]+=")
OLDER_SCORES_STAY = r"evaluation\.(precision|convention|uncertainty|window)"  # beside new ones, in the results
OWN = {"kind": "folder", "root": "own", "classes": ["road", "sky"]}
BASE = {
    "street": [RECIPE, *texts(SETTINGS)],
    "toy": ["toy-classification", *TOY_SETTINGS, 'methods=["ensemble","laplace"]'],
}
BASE["files"] = [*BASE["street"], f"data.domains.own={compact(OWN)}", "data.root=PLACE/here"]
Fresh = Callable[[str, tuple[str, ...], bool], Path]  # of a kind of run, further settings, whether images are replaced


def write_images(folder: Path, seed: int) -> None:
    for number in range(2):
        save_image(folder / f"images/{number}.png", SIZE, seed + number)
        save(folder / f"labels/{number}.png", random_values([0, 1, 255], SIZE, number))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images at three places: `other` has other content than `here`, `moved` the same."""
    place = tmp_path_factory.mktemp("place")
    for name, seed in (("here", 1), ("moved", 1), ("other", 2)):
        write_images(place / name / "own", seed)
    return place


@pytest.fixture(scope="module")
def fresh(place: Path) -> Fresh:
    """Make a run that has these settings from the start, once, and return its folder."""

    @cache
    def make(kind: str, more: tuple[str, ...], replaced: bool) -> Path:
        recipe, *settings = (text.replace("PLACE", str(place)) for text in BASE[kind])
        folder = place / f"{kind}-{replaced}-{hash(more)}"
        assert epibench.run(recipe, folder, [*settings, *more], device="cpu", jobs=1).failed == {}
        return folder

    return make


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def outcome(artefact: str, cell: str, before: dict[str, bytes], after: dict[str, bytes]) -> str:
    """The cell of an artefact; `cell` itself if it names the files that were written and no other."""
    found = {path: match for path in after if (match := re.fullmatch(ARTEFACTS[artefact], path))}
    names = {path: "/".join(filter(None, match.groups())) for path, match in found.items()}
    written = {name for path, name in names.items() if after[path] != before.get(path)}
    if not names:
        return "-"
    if not written:
        return "kept"
    if written == {*names.values()}:
        return "again"
    named = {name for name in names.values() if re.search(cell.removeprefix("+"), name)}
    return cell if cell.startswith("+") and written == named else f"+{sorted(written)}"


def check(cells: str, commands: str, kind: str, folder: Path, place: Path, fresh: Fresh) -> None:
    """Carry out the commands of a row in a copy of a run; compare files around the last."""
    shutil.copytree(fresh(kind, (), False), folder)
    settings, lasting = list[str](), list[str]()
    for command in commands.replace("PLACE", str(place)).split("; "):
        before, (verb, *words) = contents(folder), command.split()
        if verb in ("delete", "damage"):
            for path in [path for pattern in words for path in folder.glob(pattern)]:
                flip_bit(path) if verb == "damage" else shutil.rmtree(path) if path.is_dir() else path.unlink()
            assert contents(folder) != before
        elif verb == "replace":
            write_images(place / "here/own", seed=2)
        else:
            status, said = epibench_command(*arguments(verb, words, kind, folder))
            added = ["data.domains.fog=" + VALUES["FOG"]] if "--on" in words else words if verb != "recipe" else []
            settings = [*lasting, *(text for text in added if SETTING.match(text))]
            lasting = [text for text in settings if verb == "run" or not text.startswith("evaluation.")]
    after = contents(folder)
    refused, failed = (cells.partition(f"{word}: ")[2] for word in ("refused", "failed"))
    assert status == (2 if refused or failed else 0), said
    assert (refused or failed) in (said.splitlines() or [""])[-1]
    if refused:
        assert after == before
    elif failed:
        assert all(after[path] == content for path, content in before.items() if path.startswith(("mem", "eval")))
    else:
        wanted = cells.split()
        assert [outcome(*pair, before, after) for pair in zip(ARTEFACTS, wanted, strict=True)] == wanted
    if not (refused or failed or "--shard" in command):
        found = epibench.load_results(folder)
        assert numbers(found) == numbers(epibench.load_results(fresh(kind, tuple(settings), "replace" in commands)))
        assert (len(found.scores) > len(found.latest())) == bool(re.search(OLDER_SCORES_STAY, commands))


def arguments(verb: str, words: list[str], kind: str, folder: Path) -> list[object]:
    """A command of a row as the command line has it."""
    recipe, *own = BASE[kind]
    given = own if verb == "recipe" else [text for text in words if SETTING.match(text)]
    run: list[object] = ["run", recipe, "--out", folder] if verb == "recipe" else [verb, folder]
    options = [word for word in words if word not in given]
    jobs = [] if verb == "evaluate" else ["--jobs", "1"]
    return [*run, *jobs, *options, *as_options(given)]


@pytest.mark.parametrize(("cells", "commands"), rows(STREET))
def test_changes_of_a_run_on_street_scenes(cells, commands, tmp_path, place, fresh) -> None:
    check(cells, commands, "street", tmp_path / "run", place, fresh)


@pytest.mark.parametrize(("cells", "commands"), rows(FILES))
def test_changes_of_images_in_files(cells, commands, tmp_path, place, fresh) -> None:
    try:
        check(cells, commands, "files", tmp_path / "run", place, fresh)
    finally:
        write_images(place / "here/own", seed=1)


@pytest.mark.parametrize(("cells", "commands"), rows(TOY))
def test_changes_of_a_toy_problem(cells, commands, tmp_path, place, fresh) -> None:
    check(cells, commands, "toy", tmp_path / "run", place, fresh)
