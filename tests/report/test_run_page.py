"""The page of runs: what holds for every scene, and what toy problems show."""

import copy
import re
from xml.etree import ElementTree

import fake
import pytest
from page_checks import assert_accessible, assert_links_stay, assert_safe, plain, rows, texts

from epibench.report import write_run_page
from epibench.report.numbers import measured
from epibench.report.runs import VIEWS, kl_entries, methods_of, read_runs

MOST_CHARACTERS = 1_500_000
FIRST = VIEWS[0].key


def view_of(document, key=FIRST):
    """The part of the page that shows one view of the KL."""
    (found,) = [n for n in document.find_all("div", "layer") if n.attributes.get("data-m") == key]
    return found


def keys(document):
    return [button.attributes["data-key"] for button in document.find_all("button")]


def test_every_page_is_well_formed_accessible_safe_and_whole(rendered_run) -> None:
    document = rendered_run.document  # the reader refuses tags that close out of order
    for drawing in re.findall(r"<svg(?:(?!<svg).)*?</svg>", rendered_run.page, flags=re.DOTALL):
        ElementTree.fromstring(drawing)
    assert_accessible(document)
    assert_links_stay(document)
    assert_safe(document, rendered_run.page)
    # Rules that name an ancestor do not reach what <use> shows: lines would be black areas.
    assert not re.search(r"[^\s{},] \.(dots|truth|outline)\b", document.find_all("style")[0].text)


@pytest.mark.parametrize("scene", ["toy_hostile", "dense_hostile", "class_hostile", "hostile_scores"])
def test_text_from_files_is_escaped(scene, scene_document) -> None:
    assert "<script>alert(1)</script>\"'&\ufffd?" in scene_document(scene).find_all("body")[0].text


def test_one_toy_run_stays_small_and_results_are_only_read(tmp_path) -> None:
    for results in (fake.regression(), fake.classification()):
        before = copy.deepcopy(results)
        assert write_run_page([results], tmp_path / "x.html").stat().st_size < MOST_CHARACTERS
        assert results == before


def test_questions_come_in_order(scene_document) -> None:
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
    (footer,) = texts(document, "footer")
    for words in ("epibench run RUN/recipe.json --out NEW", "ensemble.learning_rate0.001", "commit3f2a91c"):
        assert words in footer


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
def test_the_table_of_each_view_holds_its_numbers(view, scene_document) -> None:
    results = fake.classification()
    (table,) = view_of(scene_document("classification"), view.key).find_all("table", "kl")
    floor, *cells = rows(table)["SGHMC"]
    stats = [metrics[view.metric] for metrics in fake.score(results, "sghmc", view.region).summary.values()]
    assert [cell.removesuffix(" ≈") for cell in cells] == [plain(measured(s.mean, s.std)) for s in stats]
    (known,) = {entry.floor for entry in kl_entries(methods_of(read_runs([results])), view)}
    assert float(floor.replace("×10⁻⁵", "e-5")) == pytest.approx(known, rel=0.06)


def test_the_pooled_kl_over_the_grid_is_seen_first_and_names_who_is_closest(scene_document) -> None:
    layers = scene_document("classification").find_all("div", "layer")
    (chosen,) = [layer for layer in layers if "chosen" in layer.classes]
    assert len(layers) == 8
    assert chosen.attributes["data-m"] == "pooled-reference_to_method-grid"
    assert chosen.find_all("p", "headline")[0].text == "Ensembling is closest"


def test_published_cells_are_counted_and_judged(scene_document) -> None:
    assert texts(scene_document("classification").find_all("ul", "counts")[0], "li")[:2] == [
        "18 of 23 cells within one published std",
        "6 of 23 cells differ with p < 0.05; chance alone gives 1.2",
    ]
    (table,) = scene_document("regression").find_all("table", "cells")
    first = texts(table.find_all("tr")[2], "td")
    assert first[:2] == ["0.44 ± 0.22", "128"]
    assert [text.split()[-1] for text in first[-3:-1]] == ["agrees", "agrees"]
    assert re.fullmatch(r"-\d+ %, \+\d+ %", first[-1])


