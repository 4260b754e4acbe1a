"""The cost of methods over M, and quality against cost: charts and the table of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from epibench.report.chart import Axis, Chart, Layer, Series, log_axis, nice_axis
from epibench.report.entries import Entry
from epibench.report.figures import LARGE, WIDE, band_ends, metric_chart, over_m, series_at
from epibench.report.metric_info import metric_info
from epibench.report.numbers import MISSING, NO_BREAK_SPACE, count, duration, m_equals, significant
from epibench.report.page import Option, Switch
from epibench.report.runs import EvalDomain, RunMethod
from epibench.report.table import Block, Cell, Column, Name, Row, Table

PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MOST_BANDS = 4  # bands of more methods hide one another
Costs = Sequence[tuple[RunMethod, dict[int, float]]]  # by M


@dataclass(frozen=True)
class CostKind:
    """A field of a part of `Cost` over M, times a scale. text: a value in words."""

    key: str
    name: str
    unit: str
    meaning: str
    part: Literal["per_image", "training"]
    field: str
    scale: float
    text: Callable[[float], str]

    @property
    def title(self) -> str:
        """Its name with the unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name

    def of(self, methods: Sequence[RunMethod]) -> Costs:
        """The known costs of each method."""
        found = []
        for method in methods:
            costs = getattr(method.facts.cost, self.part, {})
            values = {m: getattr(cost, self.field) for m, cost in sorted(costs.items())}
            found.append((method, {m: self.scale * value for m, value in values.items() if value}))
        return found


ALL_MEMBERS = "All M members on one image"
KINDS = (
    CostKind("flops", "Operations", "GFLOP", f"{ALL_MEMBERS}, what they share once.", "per_image", "flops", 1e-9,
             lambda value: f"{significant(value, 3)} GFLOP per image"),
    CostKind("seconds", "Time", "s", f"{ALL_MEMBERS}.", "per_image", "seconds", 1.0,
             lambda value: f"{duration(value)} per image"),
    CostKind("memory", "Peak memory", "MiB", "While predicting one image.", "per_image", "peak_bytes", 2.0**-20,
             lambda value: f"{significant(value, 3)} MiB"),
    CostKind("weights", "Weights", "MiB", "Of M members, what they share once.", "per_image", "weight_bytes", 2.0**-20,
             lambda value: f"{significant(value, 3)} MiB of weights"),
    CostKind("training", "Training", "min", "The networks behind M members, one after another.", "training", "seconds",
             1 / 60, lambda value: f"{duration(60 * value)} of training"),
    CostKind("steps", "Training steps", "", "Of the networks behind M members.", "training", "steps", 1.0,
             lambda value: f"{count(value)} training steps"),
)  # fmt: skip


def cost_section(
    methods: Sequence[RunMethod], first: Sequence[EvalDomain], others: Sequence[EvalDomain], names: Sequence[str]
) -> dict[str, Any]:
    """The cost of methods over M, and their quality on every domain against each cost but weights."""
    layers: list[dict[str, Any]] = []
    figures = []
    for kind in KINDS:
        costs, halves = kind.of(methods), []
        figures += [chart] if (chart := _cost_figure(kind, costs)) else []
        for domains in (first, others) if kind.key != "weights" else ():
            charts = [(domain, [_quality_figure(name, domain, kind, costs) for name in names]) for domain in domains]
            drawn = [(domain, [one for one in of_domain if one]) for domain, of_domain in charts]
            halves.append([(domain, of_domain) for domain, of_domain in drawn if of_domain])
        if any(halves):
            option = Option(kind.key, kind.name.lower(), not layers)
            layers.append({"option": option, "kind": kind, "shown": halves[0], "others": halves[1]})
    switch = Switch("cost", "Against", [layer["option"] for layer in layers])
    return {"figures": figures, "switch": switch, "layers": layers}


def _cost_figure(kind: CostKind, costs: Costs) -> Chart | None:
    """A cost over M, on a scale from zero; None for fewer than two M."""
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


def _quality_figure(name: str, domain: EvalDomain, kind: CostKind, costs: Costs) -> Chart | None:
    """A metric against a cost, a line for each method; None for fewer than two costs."""
    entries: list[Entry] = []
    points: list[list[tuple[float, Entry, int]]] = []
    for method, values in costs:
        if (entry := method.on(domain.name)).members:
            entries.append(entry)
            points.append([(values[m], entry, m) for m in entry.members if m in values])
    series = [series_at(name, of_one, of_one[0][1].label, named=True) for of_one in points if of_one]
    if len(series) > MOST_BANDS:
        series = [replace(one, std=()) for one in series]
    heads = {x: kind.text(x) for of_one in points for x, _, _ in of_one}
    ends = band_ends(series)
    if not ends or len(heads) < 2:
        return None
    return replace(
        metric_chart(name, entries, WIDE),
        x_axis=cost_axis(min(heads), max(heads), kind.title if kind.unit else kind.title.lower()),
        y_axis=nice_axis(min(ends), max(ends)),
        layers=[Layer(series, heads)],
        description=f"{metric_info(name).title} on {domain.label} against {kind.name.lower()}",
    )


def cost_axis(lower: float, upper: float, label: str) -> Axis:
    """A logarithmic axis; a short one has linear ticks."""
    axis = log_axis(lower / 1.1, upper * 1.1, label)
    ticks = [tick for tick in nice_axis(lower, upper).ticks if axis.lower <= tick[0] <= axis.upper]
    return axis if len(axis.ticks) > 2 else replace(axis, ticks=ticks)


def cost_table(methods: Sequence[RunMethod]) -> Table:
    """Members and cost of every method, without columns of unknown values."""

    def prefixed(value: float | None, unit: str = "") -> str:
        """A large number as 41 G."""
        if value is None:
            return MISSING
        size, prefix = next(((size, prefix) for size, prefix in PREFIXES if value >= size), (1.0, ""))
        return f"{significant(value / size, 3)}{NO_BREAK_SPACE}{prefix}{unit}".rstrip()

    rows = []
    for method in methods:
        cost = method.facts.cost
        pool = next(score.pool for score in method.run.scores if score.method == method.name)
        training = next(iter(cost.training.values()), None) if cost else None
        costs = {
            "Parameters": prefixed(cost.parameters if cost else None),
            "Operations per pass": prefixed(cost.flops if cost else None, "FLOP"),
            "Image": " × ".join(count(side) for side in cost.image_size) if cost and cost.image_size else MISSING,
            "Networks or chains": count(pool.num_networks),
            "Members": count(pool.num_members),
            "Draws": pool.plan,
            "Training, all": duration(cost.train_seconds if cost else None),
            "Steps of a network": count(training.steps / training.networks if training else None),
            "Prediction": duration(cost.predict_seconds if cost else None),
        }
        rows.append((method, costs))
    known = [title for title in rows[0][1] if any(costs[title] != MISSING for _, costs in rows)] if rows else []
    shown = [Row(Name(method.label, method.index), [Cell(costs[title]) for title in known]) for method, costs in rows]
    return Table("Members and cost", [Column(Name(title)) for title in known], [Block(rows=shown)])
