"""The parts of a page on problems with domains."""

import re

import fake
import pytest
from html_tree import Node
from page_checks import plain, rows, texts

from epibench.report.numbers import measured
from epibench.report.runs import entries_on, methods_of, read_runs

DENSE = [
    "How far can the uncertainty be trusted?",
    "Metrics over the number of members",
    "In-domain against shifted",
    "In ensemble members",
    "Calibration and sparsification",
    "What the methods predict",
    "What it costs",
    "All numbers",
]


def part(document, end):
    """The nodes from the third-level heading with this end of its id up to the next heading."""
    (section,) = document.find_all("section", "kind")
    nodes = [child for child in section.children if isinstance(child, Node)]
    starts = [i for i, node in enumerate(nodes) if node.tag == "h3"]
    first = next(i for i in starts if (nodes[i].attributes.get("id") or "").endswith(end))
    return Node("div", children=[*nodes[first : next((i for i in starts if i > first), len(nodes))]])


def test_questions_come_in_order(scene_document) -> None:
    assert texts(scene_document("kitti"), "h3") == [*DENSE, "Beside what was published"]
    assert texts(scene_document("twice_evaluated"), "h3") == [*DENSE, "Other evaluations"]


def test_sections_of_images_and_toy_problems_have_their_own_parts(scene_document) -> None:
    assert not re.search("KL|noise floor|no reference", plain(scene_document("depth").text))
    dense, toy = scene_document("dense_and_toy").find_all("section", "kind")
    assert "Which method is closest to the reference?" not in dense.text
    assert "Which method is closest to the reference?" in toy.text
    assert "Against" not in toy.text


def test_findings_and_cards_are_of_the_training_domain_and_the_hardest_shift_first(scene_document) -> None:
    trust = part(scene_document("depth"), "-trust")
    assert texts(trust, "p", "finding")[0] == (
        "At M = 8, Ensembling ranks errors best (AUSE), is best calibrated (AUCE) and has the lowest error (RMSE)."
    )
    titles = texts(trust, "h4")
    assert titles[0].startswith("street, clean in-domain 64 images")
    assert titles[1].startswith("street, wild (severity 5) shifted")
    (entry,) = entries_on(methods_of(read_runs([fake.depth()]))[1:], "clean")
    for card, name in zip(texts(trust, "article", "card")[:3], ("ause", "auce", "rmse"), strict=True):
        assert plain(entry.text(name, 8)) in card


def test_what_members_buy_and_their_overlap_are_said(scene_document) -> None:
    document = scene_document("depth")
    tables = document.find_all("table", "gains")
    assert [len(table.find_all("tr")) for table in tables] == [1 + 2, 1 + 2 * 3]  # the shift; two domains
    assert "-24 % better 0.4548 → 0.3448" in plain(tables[1].text)
    assert "two draws share more than 50 % of their members (67 % at M = 8)" in plain(document.text)


def test_each_domain_has_a_chart_for_each_headline_metric_on_common_and_own_scales(scene_document) -> None:
    layers = {n.attributes["data-m"]: n for n in part(scene_document("depth"), "-members").find_all("div", "layer")}
    assert set(layers) == {"common", "own"}
    for key, different in (("common", False), ("own", True)):
        charts = layers[key].find_all("svg", "chart")
        assert len(charts) == 4 * 3
        ticks = {"|".join(text.text for text in chart.find_all("text")) for chart in charts[2::3]}  # RMSE
        assert (len(ticks) > 1) is different


def test_three_severities_make_charts_with_the_smallest_m_too_and_two_do_not(scene_document) -> None:
    charts = part(scene_document("depth"), "-severity").find_all("svg", "chart")
    assert len(charts) == 3
    assert [len(charts[0].find_all("g", look)) for look in ("series", "faint")] == [4, 2]
    assert "severity of the shift" not in scene_document("kitti").text.lower()


def test_classes_have_reliability_and_iou(scene_document) -> None:
    document = scene_document("segmentation")
    curves = part(document, "-curves").find_all("div", "panels")
    diagrams = [grid for grid in curves if "of-draws" not in grid.classes]
    assert [len(grid.find_all("figure")) for grid in diagrams] == 4 * [1 + 3]  # domains; together, and methods
    assert len(document.find_all("table", "classes")) == 4 * 6  # domains, and metrics of classes
    assert "sidewalk" in document.find_all("table", "classes")[0].text


def test_curves_can_be_seen_at_every_m(scene_document) -> None:
    curves, members = part(scene_document("depth"), "-curves"), ["1", "2", "4", "8"]
    charts = curves.find_all("svg", "chart")
    assert len(charts) == 4 * (4 + 2 * 3)  # domains; together, and three of each method
    for chart in charts:
        layers = chart.find_all("g", "layer")
        assert [layer.attributes["data-m"] for layer in layers] == members
        assert ["chosen" in layer.classes for layer in layers] == [False, False, False, True]
        assert all(layer.find_all("path", "line") for layer in layers)
    ids = [n.attributes["id"] for n in curves.find_all("input")]
    assert [one.rpartition("-")[2] for one in ids if one.startswith("problem0-at-m-m-")] == members


