"""The figures of one kind of predictions: metrics over M, sparsification, calibration, reliability."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from epibench.report.charts import Decor, Layer, Remark, Series, line_chart
from epibench.report.entries import Curve, Entry, Values
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import m_equals, measured, percent, significant
from epibench.report.reliability_chart import reliability_chart
from epibench.report.svg import member_axis as log2_axis
from epibench.report.svg import nice_axis, percent_axis
from epibench.report.switches import Option
from epibench.report.tables import all_members
from epibench.report.verdicts import Bar, title_with_unit, value_bars

LARGE, SMALL, PANEL = (360.0, 240.0), (300.0, 180.0), (340.0, 240.0)
FOURTH = (262.0, 200.0)  # for four in a row
MAX_CHOICES = 8
FAR = 1.5  # a level that is farther off than so many times the range of the lines is named, not drawn
LARGEST = "largest"


@dataclass(frozen=True)
class Figure:
    """A chart, or bars where there is only one M, with its caption."""

    title: str
    meaning: str
    better: str = ""
    chart: Markup | None = None
    bars: list[Bar] = field(default_factory=list)


def curve_choices(entries: Sequence[Entry]) -> list[Option]:
    """Up to eight M to choose from, the largest at first; files may differ in their largest."""
    members = all_members(entries)
    if len(members) > MAX_CHOICES:
        powers = [m for m in members if m & (m - 1) == 0 or m == members[-1]]
        members = [*powers[: MAX_CHOICES - 1], members[-1]] if len(powers) > MAX_CHOICES else powers
    differ = len({entry.members[-1] for entry in entries}) > 1
    found = [Option(str(m), str(m), not differ and m == members[-1]) for m in members]
    return [*found, Option(LARGEST, "largest of each file", True)] if differ else found


def chosen_m(option: Option, entry: Entry) -> int:
    """The M that an option means for a file."""
    return entry.members[-1] if option.key == LARGEST else int(option.key)


def axis_members(sizes: Sequence[Sequence[int]]) -> list[int]:
    """Every M for an axis; the M = 1 of point estimates has no place on it where all others have more members."""
    several = sorted({m for of_one in sizes if list(of_one) != [1] for m in of_one})
    return several if len(several) > 1 else sorted({m for of_one in sizes for m in of_one})


def metric_figure(
    name: str, entries: Sequence[Entry], size: tuple[float, float], include: Sequence[float] = ()
) -> Figure:
    """A metric over M: a line with a band per file, or bars if there is only one M.

    include: values that the axis must show, so that several charts can have the same one.
    """
    info, members = metric_info(name), axis_members([entry.members for entry in entries])
    title, better = title_with_unit(info, entries), BETTER_TEXT[info.better]
    having = [entry for entry in entries if name in entry.metrics]
    if len(members) == 1:
        bars = value_bars(name, having, {entry.label: members[0] for entry in having})
        return Figure(title, info.meaning, better, bars=bars)
    series = [_over_members(name, entry, members) for entry in having]
    ends = [*band_ends(lines_of(series)), *([0.0] if info.better == "zero" else [])]
    if not ends:
        return Figure(title, f"{info.meaning} No file has a finite value.", better)
    ends += include
    room = FAR * (max(ends) - min(ends))
    drawn, remarks = within_reach(series, min(ends) - room, max(ends) + room)
    ends += band_ends(drawn)
    parts = [f"{s.label} from {s.texts[0]} to {s.texts[-1]}" for s in series]
    chart = line_chart(
        [Layer(drawn, {m: f"{m_equals(m)}" for m in members})],
        log2_axis(members, size[0] - 60),
        nice_axis(min(ends), max(ends)),
        f"{info.title} over {m_equals(members[0])} to {members[-1]}: {'; '.join(parts)}",
        size=size,
        decor=Decor(zero=info.better == "zero", markers=True, remarks=remarks),
    )
    return Figure(title, info.meaning, better, chart)


def lines_of(series: Sequence[Series]) -> list[Series]:
    """The series that run over M, by which an axis is chosen; the levels if there are no others with a value."""
    lines = [s for s in series if s.look != "level"]
    return lines if any(y is not None for s in lines for y in s.y) else list(series)


def within_reach(series: Sequence[Series], lower: float, upper: float) -> tuple[list[Series], list[Remark]]:
    """The series without the levels that lie so far off that the axis would show nothing else, and remarks on these."""
    drawn: list[Series] = []
    remarks: list[Remark] = []
    for one in series:
        y = next((value for value in one.y if value is not None), None)
        if one.look != "level" or y is None or lower <= y <= upper:
            drawn.append(one)
            continue
        above = sum(place > 0.5 for _, place, _, _ in remarks)
        place = 0.94 - 0.08 * above if y > upper else 0.04 + 0.08 * (len(remarks) - above)
        arrow = "↑" if y > upper else "↓"
        remarks.append((0.99, place, "end", f"{arrow} {one.name or one.label}: {significant(y, 2)}"))
    return drawn, remarks


def _over_members(name: str, entry: Entry, axis: Sequence[int]) -> Series:
    """A metric over M; that of a point estimate is a level, if its M = 1 has no place on the axis."""
    level = not set(entry.members) & set(axis)
    sizes = entry.members * len(axis) if level else entry.members
    stats = [entry.stat(name, m) for m in sizes]
    return Series(
        f"{entry.label} ({m_equals(sizes[0])})" if level else entry.label,
        entry.index,
        axis if level else sizes,
        [stat.mean for stat in stats],
        [None if level else stat.std for stat in stats],
        [measured(stat.mean, stat.std) for stat in stats],
        [entry.overlaps_much(m) for m in sizes],
        look="level" if level else "file",
        name=entry.label,
    )


def band_ends(series: Iterable[Series]) -> list[float]:
    """All ends of bands, for the range of an axis."""
    pairs = [(y, std or 0.0) for s in series for y, std in zip(s.y, s.std, strict=True) if y is not None]
    return [y + sign * std for y, std in pairs for sign in (-1, 1)]


def sparsification_figures(
    entries: Sequence[Entry], choices: Sequence[Option], size: tuple[float, float] = PANEL
) -> tuple[list[Figure], list[Figure]]:
    """All files' sparsification errors together, and a panel per file with its curve and oracle."""
    having = [e for e in entries if e.curve("sparsification", "curve", e.members[-1])]
    if not having:
        return [], []
    error = "RMSE" if entries[0].kind == "gaussian" else "Brier score"
    together = _curves_figure(
        having,
        choices,
        lambda entry, m: [_error_series(entry, m)],
        title="Sparsification error",
        meaning="Curve minus oracle; its area is the AUSE.",
        x_label="most uncertain pixels removed",
        size=size,
    )
    panels = []
    layers = {e.label: [_layer(_curve_and_oracle(e, chosen_m(c, e)), c, "removed") for c in choices] for e in having}
    highest = max([1.0, *band_ends(s for of_file in layers.values() for layer in of_file for s in layer.series)])
    for entry in having:
        chart = line_chart(
            layers[entry.label],
            percent_axis("most uncertain pixels removed"),
            nice_axis(0.0, highest, f"{error} of the rest, relative", pad=0.02),
            f"Sparsification of {entry.label}: {error} of the rest, for its uncertainty and for the oracle",
            size=PANEL,
            decor=Decor(fill_between=True),
        )
        panels.append(Figure(entry.label, "", chart=chart))
    return ([together] if len(having) > 1 else []), panels


