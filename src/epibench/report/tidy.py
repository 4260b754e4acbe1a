"""Results as tidy tables: one row for each number, every column with one meaning. An unknown number is None."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from epibench.conventions import CONVENTIONS
from epibench.errors import InputError
from epibench.report.equivalent_section import ensembles_of, equivalent_names, equivalents_on
from epibench.report.runs import Run, class_styles, entries_on, methods_of, older_runs, read_runs
from epibench.results import ClassStat, Results, Score

Row = dict[str, Any]

SUBJECT = ("source", "problem", "method", "label", "domain", "convention", "M")
METRIC = ("metric", "class", "class_name", "target_unit")
BOUNDED = {
    "members": "bound",
    "low": "low_bound",
    "high": "high_bound",
}  # each number, and the column of its `<` or `>`
COLUMNS: dict[str, tuple[str, ...]] = {
    "draws": (*SUBJECT, "draw", *METRIC, "value"),
    "summary": (*SUBJECT, *METRIC, "mean", "std", "n"),
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


def rows_of(table: str, runs: Sequence[Run]) -> Iterator[Row]:
    """The rows of a table; a column without a value is None."""
    for run in runs:
        for score in run.scores if table != "cost" else ():
            about = _about(run, score.method, score.source or run.name)
            convention = str(score.settings.get("convention") or run.results.convention)
            about |= {"domain": score.domain, "target_unit": score.unit}
            for row in _ROWS[table](run, score):
                metric = row.get("metric", "")
                own = next((name for name in CONVENTIONS if metric.endswith(f"_{name}")), convention)
                yield {column: {**about, **row, "convention": own}.get(column) for column in COLUMNS[table]}
        for method in run.methods if table == "cost" else ():
            about = _about(run, method, run.name)
            for row in _costs(run, method):
                yield {column: {**about, **row}.get(column) for column in COLUMNS[table]}


def csv_text(table: str, rows: Iterable[Row]) -> str:
    """A table as CSV: numbers in full precision, unknown numbers empty."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, COLUMNS[table], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def frame(results: Results, table: str = "draws") -> Any:
    """A table as a pandas DataFrame with nullable whole numbers and float64."""
    if table not in COLUMNS:
        raise InputError(f"frame('{table}'): there is no such table; give {', '.join(COLUMNS)}")
    try:
        import pandas
    except ImportError:
        raise InputError("frame() needs the package pandas: pip install pandas") from None
    runs, columns = read_runs([results]), COLUMNS[table]
    made = pandas.DataFrame(rows_of(table, [*runs, *older_runs(runs)]), columns=columns)
    types = {**dict.fromkeys(WHOLE, "Int64"), **dict.fromkeys(NUMBERS, "float64")}
    return made.astype({name: kind for name, kind in types.items() if name in columns})


def _about(run: Run, method: str, source: str) -> Row:
    return {"source": source, "problem": run.problem, "method": method, "label": run.results.methods[method].label}


def _of_classes(run: Run, score: Score, values: Any) -> Iterator[tuple[Row, Any]]:
    """A value, or the value of each class with the number and the name of the class."""
    names = class_styles(run, score.domain).names
    for k, value in enumerate(values) if isinstance(values, list) else ((None, values),):
        yield {"class": k, "class_name": names[k] if k is not None and k < len(names) else None}, value


def _draws(run: Run, score: Score) -> Iterator[Row]:
    seen: Counter[int] = Counter()
    for draw in score.draws:
        for metric, values in draw.metrics.items():
            for about, value in _of_classes(run, score, values):
                yield {"M": draw.M, "draw": seen[draw.M], "metric": metric, **about, "value": value}
        seen[draw.M] += 1


def _summary(run: Run, score: Score) -> Iterator[Row]:
    for m, metrics in score.summary.items():
        for metric, stat in metrics.items():
            pairs: Any = stat.mean, stat.std
            if isinstance(stat, ClassStat):
                pairs = list(zip(stat.mean, stat.std or [None] * len(stat.mean), strict=True))
            for about, (mean, std) in _of_classes(run, score, pairs):
                yield {"M": m, "metric": metric, **about, "mean": mean, "std": std, "n": stat.n}


def _curves(run: Run, score: Score) -> Iterator[Row]:
    for family, curves in score.curves.items():
        for m, of_m in curves.M.items():
            for name, curve in of_m.items():
                stds = curve.std or [None] * len(curve.mean)
                for x, mean, std in zip(curves.x, curve.mean, stds, strict=True):
                    yield {"M": m, "family": family, "curve": name, "x": x, "mean": mean, "std": std}


def _equivalents(run: Run, score: Score) -> Iterator[Row]:
    methods = methods_of([run])
    ensembles = [method.name for method in ensembles_of(methods).values()]
    own = [method for method in methods if method.name in (score.method, *ensembles)]
    for metric in equivalent_names(entries_on(own, score.domain)) if ensembles else ():
        for _, by_size in equivalents_on(score.domain, own, metric):
            for m, found in by_size.items():
                row = {"M": m, "metric": metric, "ensemble": ensembles[0]}
                for key, bound in BOUNDED.items():
                    if (value := getattr(found, key)) is not None:
                        row[bound], row[key] = found.bounded(value)
                yield row


def _costs(run: Run, method: str) -> Iterator[Row]:
    """The quantities of a method: in general, of one image, of training, of an evaluation."""
    if (cost := run.results.methods[method].cost) is not None:
        height, width = cost.image_size or (None, None)
        single: Row = {"parameters": cost.parameters, "train_seconds": cost.train_seconds}
        single |= {"predict_seconds": cost.predict_seconds, "flops_per_pass": cost.flops}
        for key, value in (single | {"image_height": height, "image_width": width}).items():
            yield from () if value is None else [{"quantity": key, "value": value}]
        for m, image in cost.per_image.items():
            for key in ("seconds", "peak_bytes", "flops"):
                yield {"M": m, "quantity": f"{key}_per_image", "value": getattr(image, key)}
            yield {"M": m, "quantity": "weight_bytes", "value": image.weight_bytes}
        for m, training in cost.training.items():
            for key, value in training.model_dump().items():
                yield {"M": m, "quantity": f"training_{key}", "value": value}
    for score in run.scores:
        for key, value in score.cost.model_dump().items() if score.cost and score.method == method else ():
            yield {"domain": score.domain, "quantity": key, "value": value}


_ROWS: dict[str, Callable[[Run, Score], Iterator[Row]]] = {
    "draws": _draws,
    "summary": _summary,
    "curves": _curves,
    "equivalents": _equivalents,
}
