"""Runs as a page asks of them: methods with labels and styles, their entries on every domain, and their KLs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from epibench.report.entries import ClassStyles, Entry, mean_error
from epibench.report.metric_info import HEADLINES, metric_info
from epibench.report.page import Option, Switch, layer_key
from epibench.results import TRAIN_REGION, Cost, DomainFacts, MethodFacts, RunResults, Stat, printable
from epibench.standard_errors import PoolSize

CONVENTIONS = {"pooled": "mean of pointwise KLs", "gustafsson2020": "as published"}
DIRECTIONS = {"reference_to_method": "KL(reference ‖ method)", "method_to_reference": "KL(method ‖ reference)"}
REGIONS = {"grid": "whole grid", "train": "training region"}
PROBLEMS = {
    "toy-regression": "Toy regression",
    "toy-classification": "Toy classification",
    "depth-completion": "Depth completion",
    "segmentation": "Segmentation",
    "regression": "Regression",
    "classification": "Classification",
    "scored-gaussian": "Scored predictions: regression",
    "scored-categorical": "Scored predictions: classes",
    "scored-ranking": "Scored predictions: ranking alone",
}
STYLES = {"ensemble": 0, "mc_dropout": 1, "sgld": 2, "sghmc": 3, "cyclical": 4, "map": 5, "ml": 7}


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

    @property
    def name(self) -> str:
        """The view in words."""
        return f"{DIRECTIONS[self.direction]}, {REGIONS[self.region]}, {CONVENTIONS[self.convention]}"


VIEWS = [View(*parts) for parts in itertools.product(CONVENTIONS, DIRECTIONS, REGIONS)]
SWITCHES = [
    Switch(name, legend, [Option(key, text, key == next(iter(texts))) for key, text in texts.items()])
    for name, legend, texts in (
        ("convention", "Convention", CONVENTIONS),
        ("direction", "Direction", DIRECTIONS),
        ("region", "Over the", REGIONS),
    )
]


@dataclass(frozen=True, eq=False)
class Run:
    """One run: its name on the page and its results. evaluation: which one they are of, where it has several."""

    name: str
    short: str  # the name without that of the problem, to tell its methods from those of other runs
    results: RunResults
    evaluation: str = ""

    @property
    def scored(self) -> bool:
        """Whether it is none, but files with predictions from elsewhere."""
        return "scored" in self.results.recipe

    def floor(self, view: View) -> float | None:
        """The KL between two halves of the reference."""
        floors = self.results.reference.floor if self.results.reference else {}
        return floors.get(view.convention, {}).get(view.direction, {}).get(view.region)


@dataclass(frozen=True, eq=False)
class RunMethod:
    """One method of one run, with a label that is its own on the page and a place in the order of styles."""

    index: int
    label: str
    name: str
    run: Run

    @property
    def facts(self) -> MethodFacts:
        """What the run says about it."""
        return self.run.results.methods[self.name]

    @property
    def cost(self) -> Cost | None:
        """What it costs; None where the run does not say."""
        return self.run.results.cost.get(self.name)

    def on(self, domain: str) -> Entry:
        """The method on one domain, as figures and tables want it; the domain is said once, above them."""
        results = self.run.results
        return Entry(
            self.index,
            self.label,
            self.run.results.kind,
            results.summary.get(self.name, {}).get(domain, {}),
            PoolSize.of(self.facts),
            results.curves.get(self.name, {}).get(domain, {}),
            unit=results.unit or "",
            counted="points" if results.problem in TRAIN_REGION else results.counted,
            overlaps=results.overlap.get(self.name, {}),
            draws=results.draws.get(self.name, {}).get(domain, []),
            classes=class_styles(results, domain),
        )

    def to_reference(self, view: View) -> Entry:
        """The method's KLs as an entry with the metric `kl`, beside the noise floor of the reference."""
        keys = view.convention, view.direction, view.region
        kl, draws = self.run.results.kl.get(self.name, {}), self.run.results.kl_draws.get(self.name, {})
        stats = kl.get(keys[0], {}).get(keys[1], {}).get(keys[2], {})
        values = draws.get(keys[0], {}).get(keys[1], {}).get(keys[2], {})
        # A mean is missing where any draw is infinite; without the draws, all may be.
        unknown = {m: [stat.mean] * stat.n for m, stat in stats.items()}
        infinite = {m: sum(value is None for value in values.get(m, unknown[m])) for m in stats}
        return Entry(
            self.index,
            self.label,
            self.run.results.kind,
            {m: {"kl": stat, "kl_infinite": Stat(mean=infinite[m], std=None, n=stat.n)} for m, stat in stats.items()},
            PoolSize.of(self.facts),
            floor=self.run.floor(view),
        )


def class_styles(results: RunResults, domain: str) -> ClassStyles:
    """The classes that a domain is scored on: its own where it has some, otherwise those of the run."""
    facts = results.domains.get(domain)
    source = facts if facts and facts.class_names else results
    return ClassStyles(source.class_names or (), source.class_colours or ())


