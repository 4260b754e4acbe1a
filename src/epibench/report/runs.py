"""Runs on a page: their methods with labels and styles, domains, and KLs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from epibench.report.entries import ClassStyles, Entry
from epibench.report.metric_info import HEADLINES, metric_info, sort_key
from epibench.results import (
    TRAIN_REGION,
    Counted,
    DomainFacts,
    Draw,
    Kind,
    MethodFacts,
    PoolSize,
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
    """A convention, direction and region of the KL."""

    convention: str
    direction: str
    region: str

    @property
    def key(self) -> str:
        """The key of its layer on the page."""
        return f"{self.convention}-{self.direction}-{self.region}"

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


@dataclass(frozen=True, eq=False)
class Run:
    """One evaluation of one problem: its name on the page, its scores, and the results with them.

    short: the name without the problem. evaluation: label of an older evaluation.
    """

    results: Results
    scores: Sequence[Score]
    problem: str
    domains: dict[str, DomainFacts]
    name: str = ""
    short: str = ""
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
        """The unit of targets; empty if unknown."""
        return (self.scores[0].unit or "") if self.scores else ""

    @property
    def counted(self) -> Counted:
        """The name of targets."""
        return self.scores[0].counted if self.scores else "pixels"

    @property
    def methods(self) -> list[str]:
        """Methods with scores."""
        return list(dict.fromkeys(score.method for score in self.scores))

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
    """A method of a run, with its label and style on the page."""

    index: int
    label: str
    name: str
    run: Run

    @property
    def facts(self) -> MethodFacts:
        """The facts about it in the results."""
        return self.run.results.methods[self.name]

    def on(self, domain: str) -> Entry:
        """The entry of the method on a domain; without members if it has no score there."""
        scores = (one for one in self.run.scores if (one.method, one.domain) == (self.name, domain))
        nothing = Score(method=self.name, domain=domain, settings={}, kind="gaussian", pool=PoolSize(0), summary={})
        return Entry(self.index, self.label, next(scores, nothing), class_styles(self.run, domain))


def class_styles(run: Run, domain: str) -> ClassStyles:
    """The scored classes of a domain."""
    facts = run.domains.get(domain)
    return ClassStyles(facts.class_names or (), facts.class_colours or ()) if facts else ClassStyles()


def read_runs(results: Sequence[Results], names: Sequence[str] = ()) -> list[Run]:
    """The newest evaluation of each result, named by its recipe, and by the given name if recipes repeat.

    Stored predictions give a run for each kind, unit and name of targets. They join the one problem of other results
    with the same three, and use the names and facts of its domains.
    """
    runs = []
    for one in results:
        groups: dict[tuple[str, ...], list[Score]] = {}
        for score in one.latest():
            key: tuple[str, ...] = ()
            if "stored" in one.recipe:
                key = score.kind, score.unit or "", score.counted
            groups.setdefault(key, []).append(score)
        for key, scores in groups.items() or [((), [])]:
            problem = one.problem
            if key:
                several = sum(other[0] == key[0] for other in groups) > 1
                problem = f"scored-{key[0]}" + (f" in {' '.join(filter(None, key[1:]))}" if several else "")
            runs.append(Run(one, scores, problem, _domains_of(one, scores)))
    runs = [_joined(run, [other for other in runs if not other.stored]) if run.stored else run for run in runs]
    recipes = [str(run.results.recipe.get("name") or run.problem) for run in runs]
    own = dict(zip(map(id, results), names, strict=True)) if names else {}
    given = [printable(own.get(id(run.results), str(number))) for number, run in enumerate(runs, start=1)]
    labels = [
        recipe if recipes.count(recipe) == 1 else f"{recipe} ({name})"
        for recipe, name in zip(recipes, given, strict=True)
    ]
    if len(set(labels)) < len(labels):
        labels = [f"{label} {number}" for number, label in enumerate(labels, start=1)]
    shorts = [label.replace(run.problem, "", 1).strip("- ") or label for label, run in zip(labels, runs, strict=True)]
    if names and len(set(recipes)) == 1 and len(set(given)) == len(given) > 1:
        shorts = given  # the name of the one recipe does not distinguish runs
    return [replace(run, name=label, short=short) for label, short, run in zip(labels, shorts, runs, strict=True)]


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
    names, domains = {}, {}
    for name, facts in run.domains.items():
        names[name], shown = known.get(name, (name, facts))
        domains[names[name]] = shown.model_copy(update={"pictures": facts.pictures})
    scores = [score.model_copy(update={"domain": names[score.domain]}) for score in run.scores]
    return replace(run, scores=scores, domains=domains, problem=alike[0].problem)


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
            label = ", ".join([*words, *(f"{number} networks" for number in sorted(filter(None, grown)))])
            named = replace(run, name=f"{run.name} ({label})", short=f"{run.short} ({label})", evaluation=label)
            older.append(replace(named, scores=scores, domains=_domains_of(run.results, scores)))
    return older


def stored_entries(runs: Sequence[Run]) -> list[Entry]:
    """The scores of stored predictions; labels name the domain if there are several."""
    return [
        Entry(
            index,
            f"{score.method} on {score.domain}" if len(run.domains) > 1 else score.method,
            score,
            class_styles(run, score.domain),
        )
        for run in runs
        for index, score in enumerate(run.scores)
    ]


@dataclass(frozen=True, eq=False)
class Problem:
    """Runs of one problem, their methods, and the domains with a score.

    entries: by the name of the domain; everywhere: all of them.
    first: the training domain and the hardest shift, or the first domain if all roles are unknown.
    qualities: the metrics that cost is compared with, which are the headline metrics and the NLL.
    """

    runs: Sequence[Run]
    methods: list[RunMethod]
    domains: list[EvalDomain]
    entries: dict[str, list[Entry]]
    everywhere: list[Entry]
    first: list[EvalDomain]
    others: list[EvalDomain]
    headlines: list[str]
    qualities: list[str]


def problem_of(runs: Sequence[Run]) -> Problem:
    """Some runs as one problem."""
    methods, domains = methods_of(runs), domains_of(runs)
    entries = {domain.name: found for domain in domains if (found := entries_on(methods, domain.name))}
    everywhere = [entry for of_domain in entries.values() for entry in of_domain]

    def hardness(domain: EvalDomain) -> tuple[float, float]:
        """The mean error of methods at their largest M, then the severity."""
        of_domain = entries[domain.name]
        name = next((name for name in headline_names(of_domain) if metric_info(name).group == "Accuracy"), "")
        means = [mean for entry in of_domain if (mean := entry.mean(name, entry.members[-1])) is not None]
        errors = [sort_key(metric_info(name).better, mean) for mean in means]
        return sum(errors) / len(errors) if errors else -float("inf"), domain.severity or 0.0

    scored, headlines = [domain for domain in domains if domain.name in entries], headline_names(everywhere)
    inside = [domain for domain in scored if domain.role == "in-domain"]
    shifted = sorted((domain for domain in scored if domain.shifted), key=hardness, reverse=True)
    first = [*inside[:1], *shifted[:1]] or scored[:1]
    others = [domain for domain in scored if domain not in first]
    nll = ["nll"] if any("nll" in entry.metrics for entry in everywhere) else []
    qualities = list(dict.fromkeys([*headlines, *nll]))
    return Problem(runs, methods, scored, entries, everywhere, first, others, headlines, qualities)


def by_problem(runs: Sequence[Run]) -> list[Problem]:
    """The problems of runs, in their order."""
    problems = dict.fromkeys(run.problem for run in runs)
    return [problem_of([run for run in runs if run.problem == problem]) for problem in problems]


def methods_of(runs: Sequence[Run]) -> list[RunMethod]:
    """Every method of some runs; labels of several runs name the run.

    A method has its own style if that is free, so that it looks alike on every page.
    """
    pairs = [(run, name) for run in runs for name in run.methods]
    labels = [run.results.methods[name].label or name for run, name in pairs]
    if len(runs) > 1:
        labels = [f"{label} · {run.short}" for label, (run, _) in zip(labels, pairs, strict=True)]
    styles: list[int] = []
    for _, name in pairs:
        free = itertools.chain([STYLES[name]] if name in STYLES else [], itertools.count())
        styles.append(next(style for style in free if style not in styles))
    return [
        RunMethod(style, f"{label} ({name})" if labels.count(label) > 1 else label, name, run)
        for style, label, (run, name) in zip(styles, labels, pairs, strict=True)
    ]


def kl_entries(methods: Sequence[RunMethod], view: View) -> list[Entry]:
    """The KLs of methods in one view, as the metric `kl` beside the noise floor of the reference."""
    entries = []
    for method in methods:
        entry = method.on(view.region)
        summary: Summary = {}
        for m, metrics in entry.score.summary.items():
            if isinstance(stat := metrics.get(view.metric), Stat):
                infinite = sum(draw.metrics.get(view.metric) is None for draw in entry.score.draws if m == draw.M)
                summary[m] = {"kl": stat, "kl_infinite": Stat(mean=infinite, std=None, n=stat.n)}
        draws = [Draw(M=draw.M, metrics={"kl": draw.metrics.get(view.metric)}) for draw in entry.score.draws]
        kls = entry.score.model_copy(update={"summary": summary, "draws": draws, "curves": {}})
        entries += [Entry(method.index, method.label, kls, floor=method.run.floor(view))] if summary else []
    return entries


def distinct_references(runs: Sequence[Run]) -> list[Run]:
    """The first of the runs with each reference."""
    return list({str(run.results.reference): run for run in reversed(runs)}.values())[::-1]


def convergence_of(runs: Sequence[Run]) -> list[tuple[str, bool]]:
    """A sentence on the convergence of each reference, and whether it has converged."""
    verdicts = []
    for run in distinct_references(runs):
        if (reference := run.results.reference) is not None and reference.convergence:
            name = f"Reference of {run.name}" if len(runs) > 1 else "Reference"
            doubt = "" if reference.converged else ". KLs to it may differ from KLs to the true posterior."
            verdicts.append((f"{name}: {reference.convergence}{doubt}", bool(reference.converged)))
    return verdicts


class EvalDomain(DomainFacts):
    """A domain with its name in results, and the numbers of its images and pixels."""

    name: str
    num_images: int | None = None
    num_pixels: int | None = None

    @property
    def shifted(self) -> bool:
        """Whether it differs from the training data of the methods."""
        return self.role == "shifted"

    @property
    def title(self) -> str:
        """The label, with the role if known."""
        return self.label if self.role == "role unknown" else f"{self.label} ({self.role})"


def domains_of(runs: Sequence[Run]) -> list[EvalDomain]:
    """The domains of runs, each once, in their order; empty for toy problems."""
    domains: dict[str, EvalDomain] = {}
    for run in (run for run in runs if run.problem not in TRAIN_REGION):
        for name, facts in run.domains.items():
            score = next((score for score in run.scores if score.domain == name), None)
            sizes = {"num_images": score.num_images, "num_pixels": score.pixels.valid} if score else {}
            domains.setdefault(name, EvalDomain(name=name, **sizes, **dict(facts)))
    return list(domains.values())


def entries_on(methods: Sequence[RunMethod], domain: str) -> list[Entry]:
    """The methods with a score on a domain."""
    return [entry for method in methods if (entry := method.on(domain)).members]


def headline_names(entries: Sequence[Entry]) -> list[str]:
    """The headline metrics of any entry."""
    present = {name for entry in entries for name in entry.metrics}
    return [name for name in HEADLINES.get(entries[0].kind, ()) if name in present] if entries else []
