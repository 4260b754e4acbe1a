"""The commands of README.md, CONTRIBUTING.md and docs/ run, or stop at an input that only the user has.

Bash expands the ```sh fences of a page and records their commands. Each command then runs in this process, on recipes
that are cut down after their settings were checked. Commands within sentences are parsed.
"""

from __future__ import annotations

import argparse
import gc
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from small_recipes import SETTINGS

import epibench.recipes
from epibench.cli.adapter import Command
from epibench.recipes import apply_settings
from epibench.recipes.settings import known_keys
from epibench.reference.predictions import load_reference, shipped_reference
from epibench.runs import run as run_module
from epibench.runs.machine import Machine

Run = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).parents[2]
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))
}
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:epibench|make|python) [^`]+)`")
SKIPPED = ("pip", "ray")  # they install packages and start a cluster
PAGES = [page for page, text in TEXTS.items() if any(kind == "sh" for kind, _ in FENCE.findall(text))]

# What a page takes as given, as commands; page.py is its code.
GIVEN = {
    "README.md": "python page.py",
    "docs/methods.md": 'echo "$(<page.py)" > snapshots.py',
    "docs/performance.md": "epibench run street-depth-quick --out RUN",
    "docs/reports.md": """
        epibench run street-segmentation-quick
        epibench run street-depth-quick --out RUN --set evaluation.store=true --set 'methods=["ensemble"]'
        epibench run toy-regression-quick --out OTHER_RUN
        epibench score RUN/predictions/ensemble/clean.zarr --json scores.json
    """,
    "docs/running.md": "epibench run street-depth-quick --out RUN",
    "docs/scaling.md": "epibench run street-depth --out RUN",
    "docs/stores.md": "python page.py",
}
# Commands that need what only the user has, and what they say: the first entry that a command fits counts.
MISSING = {
    r"--classes FILE\.csv": r"FILE\.csv: file is missing; give a class table",
    r"mine/classes\.csv": r"mine/classes\.csv: file is missing; give a class table",
    r"data check .* network\.backbone_weights=": r"\bDIR/\S*: folder is missing|: no such file; backbone_weights names",
    r"\bDIR\b": r"\bDIR\b\S*: folder is missing",
    r"published_training_data\.npz": r"published_training_data\.npz: no such file",
    r"report runs/toy-\*": r"runs/toy-\*: there is no such file or folder",
    r"video RUN --on kitti": r"--on kitti: the run has no such domain",
}
RECORD = r"""
record() { { printf '%s\0' "$(/usr/bin/readlink /proc/self/fd/3)" "$PWD" "$@" $'\n'; } 3>&1 >> "$CALLS"; }
command_not_found_handle() { record "$@"; }
sh() { /bin/bash "$@"; }
sbatch() {
  while [[ $1 == --* ]]; do [[ $1 == --wrap ]] && { eval "$2"; return; }; shift; done
  INDEX=0 COUNT=2 sh "$@"
}
export -f record command_not_found_handle
"""
TINY = (
    *("training.epoch_steps=1", "training.crop=[16, 32]", "evaluation.pictures=0", "evaluation.compile=false"),
    *("sgld.warm_up_epochs=8", "sghmc.warm_up_epochs=8", "cyclical.warm_up_epochs=8"),
    *(setting for setting in SETTINGS if not setting.startswith("reference.")),
    "draws=2",
)


@dataclass(frozen=True)
class Call:
    """A command, the folder that it is called in, and where its output goes."""

    output: Path
    folder: Path
    words: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join(self.words)


def calls_of(page: str, folder: Path) -> list[Call]:
    """The commands of a page, with variables, loops and redirections resolved by bash."""
    script = "\n".join((GIVEN.get(page, ""), *(code for kind, code in FENCE.findall(TEXTS[page]) if kind == "sh")))
    script = script.replace(" /shared/", f" {folder}/shared/").replace(" s3://", f" file://{folder}/")
    (folder / "page.py").write_text("\n".join(code for kind, code in FENCE.findall(TEXTS[page]) if kind == "python"))
    calls, program = folder / "calls", folder / "bin" / "epibench"  # a program, as array.sh replaces itself by it
    calls.write_text("")
    program.parent.mkdir(exist_ok=True)
    program.write_text('#!/bin/bash\nrecord epibench "$@"')
    program.chmod(0o755)
    env = {"CALLS": str(calls), "PATH": str(program.parent)}
    done = subprocess.run(["/bin/bash", "-c", RECORD + script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.stderr == ""
    records = [record.split("\0") for record in calls.read_text().split("\0\n\0")[:-1]]
    return [Call(Path(output), Path(at), tuple(words)) for output, at, *words in records]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that holds the examples, as itself and as examples/."""
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    (tmp_path / "examples").symlink_to(".")
    script = (tmp_path / "outside.py").read_text()
    counts = "STEPS, BATCH, NETWORKS = 120, 8, 4"
    assert counts in script
    (tmp_path / "outside.py").write_text(script.replace(counts, "STEPS, BATCH, NETWORKS = 1, 1, 2"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    gc.freeze()  # what tests have imported: commands collect garbage
    yield tmp_path
    gc.unfreeze()
    for name in ("own", "outside", "snapshots"):
        sys.modules.pop(name, None)


def shrunk(recipe: Any, settings: list[str]) -> Any:
    """The recipe with these settings, cut down."""
    recipe = apply_settings(recipe, settings)
    known = set(known_keys(recipe.model_dump(mode="json")))
    data = {"num_images": 1, "size": [32, 64]}
    own = [f"{key}={data[name]}" for key in known if (name := key.rpartition(".")[2]) in data]
    own.append(f"members={[size for size in recipe.members if size <= 2] or [1]}")
    return apply_settings(recipe, [*(setting for setting in TINY if setting.partition("=")[0] in known), *own])


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small recipes whose cost is not measured, one process, and references that were sampled before."""

    def copied(problem: Any, settings: Any, out: Path, *others: Any) -> Any:
        shutil.copy(shipped_reference(problem.name), out)
        return load_reference(out)

    monkeypatch.setattr("epibench.reference.make.make_reference", copied)
    monkeypatch.setattr(epibench.recipes, "apply_settings", shrunk)
    monkeypatch.setattr("epibench.runs.image_evaluation.cost_per_image", lambda *given: {})
    monkeypatch.setattr("epibench.runs.image_evaluation.count_flops", lambda *given: None)
    monkeypatch.setattr(Machine, "of", classmethod(lambda cls, device, *others: cls(device, 1, 0)))


def stop_before_training(monkeypatch: pytest.MonkeyPatch, idle: Callable[[Any], bool]) -> None:
    """End commands that would train for a GPU, or to no use, when all that these need is checked and prepared."""
    train = run_module.train_networks

    def train_or_stop(run: Any, *others: Any) -> None:
        if "GPU" in run.recipe.machine or idle(run):
            raise SystemExit(0)
        train(run, *others)

    monkeypatch.setattr(run_module, "train_networks", train_or_stop)


def parse_benchmark(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a script of benchmarks/ parse its arguments, and end it then."""
    script = ROOT / words[0]
    if "parse_args()" not in script.read_text(encoding="utf-8"):
        assert len(words) == 1, f"{words[0]} takes no arguments"
        return
    parse = argparse.ArgumentParser.parse_args

    def parse_and_end(parser: argparse.ArgumentParser) -> None:
        parse(parser)
        raise SystemExit(0)

    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", words)
        patch.setattr(argparse.ArgumentParser, "parse_args", parse_and_end)
        with pytest.raises(SystemExit) as end:
            runpy.run_path(str(script), run_name="__main__")
    assert end.value.code == 0, words


def check_other_program(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of make, or a script of benchmarks/ or of the folder."""
    program, *arguments = words
    if program == "make":
        assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
    elif program == "python" and arguments[0].startswith("benchmarks/"):
        parse_benchmark(arguments, monkeypatch)
    elif program == "python":
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", arguments)
            runpy.run_path(arguments[0], run_name="__main__")
    else:
        assert program in SKIPPED, words


def missing_input(call: Call) -> str | None:
    """What a command says that needs what only the user has."""
    return next((text for pattern, text in MISSING.items() if re.search(pattern, str(call))), None)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("page", PAGES)
def test_commands_run(page: str, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = calls_of(page, folder)
    results = page.startswith("docs/results/")
    reported = {word for call in calls if "report" in call.words for word in call.words}
    stop_before_training(monkeypatch, lambda run: results and str(run.folder.path) not in reported)
    for call in calls:
        monkeypatch.chdir(call.folder)
        if call.words[0] != "epibench":
            check_other_program(call.words, monkeypatch)
            continue
        status, output, errors = run(*("local" if word == "ray" else word for word in call.words[1:]))
        if call.output.is_file():
            call.output.write_text(output)
        missing = missing_input(call)
        if missing is None:
            assert (status, str(call)) == (0, str(call)), errors
            continue
        checked = call.words[1:3] == ("data", "check")  # it lists problems, with status 1, where a recipe is checked
        complaints = re.findall(r"^(?:epibench:|problem ) .*", output + errors, re.MULTILINE)
        assert status == 2 or (checked and status == 1), (str(call), status)
        assert complaints
        assert [line for line in complaints if not re.search(missing, line)] == [], str(call)


def test_every_missing_input_is_documented(folder: Path) -> None:
    found = {missing_input(call) for page in PAGES for call in calls_of(page, folder)}
    assert set(MISSING.values()) - found == set()


def mentions(page: str) -> list[str]:
    """Commands within sentences, and synopses."""
    synopses = [code for kind, code in FENCE.findall(TEXTS[page]) if kind == "text" and code.startswith("epibench ")]
    return INLINE.findall(FENCE.sub("", TEXTS[page])) + synopses


@pytest.mark.parametrize("page", [page for page in TEXTS if mentions(page)])
def test_mentioned_commands_parse(page: str, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "invoke", lambda command, context: None)
    for text in mentions(page):
        words = shlex.split(re.sub(r"\[(--[^]]*)\]", r"\1", text))  # an option in brackets may be left out
        if words[0] != "epibench":
            check_other_program(words, monkeypatch)
            continue
        named = re.fullmatch(r"epibench (data )?[a-z]+", " ".join(words))  # a command alone
        assert run(*words[1:], *(["--help"] if named else []))[0::2] == (0, ""), text


def test_commands_are_fenced_as_sh() -> None:
    codes = [code for text in TEXTS.values() for kind, code in FENCE.findall(text) if kind not in ("sh", "text")]
    assert [code for code in codes if code.startswith(("epibench ", "make ", "python "))] == []
