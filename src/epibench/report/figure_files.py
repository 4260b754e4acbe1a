"""Every figure of a page as a drawing of its own, with a name for its file and a line that says what it shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, fromstring

from epibench.report.charts.lines import Decor, Layer, Series, line_chart
from epibench.report.charts.svg import Axis, element, nice_axis
from epibench.report.cost_section import cost_section
from epibench.report.curve_figures import LARGEST, CurveParts, curve_parts, curve_switch
from epibench.report.dense_section import over_members, picture_books, shifted_from, shifts_from
from epibench.report.entries import Entry, metric_names, title_with_unit
from epibench.report.figures import (
    LARGE,
    Figure,
    band_ends,
    kl_chart,
    metric_figure,
    severity_figures,
    training_figures,
)
from epibench.report.metric_info import metric_info
from epibench.report.numbers import m_equals
from epibench.report.pictures import Panel, PanelRow
from epibench.report.pictures.toy import toy_book
from epibench.report.run_page import REGION_TITLES, distinct_floors, published_section
from epibench.report.runs import (
    VIEWS,
    EvalDomain,
    Run,
    RunMethod,
    by_problem,
    domains_of,
    entries_on,
    featured,
    headline_names,
    kl_entries,
    methods_of,
    quality_names,
    scored_domains,
)
from epibench.report.standalone import LINE, MARGIN, Drawing, finished, layers_of, standalone

LONGEST_NAME = 120
PANEL_GAP, PANEL_TITLE = 16.0, 16.0
KEY_COLUMN = 120.0  # of classes, in pixels
TOY_LEGENDS = {  # as on the page
    "gaussian": "mean, ± 1 and 2 std; dots are data, dashes the truth, thin lines the reference ± 2 std",
    "categorical": "probability of class 0, blue 1 to orange 0; dots are data, the circle is the true boundary",
}
ARROWS = {"lower": " ↓", "higher": " ↑", "zero": "", "neither": ""}


@dataclass(frozen=True)
class FigureFile:
    """A figure: the name of its file without an ending, what it shows, and the drawing."""

    name: str
    about: str
    drawing: Drawing


def slug(*parts: str) -> str:
    """Words as the name of a file: small letters, digits and hyphens."""
    words = [re.sub(r"[^a-z0-9]+", "-", part.lower().replace("=", "")).strip("-") for part in parts]
    return "-".join(word for word in words if word)[:LONGEST_NAME].strip("-")


def distinct(figures: Iterator[FigureFile]) -> Iterator[FigureFile]:
    """The figures with names that differ."""
    seen: dict[str, int] = {}
    for figure in figures:
        seen[figure.name] = number = seen.get(figure.name, 0) + 1
        yield figure if number == 1 else FigureFile(f"{figure.name}-{number}", figure.about, figure.drawing)


def run_figures(runs: Sequence[Run]) -> Iterator[FigureFile]:
    """Every figure of the page of some runs."""
    groups = by_problem(runs)
    for group in groups:
        prefix = group[0].problem if len(groups) > 1 else ""
        yield from (FigureFile(slug(prefix, one.name), one.about, one.drawing) for one in _problem_figures(group))


def _problem_figures(runs: Sequence[Run]) -> Iterator[FigureFile]:
    methods = methods_of(runs)
    for view in VIEWS:
        entries = kl_entries(methods, view)
        if chart := kl_chart(entries, view, distinct_floors(methods, view)) if entries else None:
            name = slug("kl", view.direction, view.region, view.convention)
            yield FigureFile(name, f"{view.name}, over M", standalone(chart, view.name))
    yield from _toy_pictures(runs, methods)
    domains = scored_domains(runs, methods)
    entries_of = {domain.name: entries_on(methods, domain.name) for domain in domains}
    labels = {domain.name: domain.label for domain in domains}
    if not domains_of(runs):  # a toy problem has regions
        entries_of = {name: entries for name in REGION_TITLES if (entries := entries_on(methods, name))}
        labels = {name: f"{name} of the training region" for name in entries_of}
    for name, entries in entries_of.items():
        yield from _entry_figures(entries, name, labels[name], with_curves=len(runs) == 1)
    if domains:
        yield from _dense_figures(runs, methods, entries_of)
    if published := published_section(runs, methods):
        for figure, block in zip(published["figures"], published["blocks"], strict=True):
            name = slug("published", block["entry"].label, block["metric"] or "kl")
            yield from _single(figure, name, f"{figure.title}: ours, and as published")


def _entry_figures(entries: Sequence[Entry], name: str, where: str, with_curves: bool = True) -> Iterator[FigureFile]:
    """Every metric of some entries over M, and their curves at each M."""
    for metric in metric_names(entries):
        if drawing := metric_drawing(metric, entries, where):
            yield FigureFile(slug(name, metric), f"{title_with_unit(metric, entries)} over M{_on(where)}", drawing)
    if with_curves:
        yield from _curve_files(curve_parts(entries, curve_switch(entries).options), name, where)


def metric_drawing(metric: str, entries: Sequence[Entry], where: str) -> Drawing | None:
    """A metric over M, or at the only one; None where there is no finite value."""
    figure = metric_figure(metric, entries, LARGE)
    title = " · ".join(part for part in (figure.title + ARROWS[metric_info(metric).better], where) if part)
    chart = figure.chart or _dots(metric, entries)
    return None if chart is None else standalone(chart, title)


def _on(where: str) -> str:
    return f", {where}" if where else ""


def _dots(name: str, entries: Sequence[Entry]) -> str | None:
    """A metric at one M: a marker ± std for each entry, side by side."""
    having = [entry for entry in entries if any(entry.mean(name, m) is not None for m in entry.members)]
    series = []
    for number, entry in enumerate(having):
        stat = entry.stat(name, entry.members[-1])
        text = [entry.text(name, entry.members[-1])]
        series.append(Series(entry.label, entry.index, [number], [stat.mean], [stat.std], text))
    ends = band_ends(series)
    if not ends:
        return None
    m = having[0].members[-1]
    axis = Axis(-0.5, len(having) - 0.5, [], m_equals(m))
    decor, title = Decor(markers=True), metric_info(name).title
    return line_chart([Layer(series, {})], axis, nice_axis(min(ends), max(ends)), title, size=LARGE, decor=decor)


def _curve_files(parts: CurveParts, name: str, where: str) -> Iterator[FigureFile]:
    """Curves of all methods together, reliability diagrams, and the curves of each method alone; a file for each M."""
    for figure in parts.together:
        yield from _layered(figure, slug(name, figure.title), figure.title, where)
    for figure in parts.reliability:
        yield from _layered(
            figure, slug(name, "reliability", figure.title), f"Reliability of {figure.title}", where, names=False
        )
    for row in parts.rows:
        label = row["entry"].label
        for figure in row["figures"]:
            title = f"{figure.title}, {label}"
            yield from _layered(figure, slug(name, figure.title, label), title, where)


def _layered(figure: Figure, name: str, title: str, where: str, names: bool = True) -> Iterator[FigureFile]:
    """A file for each M of a chart."""
    if figure.chart is None:
        return
    for key in layers_of(figure.chart) or [""]:
        first = key.split(" ")[0]
        at = "" if not first else "the largest M of each" if first == LARGEST else m_equals(int(first))
        drawing = standalone(
            figure.chart, " · ".join(part for part in (title, where, at) if part), key=key, names=names
        )
        suffix = "largest-m" if first == LARGEST else f"m{first}" if first else ""
        yield FigureFile(slug(name, suffix), f"{title}{_on(where)}{f', at {at}' if at else ''}", drawing)


def _single(figure: Figure | None, name: str, about: str, where: str = "") -> Iterator[FigureFile]:
    """A chart without a choice of M."""
    if figure is not None and figure.chart is not None:
        title = " · ".join(part for part in (figure.title, where) if part)
        yield FigureFile(name, about, standalone(figure.chart, title))


def _dense_figures(
    runs: Sequence[Run], methods: Sequence[RunMethod], entries: dict[str, list[Entry]]
) -> Iterator[FigureFile]:
    """What only problems with domains have: common scales, severity, pictures, cost, training."""
    domains = scored_domains(runs, methods)
    everywhere = [entry for of_domain in entries.values() for entry in of_domain]
    names, first = headline_names(everywhere), featured(domains, methods)
    if len(domains) > 1:
        layer = over_members(domains, [], entries, names)[0]
        for row in layer["first"]:
            for metric, figure in zip(names, row["figures"], strict=True):
                label, name = row["domain"].label, slug(row["domain"].name, metric, "common-scale")
                about = f"{figure.title} over M, {label}, on a scale that is common to all domains"
                yield from _single(figure, name, about, label)
    for metric, figure in zip(names, severity_figures(domains, methods, names), strict=False):
        about = f"{figure.title} over the severity of the shift"
        yield from _single(figure, slug("severity", metric), about, "full: at the largest M, faint: at the smallest")
    yield from _comparison_figures(methods, domains, first, quality_names(everywhere))
    for figure in training_figures(methods):
        about = f"Training loss of every network of {figure.title}"
        yield from _single(figure, slug("training", figure.title), about, "training loss")
    for number, run in enumerate(runs):
        for book in picture_books(run, methods, domains, f"book{number}"):
            for layer in book["layers"]:
                of_run = "" if len(runs) == 1 else run.name
                name = slug(of_run, book["domain"].name, "image", layer["option"].text)
                yield FigureFile(name, layer["caption"], pictures_together(layer["rows"], layer["caption"]))


def _comparison_figures(
    methods: Sequence[RunMethod], domains: Sequence[EvalDomain], first: Sequence[EvalDomain], names: Sequence[str]
) -> Iterator[FigureFile]:
    """What methods cost, their quality against that, and their scores on shifted domains against those in-domain."""
    cost = cost_section(methods, domains, [], names)
    for figure in cost["figures"]:
        yield from _single(figure, slug("cost", figure.title), f"{figure.title} over M", figure.meaning.rstrip("."))
    for layer in cost["layers"]:
        kind = layer["kind"]
        for domain, figures in layer["shown"]:
            for figure in figures:
                about = f"{figure.title} against {kind.name.lower()}, {domain.label}"
                name = slug(domain.name, figure.title, "against", kind.name)
                yield from _single(figure, name, about, domain.label)
    for domain in shifts_from(first[0], domains):
        for figure in shifted_from(first[0], domain, methods, names)[1]:
            about = f"{figure.title} on {domain.label} against {first[0].label}"
            yield from _single(figure, slug(domain.name, figure.title, "against", first[0].name), about, domain.label)


def _toy_pictures(runs: Sequence[Run], methods: Sequence[RunMethod]) -> Iterator[FigureFile]:
    """Every picture of toy problems, with every example."""
    for number, run in enumerate(runs):
        book = toy_book(run, [method for method in methods if method.run is run], f"toy{number}")
        if book is None:
            continue
        for group in book["groups"]:
            for panel in group.panels:
                title = panel.title if group.style is None else f"{group.title}, {panel.title}"
                legend = TOY_LEGENDS[run.kind or ""]
                yield from _toy_files(panel, "" if len(runs) == 1 else run.name, title, book["shared"], legend)


def _toy_files(panel: Panel, run: str, title: str, shared: str, legend: str) -> Iterator[FigureFile]:
    if panel.chart is None:
        return
    keys = layers_of(panel.chart) or [""]
    for key in keys:
        example = f"example {key}" if len(keys) > 1 else ""
        drawing = standalone(panel.chart, title, key=key, shared=shared, names=False)
        about = f"{title}{_on(example)}: {legend}"
        yield FigureFile(slug("picture", run, title, example), about, drawing)


def pictures_together(rows: Sequence[PanelRow], caption: str) -> Drawing:
    """The pictures of one image as one drawing: a row for each method, with titles."""
    root = element(None, "svg", role="img", aria_label=caption, class_="picture")
    canvas = element(root, "rect", x=0, y=0)
    widest, y = 0.0, MARGIN
    for row in rows:
        text = element(root, "text", row.title, x=MARGIN, y=y + 10)
        text.set("font-weight", "bold")
        y, x, lowest = y + LINE, MARGIN, 0.0
        for panel in row.panels:
            element(root, "text", panel.title, x=x, y=y + 10)
            width, height = _place(root, panel, x, y + PANEL_TITLE)
            x, lowest = x + width + PANEL_GAP, max(lowest, height)
        widest, y = max(widest, x - PANEL_GAP), y + PANEL_TITLE + lowest + PANEL_GAP
    return Drawing(finished(root, widest + MARGIN, y - PANEL_GAP + MARGIN, canvas), caption)


def _place(root: Element, panel: Panel, x: float, y: float) -> tuple[float, float]:
    """Put a panel into a drawing; returns its size."""
    if panel.chart is None:
        element(root, "text", "no picture", x=x, y=y + 24, class_="remark")
        return KEY_COLUMN, LINE
    chart: Element = fromstring(panel.chart)
    group = element(root, "g", transform=f"translate({x:g},{y:g})")
    if chart.tag == "ul":
        return _class_key(group, chart)
    _, _, width, height = (float(number) for number in chart.attrib["viewBox"].split())
    group.extend(list(chart))
    return width, height


def _class_key(group: Element, items: Element) -> tuple[float, float]:
    """The list of classes of the page, as squares with names in columns."""
    rows = -(-len(items) // 3)
    widths = [0.0, 0.0, 0.0]
    columns: list[list[tuple[Element, str]]] = [[], [], []]
    for number, item in enumerate(items):
        swatch, name = item[0], item[1].text or ""
        columns[number // rows].append((swatch, name))
        widths[number // rows] = max(widths[number // rows], 12 + 6 + 6.2 * len(name) + 14)
    x = 0.0
    for column, width in zip(columns, widths, strict=True):
        for row, (swatch, name) in enumerate(column):
            square = element(group, "g", transform=f"translate({x:g},{4 + LINE * row:g})")
            square.extend(list(swatch))
            element(group, "text", name, x=x + 18, y=14 + LINE * row)
        x += width
    return max(x, KEY_COLUMN), LINE * rows + 8


def figures_of(runs: Sequence[Run]) -> Iterator[FigureFile]:
    """Every figure of runs, with names that differ."""
    return distinct(run_figures(runs))
