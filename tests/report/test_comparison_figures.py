"""Charts that compare methods: quality against each cost, in-domain against shifted, and looks for many methods."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import fake
import pytest

from epibench.report.chart import NUM_STYLES, Chart, Layer, Series, nice_axis
from epibench.report.charts.lines import swatch
from epibench.report.charts.svg import style_class, style_sheet
from epibench.report.cost_section import KINDS, cost_axis, cost_section
from epibench.report.dense_section import shifted_from, shifts_from
from epibench.report.runs import domains_of, methods_of, read_runs
from epibench.results import Results


def section(results: Results) -> dict[str, Any]:
    runs = read_runs([results])
    return cost_section(methods_of(runs), domains_of(runs), [], ["ause", "nll"])


def texts(chart: Element, class_: str) -> list[str]:
    return [text.text or "" for text in chart.iter("text") if text.get("class") == class_]


def test_operations_are_those_that_were_counted() -> None:
    methods = methods_of(read_runs([fake.small()]))
    (ensemble, dropout) = (costs for _, costs in KINDS[0].of(methods))
    assert ensemble == {1: pytest.approx(41.3), 2: pytest.approx(82.6)}
    assert dropout == {1: pytest.approx(41.3), 2: pytest.approx(61.95)}


def test_quality_is_shown_against_every_cost_on_every_domain() -> None:
    layers = section(fake.small())["layers"]
    assert [layer["option"].key for layer in layers] == ["flops", "seconds", "memory", "training", "steps"]
    for layer in layers:
        assert [domain.name for domain, _ in layer["shown"]] == ["clean", "wild"]
        assert all(len(figures) == 2 for _, figures in layer["shown"])
    assert [layer["option"].key for layer in section(fake.uncounted())["layers"]] == ["seconds", "memory"]


def test_points_say_their_m() -> None:
    (layer, *_) = section(fake.depth())["layers"]
    chart = fromstring(str(layer["shown"][0][1][0]))
    marks = texts(chart, "mark")
    assert {"1", "8"} <= set(marks) <= {"1", "2", "4", "8"}
    described = next(group.attrib["data-readout"] for group in chart.iter("g") if "data-readout" in group.attrib)
    assert "at M\u00a0=\u00a04" in described
    assert "330 GFLOP per image" in described


def marks_of(*lines: Sequence[tuple[float, float]]) -> list[Element]:
    series = [
        Series(str(n), n, [x for x, _ in line], [y for _, y in line], marks=[f"{n}{i}" for i in range(len(line))])
        for n, line in enumerate(lines)
    ]
    axis = nice_axis(0.0, 1.0)
    root = fromstring(str(Chart("?", axis, axis, [Layer(series, {})], size=(300, 200), markers=True)))
    return [text for text in root.iter("text") if text.get("class") == "mark"]


def test_marks_do_not_cover_each_other() -> None:
    assert len(marks_of([(0.1, 0.5), (0.5, 0.5), (0.9, 0.5)], [(0.1, 0.1), (0.9, 0.1)])) == 5
    crowd = marks_of([(0.5, 0.5), (0.501, 0.501), (0.502, 0.5)], [(0.5, 0.502), (0.502, 0.501)])
    assert 1 <= len(crowd) < 5
    places = [(text.get("x"), text.get("y")) for text in crowd]
    assert len(set(places)) == len(places)


def test_a_short_axis_has_ticks() -> None:
    assert len(cost_axis(300.0, 320.0, "").ticks) >= 2
    assert [text for _, text in cost_axis(1.0, 100.0, "").ticks] == ["1", "3", "10", "30", "100"]


def test_each_method_is_shown_at_its_smallest_and_its_largest_m_on_both_domains() -> None:
    runs = read_runs([fake.depth()])
    inside, *_, outside = domains_of(runs)
    root = fromstring(str(shifted_from(inside, outside, methods_of(runs), ["rmse"])[1][0]))
    series = [group for group in root.iter("g") if "series" in (group.get("class") or "").split()]
    assert [group.get("data-label") for group in series] == ["Ensembling", "MC-dropout"]
    for group in series:
        markers = [path.get("class") for path in group.iter("path") if "marker" in (path.get("class") or "")]
        assert markers == ["marker hollow", "marker"]
    assert sorted(texts(root, "mark")) == ["1", "1", "8", "8"]
    described = next(group.attrib["data-readout"] for group in root.iter("g") if "data-readout" in group.attrib)
    assert methods_of(runs)[0].on(outside.name).text("rmse", 8) in described


def test_the_line_without_loss_is_seen() -> None:
    """On wild streets every RMSE is larger: a y axis that showed these alone would leave the diagonal out."""
    runs = read_runs([fake.depth()])
    inside, *_, outside = domains_of(runs)
    _, (ause, *_) = shifted_from(inside, outside, methods_of(runs), ["rmse"])
    root = fromstring(str(ause))
    (guide,) = [line for line in root.iter("line") if line.get("class") == "guide"]
    (base, *_) = [line for line in root.iter("line") if line.get("class") == "base"]
    x1, x2, y1, y2 = (float(guide.attrib[name]) for name in ("x1", "x2", "y1", "y2"))
    assert x2 - x1 > 0.8 * (float(base.attrib["x2"]) - float(base.attrib["x1"]))
    assert y1 > y2  # upwards
    markers = [re.findall(r"[\d.]+", path.attrib["transform"]) for path in root.iter("path") if path.get("transform")]
    assert all(float(y) < min(y1, y2) for _, y in markers)  # all lie above it


def test_without_a_domain_that_methods_were_trained_for_nothing_is_shifted_from_it() -> None:
    inside, *others = domains_of(read_runs([fake.depth()]))
    assert [domain.name for domain in shifts_from(inside, [inside, *others])] == ["wild-1", "wild-3", "wild"]
    unknown = inside.model_copy(update={"role": "role unknown"})
    assert shifts_from(unknown, others) == []


def test_two_dozen_methods_have_looks_of_their_own() -> None:
    looks = set()
    for style in range(NUM_STYLES):
        (colour,) = re.findall(rf"\.{style_class(style)} {{ --c: (.*?)[; ]", style_sheet())
        marker = re.search(r'marker" d="(.*?)"', swatch(style))
        assert marker is not None
        looks.add((colour, marker[1]))
    assert len(looks) == NUM_STYLES
