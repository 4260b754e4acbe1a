"""Reads the results of runs into what a page can ask: methods with labels and styles, KLs, noise floors."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epibench.errors import InputError
from epibench.published import independent_draws, standard_error
from epibench.report.entries import Stat, clean, walk
from epibench.report.numbers import finite
from epibench.report.switches import Option, Switch, layer_key
from epibench.results import VERSION

CONVENTIONS = {"pooled": "mean of pointwise KLs", "gustafsson2020": "as published"}
DIRECTIONS = {"reference_to_method": "KL(reference ‖ method)", "method_to_reference": "KL(method ‖ reference)"}
REGIONS = {"grid": "whole grid", "train": "training region"}
PROBLEMS = {
    "toy-regression": "Toy regression",
    "toy-classification": "Toy classification",
    "depth-completion": "Depth completion",
    "segmentation": "Segmentation",
}
STYLES = {"ensemble": 0, "mc_dropout": 1, "sgld": 2, "sghmc": 3, "cyclical": 4, "map": 5, "ml": 7}
RESULTS_NAME = "results.json"


@dataclass(frozen=True)
class View:
    """One way to measure the KL."""

    convention: str
    direction: str
    region: str

    @property
    def key(self) -> str:
        """The key of the layer that shows it."""
        return layer_key([Option(part, "") for part in (self.convention, self.direction, self.region)])


VIEWS = [View(*parts) for parts in itertools.product(CONVENTIONS, DIRECTIONS, REGIONS)]
SWITCHES = [
    Switch(name, legend, [Option(key, text, key == next(iter(texts))) for key, text in texts.items()])
    for name, legend, texts in (
        ("convention", "Convention", CONVENTIONS),
        ("direction", "Direction", DIRECTIONS),
        ("region", "Over the", REGIONS),
    )
]


@dataclass(frozen=True)
class Run:
    """One run: its name on the page and its results, with texts cleaned."""

    name: str
    short: str  # the name without that of the problem, to tell its methods from those of other runs
    results: dict[str, Any]

    def part(self, name: str) -> dict[str, Any]:
        """A part of the results; empty where it is missing, null or something else."""
        found = self.results.get(name)
        return found if isinstance(found, dict) else {}

    @property
    def problem(self) -> str:
        """The name of the problem."""
        return str(self.results.get("problem") or self.part("recipe").get("problem") or "unknown problem")

    @property
    def kind(self) -> str:
        """The kind of predictions, gaussian or categorical."""
        return str(self.results.get("kind") or "unknown")

    @property
    def recipe_name(self) -> str:
        """The name of the recipe."""
        return str(self.part("recipe").get("name") or self.problem)

    def floor(self, view: View) -> float | None:
        """The KL between two halves of the reference."""
        return finite(walk(self.part("reference").get("floor"), view.convention, view.direction, view.region))


@dataclass(frozen=True)
class Method:
    """One method of one run, with a label that is its own on the page and a place in the order of styles."""

    index: int
    label: str
    name: str
    run: Run

    @property
    def about(self) -> dict[str, Any]:
        """What the run says about it."""
        found = self.run.part("methods").get(self.name)
        return found if isinstance(found, dict) else {}

    def _kl(self, part: str, view: View) -> dict[str, Any]:
        found = walk(self.run.part(part).get(self.name), view.convention, view.direction, view.region)
        return found if isinstance(found, dict) else {}

    def members(self, view: View) -> list[int]:
        """Every M that there is a KL for."""
        return sorted(int(m) for m in self._kl("kl", view))

    def stat(self, view: View, m: int) -> Stat:
        """The KL at an M, its std and the number of its draws."""
        found = self._kl("kl", view).get(str(m)) or {}
        return Stat(finite(found.get("mean")), finite(found.get("std")), int(found.get("n") or 0))

    def num_independent(self, view: View, m: int) -> int:
        """How many of the draws at an M are independent."""
        return independent_draws(self.stat(view, m).n, m, self.about)

    def error(self, view: View, m: int) -> float | None:
        """The standard error of the mean KL at an M."""
        return standard_error(self.stat(view, m).std, self.num_independent(view, m))

    def num_infinite(self, view: View, m: int) -> int:
        """How many draws at an M have an infinite KL."""
        draws = self._kl("kl_draws", view).get(str(m)) or []
        return sum(value is None for value in draws)


def load_results(path: Path) -> dict[str, Any]:
    """The results of a run, from its folder or from its results.json."""
    file = path / RESULTS_NAME if path.is_dir() else path
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        what = "holds no results.json: has the run finished?" if path.is_dir() else "there is no such file or folder"
        raise InputError(f"{path}: {what}") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a JSON file ({error})") from None
    check_results(found, str(file))
    checked: dict[str, Any] = found
    return checked


def check_results(results: Any, where: str) -> None:
    """Refuse what is no result of a run that this version can show."""
    if not isinstance(results, dict) or "files" in results or not isinstance(results.get("methods"), dict):
        raise InputError(f"{where}: not the results of a run (no 'methods'); pages of scores come from epibench score")
    if results.get("version", VERSION) != VERSION:
        raise InputError(f"{where}: results of version {results['version']}; this epibench reads version {VERSION}")


def read_runs(results: Sequence[dict[str, Any]], names: Sequence[str] = ()) -> list[Run]:
    """Runs with names of their own: that of the recipe, with the given one where recipes repeat."""
    cleaned = [clean(one) for one in results]
    recipes = [Run("", "", one).recipe_name for one in cleaned]
    given = list(names) or [str(number) for number in range(1, len(recipes) + 1)]
    seen = Counter(recipes)
    labels = [
        recipe if seen[recipe] == 1 else f"{recipe} ({clean(name)})"
        for recipe, name in zip(recipes, given, strict=True)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {number}" for number, label in enumerate(labels, start=1)]
    problems = [Run("", "", one).problem for one in cleaned]
    shorts = [
        label.replace(problem, "", 1).strip("- ") or label for label, problem in zip(labels, problems, strict=True)
    ]
    return [Run(label, short, one) for label, short, one in zip(labels, shorts, cleaned, strict=True)]


def methods_of(runs: Sequence[Run]) -> list[Method]:
    """Every method of some runs; with several runs, each label says whose it is."""
    pairs = [(run, name) for run in runs for name in run.part("methods")]
    labels = [str(Method(0, "", name, run).about.get("label") or name) for run, name in pairs]
    if len(runs) > 1:
        labels = [f"{label} · {run.short}" for label, (run, _) in zip(labels, pairs, strict=True)]
    twice = {label for label, number in Counter(labels).items() if number > 1}
    styles = _styles([name for _, name in pairs])
    return [
        Method(style, f"{label} ({name})" if label in twice else label, name, run)
        for style, label, (run, name) in zip(styles, labels, pairs, strict=True)
    ]


def _styles(names: Sequence[str]) -> list[int]:
    """A style for each method: its own where that is free, so that a method looks alike on every page."""
    taken: list[int] = []
    for name in names:
        free = itertools.chain([STYLES[name]] if name in STYLES else [], itertools.count())
        taken.append(next(style for style in free if style not in taken))
    return taken


def common_members(methods: Sequence[Method], view: View) -> list[int]:
    """Every M that all methods with a KL have."""
    sizes = [set(members) for method in methods if (members := method.members(view))]
    return sorted(set.intersection(*sizes)) if sizes else []


def all_members(methods: Sequence[Method], view: View) -> list[int]:
    """Every M that any method has."""
    return sorted({m for method in methods for m in method.members(view)})


def by_problem(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one problem together, in the order in which the problems come."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.problem, []).append(run)
    return list(groups.values())
