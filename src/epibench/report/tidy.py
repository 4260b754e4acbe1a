"""Results as tidy tables: one row for each number, every column with one meaning, whatever was run or scored.

`draws` has one row for each method, domain, M, metric and draw (and class), `summary` their mean, std and number,
`curves` one row for each point of a curve, `cost` one for each quantity, `equivalents` how many ensemble members a
method is worth. A number that is not known is None.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from epibench.conventions import CONVENTIONS
from epibench.report.equivalent import Equivalent
from epibench.report.equivalent_section import ensembles_of, equivalent_names, equivalents_on
from epibench.report.runs import Run, class_styles, entries_on, methods_of, older_runs, read_runs
from epibench.results import ClassStat, CurveFamilies, Draw, Results, Score, Summary

Row = dict[str, Any]

SUBJECT = ("source", "problem", "method", "label", "domain", "convention", "M")
COLUMNS: dict[str, tuple[str, ...]] = {
    "draws": (*SUBJECT, "draw", "metric", "class", "class_name", "target_unit", "value"),
    "summary": (*SUBJECT, "metric", "class", "class_name", "target_unit", "mean", "std", "n"),
    "curves": (*SUBJECT, "family", "curve", "x", "mean", "std"),
    "cost": ("source", "problem", "method", "label", "domain", "M", "quantity", "value"),
    "equivalents": (*SUBJECT, "metric", "ensemble", "bound", "members", "low_bound", "low", "high_bound", "high"),
}
ABOUT = {
    "draws": "every metric of every draw",
    "summary": "mean, std (of the population) and number of draws of every metric",
    "curves": "sparsification, calibration and reliability: mean and std over draws at each x",
    "cost": "parameters, operations, seconds and bytes",
    "equivalents": "how many ensemble members score as well (deep-ensemble equivalent), with the 5 to 95 % interval",
}
WHOLE = ("M", "draw", "class", "n")  # columns of whole numbers
NUMBERS = ("x", "mean", "std", "value", "members", "low", "high")


@dataclass(frozen=True)
class Subject:
    """One method on one domain: what every row about it begins with."""

    source: str
    problem: str | None
    method: str
    label: str
    domain: str | None
    convention: str
    unit: str | None
    class_names: Sequence[str] = ()

    def row(self, m: int, **more: Any) -> Row:
        """A row about it at an M."""
        names = ("source", "problem", "method", "label", "domain", "convention")
        return {**{name: getattr(self, name) for name in names}, "M": m, **more}

    def metric_row(self, m: int, metric: str, number: int | None = None, **more: Any) -> Row:
        """A row about a metric, or about it for one class; one that ends with a convention is of that convention."""
        own = next((name for name in CONVENTIONS if metric.endswith(f"_{name}")), self.convention)
        named = number is not None and number < len(self.class_names)
        name = self.class_names[number] if number is not None and named else None
        row = self.row(m, metric=metric, **{"class": number}, class_name=name, target_unit=self.unit, **more)
        return {**row, "convention": own}


def rows_of(table: str, runs: Sequence[Run]) -> Iterator[Row]:
    """The rows of a table."""
    for run in runs:
        for row in TABLES[table](run):
            yield {column: row.get(column) for column in COLUMNS[table]}


def csv_text(table: str, rows: Iterable[Row]) -> str:
    """A table as CSV: numbers in full precision, nothing where there is none."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS[table], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def frame(results: Results, table: str = "draws") -> Any:
    """A table as a pandas DataFrame: whole numbers as such also where some are missing, numbers as float64."""
    from epibench.errors import InputError

    if table not in COLUMNS:
        raise InputError(f"frame('{table}'): there is no such table; give {', '.join(COLUMNS)}")
    try:
        import pandas
    except ImportError:
        raise InputError("frame() needs the package pandas: pip install pandas") from None
    columns = COLUMNS[table]
    made = pandas.DataFrame(rows_of(table, [*(runs := read_runs([results])), *older_runs(runs)]), columns=columns)
    types = {**dict.fromkeys(WHOLE, "Int64"), **dict.fromkeys(NUMBERS, "float64")}
    return made.astype({name: kind for name, kind in types.items() if name in columns})


def _subjects(run: Run) -> Iterator[tuple[Subject, Score]]:
    """Every method on every domain, and its score."""
    for score in run.scores:
        source = score.source or run.name
        label = run.results.methods[score.method].label
        convention = str(score.settings.get("convention") or run.results.convention)
        about = (source, run.problem, score.method, label, score.domain, convention, score.unit)
        yield Subject(*about, class_names=class_styles(run, score.domain).names), score


