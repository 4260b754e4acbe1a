"""Results as tidy tables: one row for each number, every column with one meaning, whatever was run or scored.

`draws` has one row for each method, domain, M, metric and draw (and class), `summary` their mean, std and number,
`curves` one row for each point of a curve, `cost` one for each quantity, `equivalents` how many ensemble members a
method is worth. A number that is not known is None.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from epibench.conventions import CONVENTIONS
from epibench.report.equivalent import Equivalent
from epibench.report.equivalent_section import ensembles_of, equivalent_names, equivalents_on
from epibench.report.runs import class_styles, entries_on, methods_of, read_runs
from epibench.results import ClassStat, CurveFamilies, Draw, RunResults, ScoreResults, Stat, Summary

Row = dict[str, Any]
Results = RunResults | ScoreResults

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
KL = "kl"
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


def rows_of(table: str, results: Results, name: str | None = None) -> Iterator[Row]:
    """The rows of a table. name: what a run is called, where its recipe's name does not tell it apart."""
    for row in TABLES[table](results, name):
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
    made = pandas.DataFrame(rows_of(table, results), columns=columns)
    types = {**dict.fromkeys(WHOLE, "Int64"), **dict.fromkeys(NUMBERS, "float64")}
    return made.astype({name: kind for name, kind in types.items() if name in columns})


def _run_subjects(results: RunResults, name: str | None) -> Iterator[tuple[Subject, str]]:
    """Every method on every domain, and the key of the domain."""
    source = name or read_runs([results])[0].name
    for method, facts in results.methods.items():
        for domain in results.summary.get(method, {}):
            classes = class_styles(results, domain).names
            about = (source, results.problem, method, facts.label, domain, results.convention, results.unit)
            yield Subject(*about, class_names=classes), domain


def _file_subjects(results: ScoreResults) -> Iterator[tuple[Subject, int]]:
    """Every scored file, and its number."""
    for number, file in enumerate(results.files):
        method = file.method or PurePath(file.path).stem
        about = (file.path, None, method, method, file.domain, results.convention, file.unit)
        yield Subject(*about, class_names=file.class_names or ()), number


Part = Callable[[Subject, Any], Iterable[Row]]


def _each(results: Results, name: str | None, part: str, rows: Part) -> Iterator[Row]:
    """The rows of one part of results, of every method and domain or of every file."""
    if isinstance(results, RunResults):
        of_methods: Mapping[str, Mapping[str, Any]] = getattr(results, part)
        for subject, domain in _run_subjects(results, name):
            yield from rows(subject, of_methods.get(subject.method, {}).get(domain) or ())
        return
    for subject, number in _file_subjects(results):
        yield from rows(subject, getattr(results.files[number], part))


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


def _kl_leaves(results: RunResults, name: str | None, tree: Mapping[str, Any]) -> Iterator[tuple[Subject, str, Any]]:
    """What there is of KLs by M, each with the subject and the metric that it is of; the domain is the region."""
    source = name or read_runs([results])[0].name
    for method, facts in results.methods.items():
        for convention, directions in tree.get(method, {}).items():
            for direction, regions in directions.items():
                metric = f"{KL}_{direction}" + ("" if convention == results.convention else f"_{convention}")
                for region, leaf in regions.items():
                    about = (source, results.problem, method, facts.label, region, convention, None)
                    yield Subject(*about), metric, leaf


def _draws(results: Results, name: str | None) -> Iterator[Row]:
    yield from _each(results, name, "draws", _draw_rows)
    if isinstance(results, RunResults):
        for subject, metric, values in _kl_leaves(results, name, results.kl_draws):
            for m, of_m in values.items():
                yield from (subject.metric_row(m, metric, draw=i, value=value) for i, value in enumerate(of_m))


def _summary(results: Results, name: str | None) -> Iterator[Row]:
    yield from _each(results, name, "summary", _summary_rows)
    if isinstance(results, RunResults):
        for subject, metric, stats in _kl_leaves(results, name, results.kl):
            for m, stat in stats.items():
                assert isinstance(stat, Stat)
                yield subject.metric_row(m, metric, mean=stat.mean, std=stat.std, n=stat.n)


def _curves(results: Results, name: str | None) -> Iterator[Row]:
    yield from _each(results, name, "curves", _curve_rows)


def _cost(results: Results, name: str | None) -> Iterator[Row]:
    """One quantity of a method, in general, of one image at an M, or of an evaluation on a domain."""
    if not isinstance(results, RunResults):
        return
    source = name or read_runs([results])[0].name
    for method, cost in results.cost.items():
        facts = results.methods.get(method)
        about = {"source": source, "problem": results.problem, "method": method, "label": facts and facts.label}
        single = {
            "parameters": cost.parameters,
            "train_seconds": cost.train_seconds,
            "predict_seconds": cost.predict_seconds,
            "flops_per_pass": cost.flops,
            "image_height": cost.image_size[0] if cost.image_size else None,
            "image_width": cost.image_size[1] if cost.image_size else None,
        }
        yield from ({**about, "quantity": key, "value": value} for key, value in single.items() if value is not None)
        for m, image in cost.per_image.items():
            yield {**about, "M": m, "quantity": "seconds_per_image", "value": image.seconds}
            yield {**about, "M": m, "quantity": "peak_bytes_per_image", "value": image.peak_bytes}
            yield {**about, "M": m, "quantity": "flops_per_image", "value": image.flops}
            yield {**about, "M": m, "quantity": "weight_bytes", "value": image.weight_bytes}
        for m, training in cost.training.items():
            for key, value in training.model_dump().items():
                yield {**about, "M": m, "quantity": f"training_{key}", "value": value}
        for domain, passed in cost.evaluation.items():
            for key, value in passed.model_dump().items():
                yield {**about, "domain": domain, "quantity": key, "value": value}


def _equivalents(results: Results, name: str | None) -> Iterator[Row]:
    """Every method at every M on every domain, by each metric that methods are counted by."""
    if not isinstance(results, RunResults):
        return
    methods = methods_of(read_runs([results]))
    ensembles = [method.name for method in ensembles_of(methods).values()]
    for subject, domain in _run_subjects(results, name):
        own = [method for method in methods if method.name in (subject.method, *ensembles)]
        for metric in equivalent_names(entries_on(own, domain)):
            for _, by_size in equivalents_on(domain, own, metric):
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


TABLES: dict[str, Callable[[Results, str | None], Iterator[Row]]] = {
    "draws": _draws,
    "summary": _summary,
    "curves": _curves,
    "cost": _cost,
    "equivalents": _equivalents,
}
