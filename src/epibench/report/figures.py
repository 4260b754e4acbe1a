"""The charts of metrics: over M, over the severity of a shift, in-domain against shifted; KLs; training losses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from epibench.published import PublishedCell
from epibench.report.chart import Axis, Chart, Layer, LookName, Remark, Series, Size, log_axis, member_axis, nice_axis
from epibench.report.entries import Entry, in_words, several_members, title_with_unit
from epibench.report.judge import compared_at
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import count, m_equals, measured, significant
from epibench.report.runs import DIRECTIONS, EvalDomain, Problem, RunMethod, View
from epibench.report.verdicts import value_bars

LARGE, SMALL, PANEL = (360.0, 240.0), (300.0, 180.0), (340.0, 240.0)
WIDE = (460.0, 270.0)  # for two in a row
FOURTH = (262.0, 200.0)  # for four in a row
PUBLISHED = (300.0, 200.0)
KL_WIDTH, KL_LEAST_HEIGHT = 460.0, 335.0
MARGIN = 60  # of the width of a chart, taken by its frame
FAR = 1.5  # ranges of the lines; a level that is farther off is named, not drawn
FAR_ON_LOG = 30.0  # the same as a factor, on a logarithmic axis
FARTHEST_BELOW = 100.0  # a floor that is smaller than the smallest KL by more than this is named, not drawn
LEAST_SEVERITIES = 3
MOST_READ_OUT = 8  # lines whose numbers fit beside the pointer


def metric_chart(name: str, entries: Sequence[Entry], size: Size) -> Chart:
    """A chart of a metric, still without lines."""
    return Chart(title_with_unit(name, entries), size=size, better=BETTER_TEXT[metric_info(name).better], markers=True)


def metric_figure(name: str, entries: Sequence[Entry], size: Size, include: Sequence[float] = ()) -> Chart:
    """A metric over M: a line with a band per entry, or bars if there is only one M.

    include: values that the axis must show, so that several charts can have the same one.
    """
    info, members = metric_info(name), several_members(entries)
    having = [entry for entry in entries if name in entry.metrics]
    chart = replace(metric_chart(name, entries, size), meaning=in_words(info.meaning, entries))
    if len(members) == 1:
        bars = value_bars(name, having, {entry.label: members[0] for entry in having})
        chart = replace(chart, bars=bars, description=info.title)
        known = [entry for entry in having if any(entry.mean(name, m) is not None for m in entry.members)]
        dots = [series_at(name, [(i, entry, entry.members[-1])], entry.label) for i, entry in enumerate(known)]
        if not (ends := band_ends(dots)):
            return chart
        x_axis = Axis(-0.5, len(known) - 0.5, [], m_equals(known[0].members[-1]))
        layer = Layer([replace(one, hollow=()) for one in dots], {})
        return replace(chart, x_axis=x_axis, y_axis=nice_axis(*ends), layers=[layer])
    zero = [0.0] if info.better == "zero" else []
    series = [_over_members(name, entry, members) for entry in having]
    ends = [*band_ends(_axis_lines(series)), *zero]
    if not ends:
        return replace(chart, meaning=f"{chart.meaning} There is no finite value.")
    ends += include
    room = FAR * (max(ends) - min(ends))
    drawn, remarks = _within_reach(series, min(ends) - room, max(ends) + room)
    ends += band_ends(drawn)
    description = f"{info.title} over {m_equals(members[0])} to {members[-1]}: {_described(series)}"
    chart = replace(chart, y_axis=nice_axis(*ends), zero=bool(zero), remarks=remarks)
    return over_m(replace(chart, description=description), drawn, members)


def kl_chart(entries: Sequence[Entry], view: View, floors: Sequence[tuple[float, str]]) -> Chart | None:
    """KL over M on logarithmic axes, ± std as bands, noise floors as shaded zones; None without any KL.

    floors: each with its name.
    """
    members = several_members(entries)
    series = [_over_members("kl", entry, members) for entry in entries]
    ends = band_ends(_axis_lines(series), log=True)
    if not ends:
        return None
    drawn, remarks = _within_reach(series, min(ends) / FAR_ON_LOG, max(ends) * FAR_ON_LOG)
    ends += band_ends(drawn, log=True)
    near = [floor for floor in floors if floor[0] * FARTHEST_BELOW >= min(ends)]
    far: list[Remark] = [
        (0.02, 0.03, "start", f"{name}, below this chart") for floor, name in floors if (floor, name) not in near
    ]
    lower = min([min(ends) / 1.25, *(floor / 1.9 for floor, _ in near)])
    description = "; ".join([_described(series), *(name for _, name in floors)])
    chart = Chart(
        view.name,
        y_axis=log_axis(lower, max(ends) * 1.15, DIRECTIONS[view.direction]),
        description=f"{view.name}, over {m_equals(members[0])} to {members[-1]}: {description}",
        # As tall as the list of methods beside it.
        size=(KL_WIDTH, max(KL_LEAST_HEIGHT, 240.0 + 26 * len(series))),
        floors=near,
        remarks=[*remarks, *far[:1]],
    )
    return over_m(chart, drawn, members)


def published_figure(method: RunMethod, cells: Sequence[PublishedCell], metric: str = "") -> Chart:
    """A method's numbers over M and the published line in grey, named after their metric."""
    title, x = f"{method.label}: {metric}" if metric else method.label, [cell.row.members for cell in cells]
    theirs = [cell.row.mean for cell in cells], [cell.row.std for cell in cells]
    # Zero is not on a logarithmic axis.
    ours = [cell.mean or None for cell in cells], [cell.std for cell in cells]
    their_texts = [measured(cell.row.mean, cell.row.std) for cell in cells]
    our_texts = [measured(cell.mean, cell.std) for cell in cells]
    both = [
        Series("published", method.index, x, *theirs, their_texts, look="published"),
        Series("ours", method.index, x, *ours, our_texts),
    ]
    ends = band_ends(both, log=not metric)
    y_axis = nice_axis(*ends) if metric else log_axis(min(ends) / 1.15, max(ends) * 1.15)
    description = f"{title}, ours and published over M"
    return over_m(Chart(title, y_axis=y_axis, description=description, size=PUBLISHED, style=method.index), both, x)


