"""Several evaluations of one run: the latest in `results.json`, others by their settings in `evaluations/`.

Evaluations are told apart by the settings that decide values: precision, convention, uncertainty, window …
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from epibench.conventions import UNCERTAINTIES
from epibench.errors import InputError
from epibench.files import remove, write_text
from epibench.recipes.dense import EvaluationOptions
from epibench.recipes.settings import differences, fixed
from epibench.results import RESULTS_NAME, RunResults, load_results

FOLDER = "evaluations"
PLAIN = "default"  # the name of the default settings
DECIDING = ("precision", "convention", "uncertainty", "window", "overlap", "compile", "cuda_graphs")
SHOWN = ("evaluation", "methods", "members", "draws", "name", "data.domains")  # on a page, or in the name


def settings_name(results: RunResults) -> str:
    """The settings that decide values and are not the default ones, as `precision=bf16-mixed`; a name for a file."""
    return ",".join(f"{key}={word}" for key, word in _deciding(results).items()) or PLAIN


def label_of(results: RunResults, latest: RunResults) -> str:
    """What to call an evaluation on a page: `bf16-mixed`, with what else differs from the latest."""
    alone = ("precision", "convention", "uncertainty")  # whose values say what they are
    words = [word if key in alone else f"{key}={word}" for key, word in _deciding(results).items()]
    return ", ".join([*(words or [PLAIN]), *_other(latest, results)])


def keep_results(folder: Path, results: RunResults) -> None:
    """Write results.json; results with other settings that were there are kept beside it."""
    latest, name = folder / RESULTS_NAME, settings_name(results)
    former = _readable(latest)
    if former is not None and settings_name(former) != name:
        write_text(_file(folder, settings_name(former)), former.as_json())
    write_text(latest, results.as_json())
    remove(_file(folder, name))


def methods_left_out(folder: Path, results: RunResults) -> list[str]:
    """Methods of results that these will replace, and which are not in these: neither asked for nor failed."""
    formers = [_readable(folder / RESULTS_NAME), _readable(_file(folder, settings_name(results)))]
    replaced = [each for each in formers if each is not None and settings_name(each) == settings_name(results)]
    asked = {*results.recipe.get("methods", ()), *results.methods}
    return list(dict.fromkeys(name for each in replaced for name in each.methods if name not in asked))


def all_results(folder: Path) -> tuple[list[RunResults], list[str]]:
    """The latest results of a run, those with other settings, and what tells them apart: nothing where there is one."""
    latest = load_results(folder)
    evaluations = {settings_name(latest): latest}
    for path in sorted((folder / FOLDER).glob("*.json")):
        other = _readable(path)
        if other is not None and other.problem == latest.problem:
            evaluations.setdefault(settings_name(other), other)
    if len(evaluations) == 1:
        return [latest], []
    return list(evaluations.values()), [label_of(each, latest) for each in evaluations.values()]


def _other(latest: RunResults, results: RunResults) -> Iterator[str]:
    """Settings of training in which results differ from the latest, as `ensemble.num_members=5`."""
    for key, _, value in differences(fixed(latest.recipe), fixed(results.recipe)):
        if not any(f"{key}.".startswith(f"{shown}.") for shown in SHOWN):
            yield f"{key}={json.dumps(value)}"


def _deciding(results: RunResults) -> dict[str, str]:
    """The settings that decide values and are not the default ones; toy problems have none."""
    given = results.recipe.get("evaluation")
    options = {key: value for key, value in given.items() if value is not None} if isinstance(given, Mapping) else {}
    default = EvaluationOptions().model_dump(mode="json") | {"uncertainty": UNCERTAINTIES.get(results.kind, [None])[0]}
    idle = {"cuda_graphs"} if results.device == "cpu" else set()
    idle |= set() if "window" in options else {"overlap"}
    keys = [key for key in DECIDING if key in options and key not in idle]
    return {key: _word(options[key]) for key in keys if options[key] != default[key]}


def _word(value: Any) -> str:
    """A value as a part of the name of a file."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "x".join(map(str, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _file(folder: Path, name: str) -> Path:
    return folder / FOLDER / f"{name}.json"


def _readable(path: Path) -> RunResults | None:
    """Results, if they are there and undamaged."""
    try:
        return load_results(path)
    except InputError:
        return None
