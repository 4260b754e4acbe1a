"""Curves of every M and of every draw that was kept."""

import itertools
import math
from collections.abc import Callable

import fake
import pytest
from html_tree import Node
from page_checks import texts

from epibench.report.charts.svg import simplified

OF_DRAWS = {
    "gaussian": ["Coverage of every draw", "Sparsification", "Sparsification error of every draw"],
    "categorical": ["Reliability of every draw", "Sparsification", "Sparsification error of every draw"],
}
SCENES = {"gaussian": fake.two_gaussian, "categorical": fake.three_categorical}


RunDocument = Callable[..., Node]


def rows(document: Node) -> list[list[Node]]:
    """The figures of each method alone."""
    found = [row.find_all("figure") for row in document.find_all("div", "of-draws")]
    assert found
    return found


def title(figure: Node) -> str:
    return texts(figure, "span", "name")[0]


def layers(figure: Node) -> dict[str, Node]:
    return {layer.attributes["data-m"] or "": layer for layer in figure.find_all("g", "layer")}


@pytest.mark.parametrize("kind", SCENES)
def test_there_is_a_line_for_each_draw_that_was_kept_at_each_m(kind: str, run_document: RunDocument) -> None:
    results = SCENES[kind]()
    for score in results.scores:
        for number, m in enumerate((1, 2, 4, 8, 16)):
            for family in score.curves.values():
                for curve in family.M[m].values():
                    curve.draws = (curve.draws or [])[: 8 - number]
    for figures in rows(run_document(results)):
        assert [title(figure) for figure in figures] == OF_DRAWS[kind]
        for figure in (figures[0], figures[2]):
            lines = {m: len(layer.find_all("path", "line")) for m, layer in layers(figure).items()}
            assert lines == {"1": 8, "2": 7, "4": 6, "8": 5, "16": 4}
            notes = [layer.find_all("text", "remark")[0].text for layer in layers(figure).values()]
            assert notes == ["8 draws", "7 of 8 draws", "6 of 8 draws", "5 of 8 draws", "4 of 8 draws"]


def test_the_line_of_a_draw_is_its_own(run_document: RunDocument) -> None:
    results = fake.two_gaussian()
    coverage = results.scores[0].curves["calibration"].M[16]["coverage"]
    coverage.draws = [[0.0] * 99, [1.0] * 99]
    layer = layers(rows(run_document(results))[0][0])["16"]
    bottom, top = (path.attributes["d"] or "" for path in layer.find_all("path", "line"))
    heights = [float(path.split(",")[1].split("l")[0]) for path in (bottom, top)]
    assert heights == [204.0, 8.0]  # of a plot that is 240 high, with 36 below and 8 above
    assert all(path.endswith(",0") and " " not in path for path in (bottom, top))  # one step, which is level


def test_reliability_of_a_draw_leaves_out_empty_bins(run_document: RunDocument) -> None:
    results = fake.three_categorical()
    curves = results.scores[0].curves["reliability"].M[16]
    curves["confidence"].draws = [[None, 0.15, None, 0.35, *[None] * 6]] * 2
    curves["accuracy"].draws = [[None, 0.1, None, 0.3, *[None] * 6]] * 2
    layer = layers(rows(run_document(results))[0][0])["16"]
    assert len(layer.find_all("path", "line")) == 2


@pytest.mark.parametrize("kind", SCENES)
def test_the_sparsification_error_has_a_band_over_draws(kind: str, run_document: RunDocument) -> None:
    results = SCENES[kind]()
    (figure,) = [one for one in run_document(results).find_all("figure") if title(one) == "Sparsification error"]
    assert len(layers(figure)) == 5
    for layer in layers(figure).values():
        assert len(layer.find_all("path", "band")) == len(results.scores)


@pytest.mark.parametrize("number", [0, 1])
def test_fewer_than_two_draws_have_no_picture_of_draws(number: int, run_document: RunDocument) -> None:
    results = fake.two_gaussian()
    for score in results.scores:
        for family in score.curves.values():
            for curves in family.M.values():
                for curve in curves.values():
                    curve.draws = curve.draws[:number]
    document = run_document(results)
    assert {title(figure) for figures in rows(document) for figure in figures} == {"Sparsification"}
    assert "of every draw" not in document.text


def test_a_method_without_an_m_says_so_there(run_document: RunDocument) -> None:
    results = fake.two_gaussian()
    for family in results.scores[1].curves.values():
        del family.M[2]
    figures = rows(run_document(results))[1]
    assert all("not scored at this M" in layers(figure)["2"].text for figure in figures)


def test_a_simplified_line_passes_all_points_within_its_tolerance() -> None:
    points = [(3.0 * i, 150 * (1 - i / 100) ** 0.6 * math.exp(-i / 50)) for i in range(100)]
    kept = simplified(points)
    assert len(kept) < 30
    assert (kept[0], kept[-1]) == (points[0], points[-1])
    for x, y in points:
        (x0, y0), (x1, y1) = next(pair for pair in itertools.pairwise(kept) if pair[0][0] <= x <= pair[1][0])
        assert abs(y0 + (y1 - y0) * (x - x0) / (x1 - x0) - y) <= 0.5 + 1e-9