def test_cost_is_shown_over_m_and_against_quality(scene_document) -> None:
    cost = part(scene_document("depth"), "-cost")
    over_m = ["Operations (GFLOP)", "Time (s)", "Peak memory (MiB)", "Weights (MiB)"]
    over_m += ["Training (min)", "Training steps"]
    assert texts(cost, "span", "name")[:10] == [*over_m, "AUSE", "AUCE", "RMSE (m)", "NLL"]
    first = ["25.9 M", "41.3 GFLOP", "128 × 256", "12", "12", "random", "1 h 22 min", "4,000"]
    assert texts(cost, "td")[:8] == first


def test_every_number_is_in_a_table_and_published_cells_beside_ours(scene_document) -> None:
    stat = fake.score(fake.depth(), "ensemble", "wild-3").summary[4]["crps"]
    assert plain(measured(stat.mean, stat.std)) in plain(part(scene_document("depth"), "-numbers").text)
    (table,) = scene_document("kitti").find_all("table", "cells")
    assert ["2,241 ± 71", "32", "2,732 ± 44", "2,714", "8"] in [texts(row, "td")[:5] for row in table.find_all("tr")]
    assert "ours over all valid pixels together (pooled)" in plain(scene_document("kitti").text)


def test_a_run_with_holes_still_makes_a_page(scene_document) -> None:
    text = plain(scene_document("partial").text)
    assert "MC-dropout failed: CUDA out of memory" in text
    assert "Ensembling leads, not certain" in text
    assert "has AUSE 0.4282 ± 0.0036, AUCE 0.1531 ± 0.0091 and RMSE 2.556 ± 0.023." in text


@pytest.mark.parametrize("missing", ["summary", "curves", "draws", "overlap", "pictures"])
def test_a_part_that_is_missing_for_a_method_does_not_break_the_page(missing, run_document) -> None:
    results = fake.small()
    for score in (score for score in results.scores if score.method == "ensemble"):
        setattr(score, missing, [] if missing in ("draws", "pictures") else {})
    results.methods["ensemble"].cost, results.methods["ensemble"].training = None, []
    text = plain(run_document(results).text)
    assert ("MC-dropout has AUSE" if missing == "summary" else "Ensembling ranks errors best") in text


def test_a_point_estimate_is_compared_at_its_own_m(run_document) -> None:
    results = fake.dense_run(domains=("clean", "wild"), members=(1, 2, 4))
    for score in (score for score in results.scores if score.method == "mc_dropout"):
        score.summary = {1: score.summary[1]}
    assert "At M = 4 and M = 1, MC-dropout is next" in plain(run_document(results).text)


def test_older_evaluations_stand_beside_the_newest(scene_document) -> None:
    document = scene_document("twice_evaluated")
    *_, rmse = part(document, "-evaluations").find_all("table")
    assert texts(document, "p", "table-title")[-3:] == ["AUSE", "AUCE", "RMSE (m)"]
    assert texts(rmse, "th")[:4] == ["Method", "newest", "bf16", "street, clean"]
    assert texts(rmse, "th")[5] == "MC-dropout M = 2"
    newest, older = (fake.twice_evaluated().scores[i].summary[2]["rmse"] for i in (2, 4))
    shown = rows(rmse.find_all("tbody")[0])
    assert shown["MC-dropout"] == [plain(measured(one.mean, one.std)) for one in (newest, older)]
    assert shown["Ensembling"][1] == "–"


def test_runs_of_one_problem_share_its_section_and_warn_of_other_data(scene_document, run_document) -> None:
    document = scene_document("two_dense_runs")
    keys = [button.attributes["data-key"] for button in document.find_all("button")]
    assert keys == ["Ensembling · street", "MC-dropout · street", "Ensembling · mine", "MC-dropout · mine"]
    assert "Calibration and sparsification" not in document.text
    runs = [fake.dense_run(name=name, domains=("clean",), members=(1, 2)) for name in ("a", "b")]
    for score in runs[1].scores:
        score.pixels.valid = 7
    assert "What is called clean is not the same data in all runs" in plain(run_document(*runs).text)


def test_what_is_to_be_known_of_images_stands_on_the_page(run_document) -> None:
    results = fake.dense_run(domains=("clean",), members=(1, 2))
    results.domains["clean"].notes, results.training_notes = ["2 absent: 7, 9."], ["1 absent: 5."]
    assert [text for text in texts(run_document(results), "p", "warning") if "absent" in text] == [
        "Training data: 1 absent: 5.",
        f"{results.domains['clean'].label}: 2 absent: 7, 9.",
    ]
