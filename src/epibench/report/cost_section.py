"""The cost of methods over M, and quality against cost: charts and the table of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from epibench.report.chart import Axis, Chart, Layer, Series, log_axis, nice_axis
from epibench.report.figures import LARGE, WIDE, band_ends, metric_chart, over_m, series_at
from epibench.report.metric_info import metric_info
from epibench.report.numbers import MISSING, count, duration, m_equals, significant
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain, RunMethod
from epibench.report.table import Block, Cell, Column, Name, Row, Table
from epibench.results import Cost

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MOST_BANDS = 4  # methods whose bands do not hide one another
Costs = Sequence[tuple[RunMethod, dict[int, float]]]  # by M


@dataclass(frozen=True)
class CostKind:
    """One kind of cost. at: the cost of M members, by M; scale: to the unit; text: a cost in words."""

    key: str
    name: str
    unit: str
    meaning: str
    at: Callable[[Cost], dict[int, float | None]]
    scale: float
    text: Callable[[float], str]

    @property
    def title(self) -> str:
        """Its name with the unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def of(self, methods: Sequence[RunMethod]) -> Costs:
        """What is known of each method."""
        found = []
        for method in methods:
            costs = self.at(method.cost) if method.cost else {}
            found.append((method, {m: self.scale * value for m, value in sorted(costs.items()) if value}))
        return found


KINDS = (
    CostKind(
        "flops",
        "Operations",
        "GFLOP",
        "All M members on one image, what they share once.",
        lambda cost: {m: one.flops for m, one in cost.per_image.items()},
        1e-9,
        lambda value: f"{significant(value, 3)} GFLOP per image",
    ),
    CostKind(
        "seconds",
        "Time",
        "s",
        "All M members on one image.",
        lambda cost: {m: one.seconds for m, one in cost.per_image.items()},
        1.0,
        lambda value: f"{duration(value)} per image",
    ),
    CostKind(
        "memory",
        "Peak memory",
        "MiB",
        "While predicting one image.",
        lambda cost: {m: one.peak_bytes for m, one in cost.per_image.items()},
        2.0**-20,
        lambda value: f"{significant(value, 3)} MiB",
    ),
    CostKind(
        "weights",
        "Weights",
        "MiB",
        "Of M members, what they share once.",
        lambda cost: {m: one.weight_bytes for m, one in cost.per_image.items()},
        2.0**-20,
        lambda value: f"{significant(value, 3)} MiB of weights",
    ),
    CostKind(
        "training",
        "Training",
        "min",
        "The networks behind M members, one after another.",
        lambda cost: {m: one.seconds for m, one in cost.training.items()},
        1 / 60,
        lambda value: f"{duration(60 * value)} of training",
    ),
    CostKind(
        "steps",
        "Training steps",
        "",
        "Of the networks behind M members.",
        lambda cost: {m: one.steps for m, one in cost.training.items()},
        1.0,
        lambda value: f"{count(value)} training steps",
    ),
)
AGAINST = ("flops", "seconds", "memory", "training", "steps")  # what quality is shown against


def cost_section(
    methods: Sequence[RunMethod], first: Sequence[EvalDomain], others: Sequence[EvalDomain], names: Sequence[str]
) -> dict[str, Any]:
    """What methods cost over M, and their quality on every domain against each cost, of which one is chosen."""
    layers: list[dict[str, Any]] = []
    for kind in (kind for kind in KINDS if kind.key in AGAINST):
        costs = kind.of(methods)
        shown, rest = (
            [(d, charts) for d in domains if (charts := quality_figures(names, d, kind, costs))]
            for domains in (first, others)
        )
        if shown or rest:
            option = Option(kind.key, kind.name.lower(), not layers)
            layers.append({"option": option, "kind": kind, "shown": shown, "others": rest})
    figures = [cost_figure(kind, kind.of(methods)) for kind in KINDS]
    switch = Switch("cost", "Against", [layer["option"] for layer in layers])
    return {"figures": [figure for figure in figures if figure], "switch": switch, "layers": layers}