def _curve_and_oracle(entry: Entry, m: int) -> list[Series]:
    found = []
    for part, label, look in (("curve", "by uncertainty", "solid"), ("oracle", "by error (oracle)", "oracle")):
        curve = entry.curve("sparsification", part, m)
        if curve is not None:
            found.append(_curve_series(curve, label, entry.index, "oracle" if look == "oracle" else "solid"))
    return found


def _curve_series(curve: Curve, label: str, style: int, look: str = "file") -> Series:
    texts = [measured(mean, std) for mean, std in zip(curve.mean, curve.std, strict=True)]
    if look == "oracle":
        return Series(label, style, curve.x, curve.mean, curve.std, texts, look="oracle")
    return Series(label, style, curve.x, curve.mean, curve.std, texts, look="solid" if look == "solid" else "file")


def _error_series(entry: Entry, m: int) -> Series | None:
    curve, oracle = (entry.curve("sparsification", part, m) for part in ("curve", "oracle"))
    if curve is None or oracle is None:
        return None
    gaps = _differences(curve.mean, oracle.mean)
    return _curve_series(Curve(curve.x, gaps, [None] * len(gaps)), entry.label, entry.index)


def _differences(first: Values, second: Sequence[float | None]) -> Values:
    return [None if a is None or b is None else a - b for a, b in zip(first, second, strict=True)]