def _draw_rows(subject: Subject, draws: Sequence[Draw]) -> Iterator[Row]:
    seen: Counter[int] = Counter()
    for draw in draws:
        for metric, value in draw.metrics.items():
            values = enumerate(value) if isinstance(value, list) else [(None, value)]
            for number, one in values:
                yield subject.metric_row(draw.M, metric, number, draw=seen[draw.M], value=one)
        seen[draw.M] += 1


def _summary_rows(subject: Subject, summary: Summary) -> Iterator[Row]:
    for m, metrics in dict(summary).items():
        for metric, stat in metrics.items():
            if isinstance(stat, ClassStat):
                stds = stat.std or [None] * len(stat.mean)
                for number, (mean, std) in enumerate(zip(stat.mean, stds, strict=True)):
                    yield subject.metric_row(m, metric, number, mean=mean, std=std, n=stat.n)
            else:
                yield subject.metric_row(m, metric, mean=stat.mean, std=stat.std, n=stat.n)


def _curve_rows(subject: Subject, families: CurveFamilies) -> Iterator[Row]:
    for family, curves in dict(families).items():
        for m, of_m in curves.M.items():
            for name, curve in of_m.items():
                stds = curve.std or [None] * len(curve.mean)
                for x, mean, std in zip(curves.x, curve.mean, stds, strict=True):
                    yield subject.row(m, family=family, curve=name, x=x, mean=mean, std=std)


def _draws(run: Run) -> Iterator[Row]:
    for subject, score in _subjects(run):
        yield from _draw_rows(subject, score.draws)


def _summary(run: Run) -> Iterator[Row]:
    for subject, score in _subjects(run):
        yield from _summary_rows(subject, score.summary)


def _curves(run: Run) -> Iterator[Row]:
    for subject, score in _subjects(run):
        yield from _curve_rows(subject, score.curves)


def _cost(run: Run) -> Iterator[Row]:
    """One quantity of a method, in general, of one image at an M, or of an evaluation on a domain."""
    for method in run.methods:
        facts = run.results.methods[method]
        about = {"source": run.name, "problem": run.problem, "method": method, "label": facts.label}
        if (cost := facts.cost) is not None:
            single = {
                "parameters": cost.parameters,
                "train_seconds": cost.train_seconds,
                "predict_seconds": cost.predict_seconds,
                "flops_per_pass": cost.flops,
                "image_height": cost.image_size[0] if cost.image_size else None,
                "image_width": cost.image_size[1] if cost.image_size else None,
            }
            for key, value in single.items():
                yield from () if value is None else [{**about, "quantity": key, "value": value}]
            for m, image in cost.per_image.items():
                yield {**about, "M": m, "quantity": "seconds_per_image", "value": image.seconds}
                yield {**about, "M": m, "quantity": "peak_bytes_per_image", "value": image.peak_bytes}
                yield {**about, "M": m, "quantity": "flops_per_image", "value": image.flops}
                yield {**about, "M": m, "quantity": "weight_bytes", "value": image.weight_bytes}
            for m, training in cost.training.items():
                for key, value in training.model_dump().items():
                    yield {**about, "M": m, "quantity": f"training_{key}", "value": value}
        for score in run.scores:
            for key, value in score.cost.model_dump().items() if score.cost and score.method == method else ():
                yield {**about, "domain": score.domain, "quantity": key, "value": value}


def _equivalents(run: Run) -> Iterator[Row]:
    """Every method at every M on every domain, by each metric that methods are counted by."""
    methods = methods_of([run])
    ensembles = [method.name for method in ensembles_of(methods).values()]
    for subject, score in _subjects(run):
        own = [method for method in methods if method.name in (subject.method, *ensembles)]
        for metric in equivalent_names(entries_on(own, score.domain)) if ensembles else ():
            for _, by_size in equivalents_on(score.domain, own, metric):
                for m, found in by_size.items():
                    yield subject.metric_row(m, metric, ensemble=ensembles[0], **_bounded(found))


def _bounded(found: Equivalent) -> Row:
    """A number of members and its interval, each with `<` or `>` where it is a bound."""
    row: Row = {}
    for key, bound, value in (
        ("members", "bound", found.members),
        ("low", "low_bound", found.low),
        ("high", "high_bound", found.high),
    ):
        row[bound], row[key] = (None, None) if value is None else found.bounded(value)
    return row


TABLES: dict[str, Callable[[Run], Iterator[Row]]] = {
    "draws": _draws,
    "summary": _summary,
    "curves": _curves,
    "cost": _cost,
    "equivalents": _equivalents,
}
