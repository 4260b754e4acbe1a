"""Charts that compare methods: quality against each cost, in-domain against shifted, and looks for many methods."""

import itertools
import json
import re
from collections.abc import Callable, Sequence

import fake
import pytest
from html_tree import Node, parse_html
from page_checks import plain, texts

from epibench.report.chart import NUM_STYLES, Chart, Layer, Series, nice_axis
from epibench.report.charts.lines import swatch
from epibench.report.charts.svg import style_class, style_sheet
from epibench.report.cost_section import KINDS, cost_axis
from epibench.report.numbers import measured
from epibench.report.runs import methods_of, read_runs

RunDocument = Callable[..., Node]
SceneDocument = Callable[[str], Node]


def charts(document: Node, about: str) -> list[Node]:
    """The charts whose text for screen readers matches."""
    svgs = document.find_all("svg", "chart")
    return [svg for svg in svgs if re.match(about, plain(svg.attributes["aria-label"] or ""))]


def readout(chart: Node) -> dict[str, list[str]]:
    """The texts of each row of the read-out."""
    (text,) = [group.attributes["data-readout"] for group in chart.find_all("g") if "data-readout" in group.attributes]
    read = json.loads(text or "")
    return {"heads": read["heads"].split("|")} | {row["label"]: row["texts"].split("|") for row in read["rows"]}


def test_operations_are_those_that_were_counted() -> None:
    methods = methods_of(read_runs([fake.small()]))
    (ensemble, dropout) = (costs for _, costs in KINDS[0].of(methods))
    assert ensemble == {1: pytest.approx(41.3), 2: pytest.approx(82.6)}
    assert dropout == {1: pytest.approx(41.3), 2: pytest.approx(61.95)}


def test_quality_is_shown_against_every_cost_on_every_domain(run_document: RunDocument) -> None:
    document = run_document(fake.small())
    costs = ("operations", "time", "peak memory", "training", "training steps")
    for cost, domain in itertools.product(costs, ("street, clean", "street, wild")):
        assert len(charts(document, rf".* on {domain}.* against {cost}$")) == 4  # metrics
    labels = [svg.attributes["aria-label"] or "" for svg in charts(run_document(fake.uncounted()), ".* against ")]
    shown = {label.partition(" against ")[2] for label in labels}
    assert [cost for cost in (*costs, "weights") if cost in shown] == ["time", "peak memory"]


def test_points_say_their_m(scene_document: SceneDocument) -> None:
    chart = charts(scene_document("depth"), "AUSE on street, clean against operations")[0]
    marks = texts(chart, "text", "mark")
    assert {"1", "8"} <= set(marks) <= {"1", "2", "4", "8"}
    read = readout(chart)
    assert "330 GFLOP per image" in read["heads"]
    assert any("at M\u00a0=\u00a04" in text for text in read["Ensembling"])


def marks_of(*lines: Sequence[tuple[float, float]]) -> list[Node]:
    series = [
        Series(str(n), n, [x for x, _ in line], [y for _, y in line], marks=[f"{n}{i}" for i in range(len(line))])
        for n, line in enumerate(lines)
    ]
    axis = nice_axis(0.0, 1.0)
    chart = Chart("?", axis, axis, [Layer(series, {})], size=(300, 200), markers=True)
    return parse_html(str(chart)).find_all("text", "mark")


def test_marks_do_not_cover_each_other() -> None:
    assert len(marks_of([(0.1, 0.5), (0.5, 0.5), (0.9, 0.5)], [(0.1, 0.1), (0.9, 0.1)])) == 5
    crowd = marks_of([(0.5, 0.5), (0.501, 0.501), (0.502, 0.5)], [(0.5, 0.502), (0.502, 0.501)])
    assert 1 <= len(crowd) < 5
    places = [(text.attributes["x"], text.attributes["y"]) for text in crowd]
    assert len(set(places)) == len(places)


def test_a_short_axis_has_ticks() -> None:
    assert len(cost_axis(300.0, 320.0, "").ticks) >= 2
    assert [text for _, text in cost_axis(1.0, 100.0, "").ticks] == ["1", "3", "10", "30", "100"]


def test_each_method_is_shown_at_its_smallest_and_its_largest_m_on_both_domains(scene_document: SceneDocument) -> None:
    (chart,) = charts(scene_document("depth"), r"RMSE on street, wild \(severity 5\) against street, clean")
    series = chart.find_all("g", "series")
    assert [group.attributes["data-label"] for group in series] == ["Ensembling", "MC-dropout"]
    for group in series:
        assert [path.classes for path in group.find_all("path", "marker")] == [["marker", "hollow"], ["marker"]]
    assert sorted(texts(chart, "text", "mark")) == ["1", "1", "8", "8"]
    stat = fake.score(fake.depth(), "ensemble", "wild").summary[8]["rmse"]
    assert f"{measured(stat.mean, stat.std)} at M\u00a0=\u00a08" in readout(chart)["Ensembling"]
    # On wild streets every RMSE is larger: a y axis that showed these alone would leave the diagonal out.
    (guide,), (base, *_) = chart.find_all("line", "guide"), chart.find_all("line", "base")
    x1, x2, y1, y2 = (float(guide.attributes[name] or 0) for name in ("x1", "x2", "y1", "y2"))
    assert x2 - x1 > 0.8 * (float(base.attributes["x2"] or 0) - float(base.attributes["x1"] or 0))
    assert y1 > y2  # upwards
    markers = [re.findall(r"[\d.]+", path.attributes["transform"] or "") for path in chart.find_all("path", "marker")]
    assert all(float(y) < min(y1, y2) for _, y in markers)  # all lie above it


def test_without_a_domain_that_methods_were_trained_for_nothing_is_shifted_from_it(run_document: RunDocument) -> None:
    results = fake.depth()
    against = charts(run_document(results), "RMSE on .* against street, clean")
    labels = [plain(svg.attributes["aria-label"] or "").partition(" against")[0] for svg in against]
    assert sorted(labels) == [f"RMSE on street, wild (severity {severity})" for severity in (1, 3, 5)]
    for facts in results.domains.values():
        facts.role = "role unknown"
    assert charts(run_document(results), "RMSE on .* against street, clean") == []


def test_two_dozen_methods_have_looks_of_their_own() -> None:
    looks = set()
    for style in range(NUM_STYLES):
        (colour,) = re.findall(rf"\.{style_class(style)} {{ --c: (.*?)[; ]", style_sheet())
        marker = re.search(r'marker" d="(.*?)"', swatch(style))
        assert marker is not None
        looks.add((colour, marker[1]))
    assert len(looks) == NUM_STYLES
