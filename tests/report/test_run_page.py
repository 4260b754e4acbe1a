"""The page of runs: what holds for every scene, and what toy problems show."""

import copy
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import fake
import pytest
from html_tree import Node, Rendered
from page_checks import assert_accessible, assert_links_stay, assert_safe, plain, rows, texts

from epibench.report import write_run_page
from epibench.report.numbers import measured
from epibench.report.runs import VIEWS, View, kl_entries, methods_of, read_runs
from epibench.results import Score

RunDocument = Callable[..., Node]
SceneDocument = Callable[[str], Node]
MOST_CHARACTERS = 1_500_000


def view_of(document: Node, key: str) -> Node:
    """The part of the page that shows one view of the KL."""
    (found,) = [n for n in document.find_all("div", "layer") if n.attributes.get("data-m") == key]
    return found


def score_of(results: fake.Results, method: str, region: str) -> Score:
    score = results.score(method, region)
    assert score is not None
    return score


def test_every_page_is_well_formed_accessible_safe_and_whole(rendered_run: Rendered) -> None:
    document = rendered_run.document  # the reader refuses tags that close out of order
    for drawing in re.findall(r"<svg(?:(?!<svg).)*?</svg>", rendered_run.page, flags=re.DOTALL):
        ElementTree.fromstring(drawing)
    assert_accessible(document)
    assert_links_stay(document)
    assert_safe(document, rendered_run.page)
    # Rules that name an ancestor do not reach what <use> shows: lines would be black areas.
    assert not re.search(r"[^\s{},] \.(dots|truth|outline)\b", document.find_all("style")[0].text)


@pytest.mark.parametrize("scene", ["toy_hostile", "dense_hostile", "class_hostile", "hostile_scores"])
def test_text_from_files_is_escaped(scene: str, scene_document: SceneDocument) -> None:
    assert "<script>alert(1)</script>\"'&\ufffd?" in scene_document(scene).find_all("body")[0].text


def test_one_toy_run_stays_small_and_results_are_only_read(tmp_path: Path) -> None:
    for results in (fake.regression(), fake.classification()):
        before = copy.deepcopy(results)
        assert write_run_page([results], tmp_path / "x.html").stat().st_size < MOST_CHARACTERS
        assert results == before


def test_questions_come_in_order(scene_document: SceneDocument) -> None:
    document = scene_document("regression")
    assert texts(document, "h3") == [
        "Which method is closest to the reference?",
        "What the methods predict",
        "Beside what was published",
        "On fresh test data",
        "Reference and cost",
    ]
    regions = [text for text in texts(document, "h4") if "training region" in text]
    assert regions == ["Inside the training region", "Outside the training region"]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
def test_the_table_of_each_view_holds_its_numbers(view: View, scene_document: SceneDocument) -> None:
    results = fake.classification()
    (table,) = view_of(scene_document("classification"), view.key).find_all("table", "kl")
    floor, *cells = rows(table)["SGHMC"]
    stats = [metrics[view.metric] for metrics in score_of(results, "sghmc", view.region).summary.values()]
    assert [cell.removesuffix(" ≈") for cell in cells] == [plain(measured(s.mean, s.std)) for s in stats]  # type: ignore[arg-type]
    (known,) = {entry.floor for entry in kl_entries(methods_of(read_runs([results])), view)}
    assert float(floor.replace("×10⁻⁵", "e-5")) == pytest.approx(known, rel=0.06)


def test_the_pooled_kl_over_the_grid_is_seen_first_and_names_who_is_closest(scene_document: SceneDocument) -> None:
    layers = scene_document("classification").find_all("div", "layer")
    (chosen,) = [layer for layer in layers if "chosen" in layer.classes]
    assert len(layers) == 8
    assert chosen.attributes["data-m"] == "pooled-reference_to_method-grid"
    assert chosen.find_all("p", "headline")[0].text == "Ensembling is closest"


@pytest.mark.parametrize(
    ("scene", "style", "verdict"),
    [
        ("classification", "lead", "Reference: converged: R-hat ≤ 1.05 at 100 % of points (goal 95 %)"),
        (
            "regression",
            "warning",
            "Reference: NOT converged: R-hat ≤ 1.05 at 33 % of points (goal 95 %). KLs to it may",
        ),
    ],
)
def test_the_verdict_on_the_reference_stands_above_the_kls(
    scene: str, style: str, verdict: str, scene_document: SceneDocument
) -> None:
    assert texts(scene_document(scene), "p", style)[0].startswith(verdict)