@pytest.mark.parametrize(
    ("scene", "style", "words"),
    [
        ("classification", "lead", "Reference: converged: R-hat ≤ 1.05 at 100 % of points (goal 95 %)"),
        (
            "regression",
            "warning",
            "Reference: NOT converged: R-hat ≤ 1.05 at 33 % of points (goal 95 %). KLs to it may",
        ),
        ("classification", "", "not on the published data: the numbers are comparable in kind only"),
        ("dropout_rates", "", "This is the quick variant of toy-regression-dropout"),
        ("bare", "headline", "No finite KL"),
        ("bare", "warning", "The run was compared with no reference."),
        ("no_kl", "warning", "no reference"),
        ("toy_failed", "warning", "sgld failed: the loss is not finite"),
        ("toy_failed", "warning", "No method was finished, so there are no numbers."),
        ("dense_failed", "warning", "ensemble failed: CUDA out of memory"),
        ("dense_failed", "warning", "No method was finished, so there are no numbers."),
        ("two_runs", "warning", "The runs were trained on different data"),
    ],
)
def test_doubts_and_failures_are_said(scene, style, words, scene_document) -> None:
    document = scene_document(scene)
    assert words in (" | ".join(texts(document, "p", style)) if style else plain(document.text))


def test_nothing_is_said_that_does_not_hold(scene_document, run_document) -> None:
    assert "not on the published data" not in plain(scene_document("regression").text)
    for scene in ("toy_failed", "dense_failed"):
        assert "There is no KL" not in " ".join(texts(scene_document(scene), "p", "warning"))
    own = fake.toy_run(name="mine", members=(8, 16))
    assert "Beside what was published" not in run_document(own).text
    given = fake.small().model_copy(
        update={"recipe": {"models": {"mine": ["run:a"]}, "data": {"clean": "street:clean"}}}
    )
    assert "trained on different data" not in run_document(fake.small(), given).text


def test_point_estimates_are_levels_unless_they_stretch_the_axis(scene_document, run_document) -> None:
    levels = view_of(scene_document("regression")).find_all("g", "level")
    (level,) = [level for level in levels if level.attributes["data-label"] == "MAP"]
    assert len(level.find_all("path", "marker")) == 1
    far = fake.toy_run(shapes={"map": (40_000.0, 0.0, 0.1), "ensemble": (0.3, 0.1, 0.1)}, members=(8, 16))
    (figure,) = view_of(run_document(far)).find_all("figure")
    assert not figure.find_all("g", "level")
    assert texts(figure, "text", "remark")[0].startswith("↑ MAP: 3")


def test_several_runs_share_a_page_with_labels_of_their_own(scene_document, tmp_path) -> None:
    assert {"Ensembling · toy-regression", "Ensembling · momentum"} <= {*keys(scene_document("two_runs"))}
    pair = [fake.momentum(), fake.toy_run(name="toy-regression-momentum", members=(8, 16), seed=1)]
    text = write_run_page(pair, tmp_path / "x.html", ["first", "second"]).read_text(encoding="utf-8")
    for words in ("Ensembling · first", "Ensembling · second", "toy-regression-momentum (first)"):
        assert words in text


def test_problems_have_sections_of_their_own_and_a_method_looks_alike_in_each(scene_document) -> None:
    sections = scene_document("two_problems").find_all("section", "kind")
    titles = [texts(section, "h2")[0] for section in sections]
    assert titles == ["Toy regression 7 methods", "Toy classification 4 methods"]
    looks = [
        button.find_all("svg")[0].classes
        for scene in ("regression", "classification")
        for button in scene_document(scene).find_all("button")
        if button.attributes["data-key"] == "SGLD"
    ]
    assert looks[0] == looks[1]


def test_infinite_draws_are_counted(run_document) -> None:
    results = fake.classification()
    score = fake.score(results, "sgld", "grid")
    score.summary[8]["kl"].mean = None
    for draw in [draw for draw in score.draws if draw.M == 8][:3]:
        draw.metrics["kl"] = None
    (table,) = view_of(run_document(results)).find_all("table", "kl")
    assert "infinite in 3 of 24 draws" in rows(table)["SGLD"][1]
