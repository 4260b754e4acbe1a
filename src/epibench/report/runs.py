"""Runs on a page: methods with labels and styles, their entries on every domain, and their KLs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from epibench.report.entries import ClassStyles, Entry, mean_error
from epibench.report.metric_info import HEADLINES, metric_info
from epibench.report.page import Option, Switch, layer_key
from epibench.results import (
    TRAIN_REGION,
    Cost,
    Counted,
    DomainFacts,
    Draw,
    Kind,
    MethodFacts,
    PredictedPicture,
    Results,
    Score,
    ShownPicture,
    Stat,
    Summary,
    printable,
)

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
        """The name of the view."""
        return f"{DIRECTIONS[self.direction]}, {REGIONS[self.region]}, {CONVENTIONS[self.convention]}"

    @property
    def metric(self) -> str:
        """The name of the KL in scores."""
        direction = "" if self.direction == "reference_to_method" else "_reverse"
        return f"kl{direction}" + ("" if self.convention == "pooled" else f"_{self.convention}")


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
    """One evaluation of one problem: its name on the page, its scores, and the results that hold them.

    short: the name without the problem's. evaluation: label of an older evaluation.
    """

    name: str
    short: str
    results: Results
    scores: Sequence[Score]
    problem: str
    domains: dict[str, DomainFacts]
    evaluation: str = ""

    @property
    def stored(self) -> bool:
        """Whether the scores are of stored predictions."""
        return "stored" in self.results.recipe

    @property
    def kind(self) -> Kind | None:
        """The kind of predictions; None without a score."""
        return self.scores[0].kind if self.scores else None

    @property
    def unit(self) -> str:
        """The unit of targets, empty without one."""
        return (self.scores[0].unit or "") if self.scores else ""

    @property
    def counted(self) -> Counted:
        """The name of one target."""
        return self.scores[0].counted if self.scores else "pixels"

    @property
    def methods(self) -> list[str]:
        """Methods with scores."""
        return list(dict.fromkeys(score.method for score in self.scores))

    def score(self, method: str, domain: str) -> Score | None:
        """The score of a method on a domain."""
        return next((one for one in self.scores if (one.method, one.domain) == (method, domain)), None)

    def pictures(self, domain: str) -> list[ShownPicture]:
        """The pictures of a domain with the predictions of all methods."""
        predicted: dict[int, dict[str, PredictedPicture]] = {}
        for score in self.scores:
            for picture in score.pictures if score.domain == domain else ():
                predicted.setdefault(picture.image, {})[score.method] = picture
        return [
            ShownPicture(**dict(picture), methods=predicted.get(picture.image, {}))
            for picture in self.domains[domain].pictures
        ]

    def floor(self, view: View) -> float | None:
        """The KL between two halves of the reference."""
        floors = self.results.reference.floor if self.results.reference else {}
        return floors.get(view.convention, {}).get(view.direction, {}).get(view.region)


@dataclass(frozen=True, eq=False)
class RunMethod:
    """One method of one run, with its own label and style on the page."""

    index: int
    label: str
    name: str
    run: Run

    @property
    def facts(self) -> MethodFacts:
        """The facts about it in the results."""
        return self.run.results.methods[self.name]

    @property
    def cost(self) -> Cost | None:
        """What it costs; None where the run does not say."""
        return self.facts.cost

    def on(self, domain: str) -> Entry:
        """The entry of the method on one domain, for figures and tables below the name of the domain."""
        score = self.run.score(self.name, domain)
        return Entry(self.index, self.label, score, classes=class_styles(self.run, domain))

    def to_reference(self, view: View) -> Entry:
        """The method's KLs as an entry with the metric `kl`, beside the noise floor of the reference."""
        score = self.run.score(self.name, view.region)
        if score is None:
            return Entry(self.index, self.label, None)
        summary: Summary = {}
        for m, metrics in score.summary.items():
            if isinstance(stat := metrics.get(view.metric), Stat):
                infinite = sum(draw.metrics.get(view.metric) is None for draw in score.draws if m == draw.M)
                summary[m] = {"kl": stat, "kl_infinite": Stat(mean=infinite, std=None, n=stat.n)}
        draws = [Draw(M=draw.M, metrics={"kl": draw.metrics.get(view.metric)}) for draw in score.draws]
        kls = score.model_copy(update={"summary": summary, "draws": draws, "curves": {}})
        return Entry(self.index, self.label, kls, floor=self.run.floor(view))


def class_styles(run: Run, domain: str) -> ClassStyles:
    """The classes that a domain is scored on."""
    facts = run.domains.get(domain)
    return ClassStyles(facts.class_names or (), facts.class_colours or ()) if facts else ClassStyles()


