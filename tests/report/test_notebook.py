"""Results in notebooks: a table of headline metrics, and plots by the name of a metric."""

import re
from xml.etree.ElementTree import fromstring

import fake
import pytest

from epibench.errors import InputError
from epibench.report.judge import judge_at
from epibench.report.runs import read_runs, stored_entries
from epibench.results import Results


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


def test_a_plot_shows_itself() -> None:
    drawing = fake.depth().plot("ause", domain="wild")
    root = fromstring(drawing._repr_svg_())
    assert root.tag.endswith("svg")
    assert "AUSE ↓" in drawing.title


@pytest.mark.parametrize("name", ["coverage", "sparsification_error"])
def test_curves_at_an_m(name: str) -> None:
    results = fake.depth()
    drawings = {results.plot(name, "clean", m).svg for m in (None, 1, 4)}
    assert len(drawings) == 3


def test_reliability_of_classes_at_an_m() -> None:
    results = fake.segmentation()
    drawings = {results.plot("reliability", "clean", m).svg for m in (None, 1, 4)}
    assert len(drawings) == 3
    assert all(facts.label in drawing for facts in results.methods.values() for drawing in drawings)


def test_reliability_of_one_method_is_its_diagram() -> None:
    results = fake.three_categorical()
    alone = results.model_copy(update={"scores": results.scores[:1]})
    assert "share of pixels" in alone.plot("reliability").svg


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
    assert "noise floor" in fake.regression().plot("kl").svg


@pytest.mark.xfail(strict=True, reason="groups_of names the role of stored predictions, which is unknown")
def test_the_only_domain_need_not_be_named() -> None:
    assert fake.two_gaussian().plot("rmse").title == "RMSE (m) ↓ · wild"


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