def test_published_cells_are_counted_and_judged(scene_document: SceneDocument) -> None:
    within, differ = texts(scene_document("classification").find_all("ul", "counts")[0], "li")
    assert within == "18 of 23 cells within one published std"
    assert differ == "6 of 23 cells differ with p < 0.05; chance alone gives 1.2"
    (table,) = scene_document("regression").find_all("table", "cells")
    first = texts(table.find_all("tr")[2], "td")
    assert first[:2] == ["0.44 ± 0.22", "128"]
    assert [text.split()[-1] for text in first[-3:-1]] == ["agrees", "agrees"]
    assert re.fullmatch(r"-\d+ %, \+\d+ %", first[-1])


def test_what_keeps_numbers_from_being_comparable_is_said(
    scene_document: SceneDocument, run_document: RunDocument
) -> None:
    said = "not on the published data: the numbers are comparable in kind only"
    assert said in plain(scene_document("classification").text)
    assert said not in plain(scene_document("regression").text)
    assert "This is the quick variant of toy-regression-dropout" in plain(scene_document("dropout_rates").text)
    own = fake.toy_run(name="mine", members=(8, 16))
    assert "Beside what was published" not in run_document(own).text


def test_point_estimates_are_levels_over_the_m_of_the_others(scene_document: SceneDocument) -> None:
    view = view_of(scene_document("regression"), "pooled-reference_to_method-grid")
    (level,) = [g for g in view.find_all("g", "level") if g.attributes["data-label"] == "MAP"]
    assert len(level.find_all("path", "marker")) == 1


def test_a_level_far_off_is_named_and_does_not_stretch_the_axis(run_document: RunDocument) -> None:
    results = fake.toy_run(shapes={"map": (40_000.0, 0.0, 0.1), "ensemble": (0.3, 0.1, 0.1)}, members=(8, 16))
    view = view_of(run_document(results), "pooled-reference_to_method-grid")
    (figure,) = view.find_all("figure")
    assert not figure.find_all("g", "level")
    assert texts(figure, "text", "remark")[0].startswith("↑ MAP: 3")


def test_several_runs_share_a_page_with_labels_of_their_own_and_a_warning(scene_document: SceneDocument) -> None:
    document = scene_document("two_runs")
    keys = {button.attributes["data-key"] for button in document.find_all("button")}
    assert {"Ensembling · toy-regression", "Ensembling · momentum"} <= keys
    assert "The runs were trained on different data" in document.find_all("p", "warning")[0].text


def test_runs_of_one_recipe_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    pair = [fake.momentum(), fake.toy_run(name="toy-regression-momentum", members=(8, 16), seed=1)]
    text = write_run_page(pair, tmp_path / "x.html", ["first", "second"]).read_text(encoding="utf-8")
    assert "Ensembling · first" in text
    assert "Ensembling · second" in text
    assert "toy-regression-momentum (first)" in text


def test_problems_have_sections_of_their_own(scene_document: SceneDocument) -> None:
    sections = scene_document("two_problems").find_all("section", "kind")
    titles = [texts(section, "h2")[0] for section in sections]
    assert titles == ["Toy regression 7 methods", "Toy classification 4 methods"]


def test_a_method_looks_alike_on_every_page(scene_document: SceneDocument) -> None:
    def style(document: Node) -> list[str]:
        (button,) = [b for b in document.find_all("button") if b.attributes["data-key"] == "SGLD"]
        return button.find_all("svg")[0].classes

    assert style(scene_document("regression")) == style(scene_document("classification"))


def test_infinite_draws_are_counted(run_document: RunDocument) -> None:
    results = fake.classification()
    score = score_of(results, "sgld", "grid")
    score.summary[8]["kl"].mean = None
    for draw in [draw for draw in score.draws if draw.M == 8][:3]:
        draw.metrics["kl"] = None
    (table,) = view_of(run_document(results), VIEWS[0].key).find_all("table", "kl")
    assert "infinite in 3 of 24 draws" in rows(table)["SGLD"][1]


def test_a_run_that_stopped_early_still_makes_a_page(scene_document: SceneDocument, run_document: RunDocument) -> None:
    text = plain(scene_document("bare").text)
    assert "No finite KL" in text
    assert "The run was compared with no reference." in text
    assert "no reference" in run_document(fake.bare(kl=False)).find_all("p", "warning")[0].text


@pytest.mark.parametrize(
    ("scene", "failure"),
    [("toy_failed", "sgld failed: the loss is not finite"), ("dense_failed", "ensemble failed: CUDA out of memory")],
)
def test_a_run_whose_only_method_failed_says_so(scene: str, failure: str, scene_document: SceneDocument) -> None:
    warnings = texts(scene_document(scene), "p", "warning")
    assert failure in warnings
    assert "No method was finished, so there are no numbers." in warnings
    assert not [text for text in warnings if "There is no KL" in text]


def test_settings_versions_and_the_command_are_there(scene_document: SceneDocument) -> None:
    (footer,) = texts(scene_document("regression"), "footer")
    assert "epibench run RUN/recipe.json --out NEW" in footer
    assert "ensemble.learning_rate0.001" in footer
    assert "commit3f2a91c" in footer