def read_runs(results: Sequence[Results], names: Sequence[str] = ()) -> list[Run]:
    """The newest evaluation of each result, under names of their own: the recipe's, with the given name if it repeats.

    Stored predictions give a run for each kind, unit and way of counting. They join the one problem of the other
    results that has the same three, and use the names and facts of its domains.
    """
    runs = [run for each in results for run in _runs_of(each)]
    runs = [_joined(run, [other for other in runs if not other.stored]) if run.stored else run for run in runs]
    recipes = [str(run.results.recipe.get("name") or run.problem) for run in runs]
    own = dict(zip(map(id, results), names, strict=True)) if names else {}
    given = [own.get(id(run.results), str(number)) for number, run in enumerate(runs, start=1)]
    seen = Counter(recipes)
    labels = [
        recipe if seen[recipe] == 1 else f"{recipe} ({printable(name)})"
        for recipe, name in zip(recipes, given, strict=True)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {number}" for number, label in enumerate(labels, start=1)]
    shorts = [label.replace(run.problem, "", 1).strip("- ") or label for label, run in zip(labels, runs, strict=True)]
    if names and len(seen) == 1 and len(set(given)) == len(given) > 1:
        shorts = [printable(name) for name in given]  # of one recipe: its name does not distinguish them
    return [replace(run, name=label, short=short) for label, short, run in zip(labels, shorts, runs, strict=True)]


def _runs_of(results: Results) -> list[Run]:
    groups: dict[tuple[str, ...], list[Score]] = {}
    for score in results.latest():
        key = (score.kind, score.unit or "", score.counted) if "stored" in results.recipe else ()
        groups.setdefault(key, []).append(score)
    return [
        Run(
            name="",
            short="",
            results=results,
            scores=scores,
            problem=_stored_problem(key, list(groups)) if key else results.problem,
            domains=_domains_of(results, scores),
        )
        for key, scores in (groups or {(): list[Score]()}).items()
    ]


def _stored_problem(key: tuple[str, ...], keys: Sequence[tuple[str, ...]]) -> str:
    """The problem of stored predictions: their kind, and unit and counted word where these differ within the kind."""
    kind, *about = key
    several = len([other for other in keys if other[0] == kind]) > 1
    return f"scored-{kind}" + (f" in {' '.join(filter(None, about))}" if several else "")


def problem_title(problem: str) -> str:
    """The title of a problem on a page."""
    name, within, unit = problem.partition(" in ")
    return PROBLEMS.get(name, name) + within + unit


def older_runs(runs: Sequence[Run]) -> list[Run]:
    """Evaluations of the same runs with other settings, each named by how it differs from the newest."""
    older = []
    for run in runs:
        groups: dict[str, list[Score]] = {}
        for score in run.results.scores if run.scores and not run.stored else ():
            if score.post == "none" and score.settings != run.scores[0].settings:
                groups.setdefault(str(score.settings), []).append(score)
        for scores in groups.values():
            words = [
                str(value) if key in ("precision", "convention", "uncertainty") else f"{key} {value}"
                for key, value in scores[0].settings.items()
                if run.scores[0].settings.get(key) != value
            ] or [f"without {key}" for key in run.scores[0].settings if key not in scores[0].settings]
            newest = {score.method: score.pool.num_networks for score in run.scores}
            grown = {score.pool.num_networks for score in scores if score.pool.num_networks != newest.get(score.method)}
            words += [f"{number} networks" for number in sorted(number for number in grown if number)]
            label = ", ".join(words)
            domains = _domains_of(run.results, scores)
            name, short = f"{run.name} ({label})", f"{run.short} ({label})"
            older.append(replace(run, name=name, short=short, scores=scores, domains=domains, evaluation=label))
    return older


def stored_entries(runs: Sequence[Run]) -> list[Entry]:
    """The scores of stored predictions; labels name the domain where there are several."""
    entries = []
    for run in runs:
        several = len(run.domains) > 1
        for index, score in enumerate(run.scores):
            label = f"{score.method} on {score.domain}" if several else score.method
            entries.append(Entry(index, label, score, class_styles(run, score.domain)))
    return entries


def _domains_of(results: Results, scores: Sequence[Score]) -> dict[str, DomainFacts]:
    scored = {score.domain for score in scores}
    return {name: facts for name, facts in results.domains.items() if name in scored or not scores}


def _joined(run: Run, others: Sequence[Run]) -> Run:
    """A run of stored predictions as part of the only problem that it can be compared with."""
    alike = [other for other in others if (other.kind, other.unit, other.counted) == (run.kind, run.unit, run.counted)]
    if len({other.problem for other in alike}) != 1:
        return run
    known: dict[str, tuple[str, DomainFacts]] = {}
    for other in alike:
        for name, facts in other.domains.items():
            for key in (name, facts.label):
                known.setdefault(key, (name, facts))
    names = {name: known.get(name, (name, facts)) for name, facts in run.domains.items()}
    domains = {
        name: facts.model_copy(update={"pictures": run.domains[before].pictures})
        for before, (name, facts) in names.items()
    }
    scores = [score.model_copy(update={"domain": names[score.domain][0]}) for score in run.scores]
    return replace(run, scores=scores, domains=domains, problem=alike[0].problem)


def by_problem(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs of one problem together, in the order in which the problems come."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.problem, []).append(run)
    return list(groups.values())


def methods_of(runs: Sequence[Run]) -> list[RunMethod]:
    """Every method of some runs; with several runs, each label says whose it is."""
    pairs = [(run, name) for run in runs for name in run.methods]
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
    """The verdict on each reference, and whether it has converged."""
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
    num_images: int | None = None
    num_pixels: int | None = None

    @property
    def shifted(self) -> bool:
        """Whether it differs from the training data of the methods."""
        return self.role == "shifted"

    @property
    def title(self) -> str:
        """The label, with the role if it is known."""
        return self.label if self.role == "role unknown" else f"{self.label} ({self.role})"


def domains_of(runs: Sequence[Run]) -> list[EvalDomain]:
    """The domains that runs describe, each once, in their order; empty for toy problems."""
    domains: dict[str, EvalDomain] = {}
    for run in (run for run in runs if run.problem not in TRAIN_REGION):
        for name, facts in run.domains.items():
            scores = [score for score in run.scores if score.domain == name]
            images = next((score.num_images for score in scores), None)
            pixels = next((score.pixels.valid for score in scores), None)
            domains.setdefault(name, EvalDomain(name=name, num_images=images, num_pixels=pixels, **dict(facts)))
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
