"""Results in notebooks: a table of headline metrics, and plots by the name of a metric."""

import re
from collections.abc import Iterator
from typing import Any

import fake
import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot

from epibench.errors import InputError
from epibench.report.judge import judge_at
from epibench.report.runs import read_runs, stored_entries
from epibench.results import Results

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def curves(axes: Any) -> dict[tuple[float, ...], list[float]]:
    """The lines between points of some axes, by colour."""
    lines = [line for line in axes.lines if line.get_linestyle() != "None" and line.get_zorder() == 2]
    return {tuple(line.get_color()): list(line.get_ydata()) for line in lines if isinstance(line.get_color(), tuple)}


def cells(html: str) -> list[list[str]]:
    rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[dh].*?</t[dh]>", row, re.DOTALL)]
            for row in rows]  # fmt: skip


def test_headline_metrics_of_every_domain_over_m() -> None:
    html = fake.depth()._repr_html_()
    assert html.count("<table") == 4  # domains
    head, first, *_ = cells(html)
    assert head == ["Metric", "Method", "M&nbsp;=&nbsp;1", "M&nbsp;=&nbsp;2", "M&nbsp;=&nbsp;4", "M&nbsp;=&nbsp;8"]
    assert first[:2] == ["AUSE ↓", "Ensembling"]


def test_bold_is_what_the_judge_calls_best() -> None:
    results = fake.two_gaussian()
    html, entries = results._repr_html_(), stored_entries(read_runs([results]))
    wanted = sum(bool(judge_at(name, entries, m).best) for name in ("ause", "auce", "rmse") for m in (1, 2, 4, 8, 16))
    assert html.count("<strong>") == wanted + 1  # and the title


def test_a_toy_problem_begins_with_its_kl() -> None:
    html = fake.regression()._repr_html_()
    assert "KL(reference ‖ method)" in re.findall(r"<caption.*?</caption>", html, re.DOTALL)[0]


@pytest.mark.parametrize("results", [fake.hostile_scores(), fake.toy_hostile(), fake.dense_hostile()])
def test_names_cannot_leave_their_place(results: Results) -> None:
    html = results._repr_html_()
    assert "<script" not in html
    assert "<img" not in html


@pytest.mark.parametrize("results", [fake.toy_failed(), fake.bare(), fake.single()])
def test_results_without_numbers_are_shown_too(results: Results) -> None:
    assert results._repr_html_().startswith("<div")


def test_it_has_no_colours_of_its_own_but_grey() -> None:
    html = fake.depth()._repr_html_()
    colours = re.findall(r"(?:color|background|solid):? *([^;\"]+)", html)
    assert set(colours) <= {"inherit", "transparent", "rgba(128, 128, 128, 0.5)"}


def test_a_plot_has_the_numbers_of_the_results() -> None:
    results = fake.two_gaussian()
    axes = results.plot("rmse")  # the only domain need not be named
    assert axes.get_title(loc="left") == "RMSE (m) ↓ · wild"
    assert [text.get_text() for text in axes.figure.legends[0].get_texts()] == ["ensemble", "mc_dropout"]
    for entry, drawn in zip(stored_entries(read_runs([results])), curves(axes).values(), strict=True):
        assert drawn == [entry.mean("rmse", m) for m in entry.members]
    assert pyplot.fignum_exists(axes.figure.number)  # so that a notebook shows it


def test_a_plot_on_axes_of_ones_own_leaves_the_others_alone() -> None:
    figure, (left, right) = pyplot.subplots(1, 2)
    assert fake.depth().plot("ause", domain="wild", ax=right) is right
    assert right.figure is figure
    assert len(right.get_legend().get_texts()) == 2
    assert not left.lines
    assert right.get_tightbbox().x0 > left.get_window_extent().x1  # so that layouts of the figure find room for both


@pytest.mark.parametrize(
    ("results", "name"),
    [
        (fake.depth(), "coverage"),
        (fake.depth(), "sparsification_error"),
        (fake.segmentation(), "reliability"),
    ],
)
def test_curves_at_an_m(results: Results, name: str) -> None:
    plots = [results.plot(name, "clean", m) for m in (None, 1, 4)]
    drawn = [next(iter(curves(axes).values())) for axes in plots]
    assert len({tuple(np.round(one, 9)) for one in drawn}) == 3
    for axes in plots:
        named = {text.get_text() for legend in axes.figure.legends for text in legend.get_texts()}
        assert named == {facts.label for facts in results.methods.values()}


def test_reliability_of_one_method_is_its_diagram() -> None:
    results = fake.three_categorical()
    alone = results.model_copy(update={"scores": results.scores[:1]})
    axes = alone.plot("reliability")
    assert "share of pixels" in axes.get_xlabel()
    assert axes.get_title(loc="left").startswith("Reliability of ensemble")


@pytest.mark.parametrize(
    ("results", "offered", "missing"),
    [
        (fake.segmentation(), ["reliability", "sparsification_error"], "coverage"),
        (fake.depth(), ["coverage", "sparsification_error"], "reliability"),
    ],
)
def test_only_curves_that_there_are_are_offered(results: Results, offered: list[str], missing: str) -> None:
    with pytest.raises(InputError) as refused:
        results.plot("nothing", "clean")
    names = re.split(r"there are |, ", str(refused.value))
    assert [name for name in names if name in ("coverage", "reliability", "sparsification_error")] == offered
    with pytest.raises(InputError, match=f"these results have no such curves.*; there are {' and '.join(offered)}$"):
        results.plot(missing, "clean")


def test_the_kl_of_a_toy_problem() -> None:
    axes = fake.regression().plot("kl")
    assert axes.get_yscale() == "log"
    assert any("noise floor" in text.get_text() for text in axes.texts)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ause",), r"^plot\(\): say on which domain; there are clean, wild-1, wild-3, wild$"),
        (("ause", "wilder"), r"^plot\(\): domain 'wilder' is unknown; there are clean, "),
        (("auze", "wild"), r"^plot\('auze'\): there is no such metric; the nearest is 'ause'; there are ause, auce, "),
        (("coverage", "wild", 3), r"^plot\('coverage'\): M = 3 was not scored; there are 1, 2, 4 and 8$"),
        (("kl",), r"^plot\('kl'\): there is no KL, as there was no reference to compare with$"),
    ],
)
def test_what_cannot_be_plotted_is_refused_in_words(arguments: tuple[object, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fake.depth().plot(*arguments)  # type: ignore[arg-type]