def over_m(chart: Chart, series: list[Series], members: Sequence[int]) -> Chart:
    """The chart with lines over M, with markers."""
    heads: dict[float, str] = {m: m_equals(m) for m in members}
    x_axis = member_axis(members, chart.size[0] - MARGIN)
    return replace(chart, x_axis=x_axis, layers=[Layer(series, heads)], markers=True)


def series_at(
    name: str, points: Sequence[tuple[float, Entry, int]], label: str, look: LookName = "file", named: bool = False
) -> Series:
    """A metric of an entry and an M at each x. named: whether each point shows its M."""
    means = [entry.mean(name, m) for _, entry, m in points]
    return Series(
        label,
        points[0][1].index,
        [x for x, _, _ in points],
        # Zero is not on a logarithmic axis.
        [mean or None for mean in means] if name == "kl" else means,
        [] if look in ("level", "faint", "trail") else [entry.stat(name, m).std for _, entry, m in points],
        [entry.text(name, m) + (f" at {m_equals(m)}" if named else "") for _, entry, m in points],
        [look == "faint" or entry.overlaps_much(m) for _, entry, m in points],
        look=look,
        name=points[0][1].label,
        marks=[str(m) for _, _, m in points] if named else [],
    )


def _over_members(name: str, entry: Entry, axis: Sequence[int]) -> Series:
    """A metric over M; a point estimate is a level, if its M = 1 is not on the axis."""
    only = entry.members[0]
    if not set(entry.members) & set(axis):
        return series_at(name, [(m, entry, only) for m in axis], f"{entry.label} ({m_equals(only)})", "level")
    return series_at(name, [(m, entry, m) for m in entry.members], entry.label)


def _described(series: Sequence[Series]) -> str:
    return "; ".join(f"{one.label} from {one.texts[0]} to {one.texts[-1]}" for one in series)


def _axis_lines(series: Sequence[Series]) -> list[Series]:
    """The series that run over M, by which an axis is chosen; the levels if no other has a value."""
    lines = [one for one in series if one.look != "level"]
    return lines if any(y is not None for one in lines for y in one.y) else list(series)


def _within_reach(series: Sequence[Series], lower: float, upper: float) -> tuple[list[Series], list[Remark]]:
    """The series without levels so far off that the axis would show nothing else, and remarks that name these."""
    drawn: list[Series] = []
    remarks: list[Remark] = []
    for one in series:
        y = next((value for value in one.y if value is not None), None)
        if one.look != "level" or y is None or lower <= y <= upper:
            drawn.append(one)
            continue
        above = sum(height > 0.5 for _, height, _, _ in remarks)
        height = 0.94 - 0.08 * above if y > upper else 0.04 + 0.08 * (len(remarks) - above)
        arrow = "↑" if y > upper else "↓"
        remarks.append((0.99, height, "end", f"{arrow} {one.name or one.label}: {significant(y, 2)}"))
    return drawn, remarks