def read_runs(results: Sequence[RunResults], names: Sequence[str] = ()) -> list[Run]:
    """Runs with names of their own: that of the recipe, with the given one where recipes repeat."""
    recipes = [str(one.recipe.get("name") or one.problem) for one in results]
    given = list(names) or [str(number) for number in range(1, len(recipes) + 1)]
    seen = Counter(recipes)
    labels = [
        recipe if seen[recipe] == 1 else f"{recipe} ({printable(name)})"
        for recipe, name in zip(recipes, given, strict=True)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {number}" for number, label in enumerate(labels, start=1)]
    shorts = [
        label.replace(one.problem, "", 1).strip("- ") or label for label, one in zip(labels, results, strict=True)
    ]
    if names and len(seen) == 1 and len(set(given)) == len(given) > 1:
        shorts = [printable(name) for name in given]  # of one recipe: its name tells nothing apart
    return [Run(label, short, one) for label, short, one in zip(labels, shorts, results, strict=True)]


def by_problem(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one problem together, in the order in which the problems come."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.results.problem, []).append(run)
    return list(groups.values())


def methods_of(runs: Sequence[Run]) -> list[RunMethod]:
    """Every method of some runs; with several runs, each label says whose it is."""
    pairs = [(run, name) for run in runs for name in run.results.methods]
    labels = [run.results.methods[name].label or name for run, name in pairs]
    if len(runs) > 1:
        labels = [f"{label} · {run.short}" for label, (run, _) in zip(labels, pairs, strict=True)]
    twice = {label for label, number in Counter(labels).items() if number > 1}
    styles = _styles([name for _, name in pairs])
    return [
        RunMethod(style, f"{label} ({name})" if label in twice else label, name, run)
        for style, label, (run, name) in zip(styles, labels, pairs, strict=True)
    ]


def _styles(names: Sequence[str]) -> list[int]:
    """A style for each method: its own where that is free, so that a method looks alike on every page."""
    taken: list[int] = []
    for name in names:
        free = itertools.chain([STYLES[name]] if name in STYLES else [], itertools.count())
        taken.append(next(style for style in free if style not in taken))
    return taken


def kl_entries(methods: Sequence[RunMethod], view: View) -> list[Entry]:
    """The methods that have a KL, in one view."""
    return [entry for method in methods if (entry := method.to_reference(view)).members]


def distinct_references(runs: Sequence[Run]) -> list[Run]:
    """Of the runs that share a reference, the first."""
    return list({str(run.results.reference): run for run in reversed(runs)}.values())[::-1]


def convergence_of(runs: Sequence[Run]) -> list[tuple[str, bool]]:
    """The verdict on each reference in words, and whether it has converged."""
    verdicts = []
    for run in distinct_references(runs):
        if (reference := run.results.reference) is not None and reference.convergence:
            name = f"Reference of {run.name}" if len(runs) > 1 else "Reference"
            doubt = "" if reference.converged else ". KLs to it may differ from KLs to the true posterior."
            verdicts.append((f"{name}: {reference.convergence}{doubt}", bool(reference.converged)))
    return verdicts


class EvalDomain(DomainFacts):
    """One evaluation domain: its name in the results, and what these say of it."""

    name: str

    @property
    def shifted(self) -> bool:
        """Whether it differs from what the methods were trained on."""
        return self.role == "shifted"


def domains_of(runs: Sequence[Run]) -> list[EvalDomain]:
    """The domains that runs describe, each once, in their order; empty for toy problems."""
    domains: dict[str, EvalDomain] = {}
    for run in runs:
        for name, facts in run.results.domains.items():
            domains.setdefault(name, EvalDomain(name=name, **facts.model_dump()))
    return list(domains.values())


def entries_on(methods: Sequence[RunMethod], domain: str) -> list[Entry]:
    """The methods that were scored on a domain."""
    return [entry for method in methods if (entry := method.on(domain)).members]


def scored_domains(runs: Sequence[Run], methods: Sequence[RunMethod]) -> list[EvalDomain]:
    """The domains that runs describe and any method was scored on."""
    return [domain for domain in domains_of(runs) if entries_on(methods, domain.name)]


def headline_names(entries: Sequence[Entry]) -> list[str]:
    """The headline metrics that any of some entries has."""
    present = {name for entry in entries for name in entry.metrics}
    return [name for name in HEADLINES.get(entries[0].kind, ()) if name in present] if entries else []


def quality_names(entries: Sequence[Entry]) -> list[str]:
    """The metrics that cost is weighed against: the headline ones, and the NLL."""
    names = headline_names(entries)
    return [*names, *(["nll"] if any("nll" in entry.metrics for entry in entries) and "nll" not in names else [])]


def featured(domains: Sequence[EvalDomain], methods: Sequence[RunMethod]) -> list[EvalDomain]:
    """Of domains that methods were scored on, the one that they were trained for and the hardest shift.

    Where it is not known which is which, the first.
    """
    inside, outside = ([d for d in domains if d.role == role] for role in ("in-domain", "shifted"))
    if not inside and not outside:
        return list(domains[:1])
    hardest = max(outside, key=lambda domain: _hardness(domain, methods), default=None)
    return [*inside[:1], *([hardest] if hardest else [])]


def _hardness(domain: EvalDomain, methods: Sequence[RunMethod]) -> tuple[float, float]:
    """The methods' mean error at their largest M, and the severity where that is the same or unknown."""
    entries = entries_on(methods, domain.name)
    name = next((name for name in headline_names(entries) if metric_info(name).group == "Accuracy"), None)
    error = None if name is None else mean_error(name, entries)
    return -float("inf") if error is None else error, domain.severity or 0.0