def calibration_figures(
    entries: Sequence[Entry], choices: Sequence[Option], size: tuple[float, float] = LARGE
) -> list[Figure]:
    """Coverage against level, the gap between them, and what the intervals cost in length."""
    having = [e for e in entries if e.curve("calibration", "coverage", e.members[-1])]
    if not having:
        return []
    units = {entry.unit for entry in having}
    unit = f", in {units.pop()}" if len(units) == 1 and "" not in units else ""
    sides = [(0.02, 0.93, "start", "↑ under-confident"), (0.98, 0.05, "end", "↓ over-confident")]
    coverage = _curves_figure(
        having,
        choices,
        lambda entry, m: [_part(entry, "coverage", m)],
        title="Coverage",
        meaning="Share of pixels inside the interval, against its level; ideal on the diagonal.",
        x_label="level of the interval",
        size=size,
        decor=Decor(diagonal=True, remarks=sides),
    )
    gap = _curves_figure(
        having,
        choices,
        lambda entry, m: [_coverage_gap(entry, m)],
        title="Coverage minus level",
        meaning="The same, closer; the area between curve and zero is the AUCE.",
        x_label="level of the interval",
        size=size,
        decor=Decor(zero=True, remarks=[sides[0], (0.02, 0.05, "start", "↓ over-confident")]),
        include=(-0.05, 0.05),
    )
    length = _curves_figure(
        having,
        choices,
        lambda entry, m: [_part(entry, "interval_length", m)],
        title="Interval length",
        meaning=f"Mean length of the interval{unit}. Short is good only where the coverage holds.",
        x_label="level of the interval",
        size=size,
    )
    return [coverage, gap, length]


def _part(entry: Entry, part: str, m: int) -> Series | None:
    curve = entry.curve("calibration", part, m)
    return None if curve is None else _curve_series(curve, entry.label, entry.index)


def _coverage_gap(entry: Entry, m: int) -> Series | None:
    curve = entry.curve("calibration", "coverage", m)
    if curve is None:
        return None
    gaps = Curve(curve.x, _differences(curve.mean, curve.x), curve.std)
    return _curve_series(gaps, entry.label, entry.index)


def _layer(series: Sequence[Series | None], choice: Option, word: str) -> Layer:
    kept = [s for s in series if s is not None]
    heads = {x: f"{percent(x, 3)} {word}" for s in kept for x in s.x}
    return Layer(kept, heads, choice.key, choice.chosen)


def _curves_figure(
    entries: Sequence[Entry],
    choices: Sequence[Option],
    make: Callable[[Entry, int], list[Series | None]],
    *,
    title: str,
    meaning: str,
    x_label: str,
    size: tuple[float, float],
    decor: Decor | None = None,
    include: tuple[float, float] = (0.0, 0.0),
) -> Figure:
    """All files' curves in one chart, with a layer for each choice of M on common axes."""
    word = "removed" if "removed" in x_label else "interval"
    layers = [_layer([s for e in entries for s in make(e, chosen_m(c, e))], c, word) for c in choices]
    ends = [*include, *band_ends(s for layer in layers for s in layer.series)]
    decor = decor or Decor()
    y_axis = (
        percent_axis("") if decor.diagonal else nice_axis(min(ends), max(ends), pad=0.16 if decor.remarks else 0.03)
    )
    names = ", ".join(entry.label for entry in entries)
    chart = line_chart(layers, percent_axis(x_label), y_axis, f"{title}: {names}", size=size, decor=decor)
    return Figure(title, meaning, chart=chart)


def reliability_figures(entries: Sequence[Entry], choices: Sequence[Option]) -> list[Figure]:
    """A reliability diagram per file."""
    having = [e for e in entries if e.curve("reliability", "accuracy", e.members[-1])]
    return [
        Figure(
            entry.label, "", chart=reliability_chart(entry, [(c.key, chosen_m(c, entry), c.chosen) for c in choices])
        )
        for entry in having
    ]