def band_ends(series: Iterable[Series], log: bool = False) -> list[float]:
    """All ends of bands, for the range of an axis. log: they are at least a third of their mean."""
    pairs = [(y, std or 0.0) for one in series for y, std in zip(one.y, one.std, strict=True) if y is not None]
    return [end for y, std in pairs for end in (max(y - std, y / 3) if log else y - std, y + std)]


def severity_figures(problem: Problem) -> list[Chart]:
    """A chart for each metric; none if fewer than three domains have a severity of their own.

    Each method has a line at the M of comparison, and one at its smallest M if that differs.
    """
    by_severity = {domain.severity: domain for domain in reversed(problem.domains) if domain.severity is not None}
    if len(by_severity) < LEAST_SEVERITIES:
        return []
    ladder = {severity: problem.entries[by_severity[severity].name] for severity in sorted(by_severity)}
    lines: list[tuple[list[tuple[float, Entry, int]], str, LookName]] = []
    for label in (method.label for method in problem.methods):
        steps = [(x, entry) for x, entries in ladder.items() for entry in entries if entry.label == label]
        sizes = [compared_at(ladder[steps[0][0]])[1][label], steps[0][1].members[0]] if steps else []
        for m in dict.fromkeys(sizes):
            look: LookName = "file" if m == sizes[0] else "faint"
            lines.append(([(x, entry, m) for x, entry in steps], f"{label}, {m_equals(m)}", look))
    severities, everywhere = list(ladder), [entry for entries in ladder.values() for entry in entries]
    x_axis = Axis(severities[0], severities[-1], [(one, f"{one:g}") for one in severities], "severity of the shift")
    heads = {severity: f"severity {severity:g}" for severity in severities}
    figures = []
    for name in problem.headlines:
        series = [series_at(name, points, label, look) for points, label, look in lines]
        if ends := band_ends(series):
            description = f"{metric_info(name).title} over severity {severities[0]:g} to {severities[-1]:g}"
            chart = replace(metric_chart(name, everywhere, LARGE), x_axis=x_axis, description=description)
            figures.append(replace(chart, y_axis=nice_axis(*ends), layers=[Layer(series, heads)]))
    return figures


def shift_figure(
    name: str, inside: EvalDomain, outside: EvalDomain, entries: Sequence[tuple[Entry, Entry]]
) -> Chart | None:
    """A metric on a shifted domain against that in-domain: each method at its smallest M, hollow, and at its largest.

    entries: of each method on either domain. The y axis shows the range of the x axis, too, so that the diagonal is
    seen, on which a shift costs nothing. None where no method has both values.
    """
    series = []
    for before, after in entries:
        common = [m for m in before.members if before.mean(name, m) is not None and after.mean(name, m) is not None]
        sizes = dict.fromkeys(common[:1] + common[-1:])
        if points := [(x, after, m) for m in sizes if (x := before.mean(name, m)) is not None]:
            line = series_at(name, points, after.label, "trail", named=True)
            series.append(replace(line, hollow=[len(points) > 1 and i == 0 for i in range(len(points))]))
    if not series:
        return None
    across = [value for line in series for value in line.x]
    y = [value for line in series for value in line.y if value is not None]
    x_axis = nice_axis(*across, label=inside.label)
    return replace(
        metric_chart(name, [after for _, after in entries], WIDE),
        x_axis=x_axis,
        y_axis=nice_axis(*y, x_axis.lower, x_axis.upper, label=outside.label),
        layers=[Layer(series, {value: f"{inside.label}: {significant(value)}" for value in across})],
        description=f"{metric_info(name).title} on {outside.label} against {inside.label}: {_described(series)}",
        diagonal=True,
    )


def training_figures(methods: Sequence[RunMethod]) -> list[Chart]:
    """For each method with logged losses: a line per network over steps, which shows whether any failed to train."""
    figures = []
    for method in methods:
        series = [
            Series(f"network {log.network}", method.index, log.steps, log.loss, texts=texts, look="thin")
            for log in method.facts.training
            if (texts := [significant(value) for value in log.loss])
        ]
        if ends := band_ends(series):
            steps = sorted({step for line in series for step in line.x})
            heads = {x: f"step {count(x)}" for x in steps} if len(series) <= MOST_READ_OUT else {}
            axes = nice_axis(0.0, *steps, label="steps", pad=0.0), nice_axis(*ends)
            description = f"Training loss of {len(series)} networks of {method.label} over steps"
            layers = [Layer(series, heads)]
            figures.append(Chart(method.label, *axes, layers, description, size=SMALL, style=method.index))
    return figures