def cost_figure(kind: CostKind, costs: Costs) -> Chart | None:
    """A cost over M, on a scale from zero; None where fewer than two M are known."""
    members = sorted({m for _, values in costs for m in values})
    if len(members) < 2:
        return None
    series = []
    for method, values in costs:
        if values:
            texts = [significant(value, 3) for value in values.values()]
            series.append(Series(method.label, method.index, list(values), list(values.values()), texts=texts))
    description = f"{kind.title} over {m_equals(members[0])} to {members[-1]}"
    y_axis = nice_axis(0.0, max(band_ends(series)))
    chart = Chart(kind.title, y_axis=y_axis, description=description, size=LARGE, meaning=kind.meaning)
    return over_m(replace(chart, better="↓ lower is cheaper"), series, members)


def quality_figures(names: Sequence[str], domain: EvalDomain, kind: CostKind, costs: Costs) -> list[Chart]:
    """A chart for each metric against a cost."""
    charts = [quality_figure(name, domain, kind, costs) for name in names]
    return [chart for chart in charts if chart]


def quality_figure(name: str, domain: EvalDomain, kind: CostKind, costs: Costs) -> Chart | None:
    """A metric against a cost, a line for each method; None where fewer than two costs are known."""
    entries = [(entry, values) for method, values in costs if (entry := method.on(domain.name)).members]
    points = [[(values[m], entry, m) for m in entry.members if m in values] for entry, values in entries]
    series = [series_at(name, of_one, of_one[0][1].label, named=True) for of_one in points if of_one]
    if len(series) > MOST_BANDS:
        series = [replace(one, std=()) for one in series]
    heads = {x: kind.text(x) for of_one in points for x, _, _ in of_one}
    ends = band_ends(series)
    if not ends or len(heads) < 2:
        return None
    return replace(
        metric_chart(name, [entry for entry, _ in entries], WIDE),
        x_axis=cost_axis(min(heads), max(heads), kind.title.lower() if not kind.unit else kind.title),
        y_axis=nice_axis(min(ends), max(ends)),
        layers=[Layer(series, heads)],
        description=f"{metric_info(name).title} on {domain.label} against {kind.name.lower()}",
    )


def cost_axis(lower: float, upper: float, label: str) -> Axis:
    """A logarithmic axis; a short one has its ticks at round numbers of its own."""
    axis = log_axis(lower / 1.1, upper * 1.1, label)
    if len(axis.ticks) > 2:
        return axis
    ticks = [tick for tick in nice_axis(lower, upper).ticks if axis.lower <= tick[0] <= axis.upper]
    return replace(axis, ticks=ticks)


def cost_table(methods: Sequence[RunMethod]) -> Table:
    """Members and cost of every method; columns of which nothing is known are left out."""
    rows = []
    for method in methods:
        cost = method.cost
        pool = next(score.pool for score in method.run.scores if score.method == method.name)
        costs = {
            "Parameters": with_prefix(cost.parameters if cost else None),
            "Operations per pass": with_prefix(cost.flops if cost else None, "FLOP"),
            "Image": " × ".join(count(side) for side in cost.image_size) if cost and cost.image_size else MISSING,
            "Networks or chains": count(pool.num_networks),
            "Members": count(pool.num_members),
            "Draws": pool.plan,
            "Training, all": duration(cost.train_seconds if cost else None),
            "Steps of a network": _steps(cost),
            "Prediction": duration(cost.predict_seconds if cost else None),
        }
        rows.append((method, costs))
    known = [title for title in rows[0][1] if any(costs[title] != MISSING for _, costs in rows)] if rows else []
    shown = [Row(Name(method.label, method.index), [Cell(costs[title]) for title in known]) for method, costs in rows]
    return Table("Members and cost", [Column(Name(title)) for title in known], [Block(rows=shown)])


def _steps(cost: Cost | None) -> str:
    """Training steps of one network."""
    training = next(iter(cost.training.values()), None) if cost else None
    return MISSING if training is None else count(training.steps / training.networks)


def with_prefix(value: float | None, unit: str = "") -> str:
    """A large number as 41 G, with its unit."""
    if value is None:
        return MISSING
    size, prefix = next(((size, prefix) for size, prefix in PREFIXES if value >= size), (1.0, ""))
    return f"{significant(value / size, 3)}\u00a0{prefix}{unit}".rstrip()
