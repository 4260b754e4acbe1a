import re
from collections.abc import Callable

import fake
import pytest
from html_tree import Node
from page_checks import plain, rows, texts

from epibench.report.numbers import measured
from epibench.report.runs import entries_on, methods_of, read_runs

RunDocument = Callable[..., Node]
SceneDocument = Callable[[str], Node]


def part(document: Node, end: str) -> list[Node]:
    """The nodes from the third-level heading whose id ends so up to the next one."""
    (section,) = document.find_all("section", "kind")
    nodes = [child for child in section.children if isinstance(child, Node)]
    starts = [i for i, node in enumerate(nodes) if node.tag == "h3"]
    first = next(i for i in starts if (nodes[i].attributes.get("id") or "").endswith(end))
    return nodes[first : next((i for i in starts if i > first), len(nodes))]


def found(nodes: list[Node], tag: str, class_: str = "") -> list[Node]:
    return [inner for node in nodes for inner in node.find_all(tag, class_)]


def test_questions_come_in_order(scene_document: SceneDocument) -> None:
    assert texts(scene_document("kitti"), "h3") == [
        "How far can the uncertainty be trusted?",
        "Metrics over the number of members",
        "In-domain against shifted",
        "In ensemble members",
        "Calibration and sparsification",
        "What the methods predict",
        "What it costs",
        "All numbers",
        "Beside what was published",
    ]


def test_sections_of_images_and_toy_problems_have_their_own_parts(scene_document: SceneDocument) -> None:
    assert not re.search("KL|noise floor|no reference", plain(scene_document("depth").text))
    dense, toy = scene_document("dense_and_toy").find_all("section", "kind")
    assert "Which method is closest to the reference?" not in dense.text
    assert "Which method is closest to the reference?" in toy.text
    assert "Against" not in toy.text


def test_the_domain_trained_for_and_the_hardest_shift_come_first(scene_document: SceneDocument) -> None:
    nodes = part(scene_document("depth"), "-trust")
    first, _ = (plain(n.text) for n in nodes if n.tag == "p" and "finding" in n.classes)
    assert first == (
        "At M = 8, Ensembling ranks errors best (AUSE), is best calibrated (AUCE) and has the lowest error (RMSE)."
    )
    titles = [plain(n.text) for n in nodes if n.tag == "h4"]
    assert titles[0].startswith("street, clean in-domain 64 images")
    assert titles[1].startswith("street, wild (severity 5) shifted")


def test_cards_hold_the_values_at_the_largest_common_m(scene_document: SceneDocument) -> None:
    (entry,) = entries_on(methods_of(read_runs([fake.depth()]))[1:], "clean")
    cards = scene_document("depth").find_all("article", "card")[:3]
    for card, name in zip(cards, ("ause", "auce", "rmse"), strict=True):
        assert plain(entry.text(name, 8)) in plain(card.text)


def test_what_members_buy_and_their_overlap_are_said(scene_document: SceneDocument) -> None:
    document = scene_document("depth")
    tables = document.find_all("table", "gains")
    assert [len(table.find_all("tr")) for table in tables] == [1 + 2, 1 + 2 * 3]  # the shift; two domains
    assert "-24 % better 0.4548 → 0.3448" in plain(tables[1].text)
    assert "two draws share more than 50 % of their members (67 % at M = 8)" in plain(document.text)


def test_each_domain_has_a_chart_for_each_headline_metric_on_common_and_own_scales(
    scene_document: SceneDocument,
) -> None:
    def ticks(layer: Node) -> list[str]:
        texts = [[t.text for t in chart.find_all("text")] for chart in layer.find_all("svg", "chart")]
        return ["|".join(one) for one in texts[2::3]]  # RMSE

    members = part(scene_document("depth"), "-members")
    layers = {n.attributes["data-m"]: n for n in found(members, "div", "layer")}
    assert set(layers) == {"common", "own"}
    assert len(layers["common"].find_all("svg", "chart")) == 4 * 3
    assert len(set(ticks(layers["common"]))) == 1
    assert len(set(ticks(layers["own"]))) > 1


def test_three_severities_make_charts_with_the_smallest_m_too_and_two_do_not(scene_document: SceneDocument) -> None:
    charts = found(part(scene_document("depth"), "-severity"), "svg", "chart")
    assert len(charts) == 3
    assert len(charts[0].find_all("g", "series")) == 4
    assert len(charts[0].find_all("g", "faint")) == 2
    assert "severity of the shift" not in scene_document("kitti").text.lower()


def test_classes_have_reliability_and_iou(scene_document: SceneDocument) -> None:
    document = scene_document("segmentation")
    curves = found(part(document, "-curves"), "div", "panels")
    diagrams = [grid for grid in curves if "of-draws" not in grid.classes]
    assert [len(grid.find_all("figure")) for grid in diagrams] == 4 * [1 + 3]  # domains; together, and methods
    assert len(document.find_all("table", "classes")) == 4 * 6  # domains, and metrics of classes
    assert "sidewalk" in document.find_all("table", "classes")[0].text


def test_curves_can_be_seen_at_every_m(scene_document: SceneDocument) -> None:
    nodes = part(scene_document("depth"), "-curves")
    charts = found(nodes, "svg", "chart")
    assert len(charts) == 4 * (4 + 2 * 3)  # domains; together, and three of each method
    for chart in charts:
        layers = chart.find_all("g", "layer")
        assert [layer.attributes["data-m"] for layer in layers] == ["1", "2", "4", "8"]
        assert ["chosen" in layer.classes for layer in layers] == [False, False, False, True]
        assert all(layer.find_all("path", "line") for layer in layers)
    radios = [n for n in found(nodes, "input") if (n.attributes["id"] or "").startswith("problem0-at-m-m-")]
    assert [(n.attributes["id"] or "").rpartition("-")[2] for n in radios] == ["1", "2", "4", "8"]


def test_cost_is_shown_over_m_and_against_quality(scene_document: SceneDocument) -> None:
    cost = part(scene_document("depth"), "-cost")
    titles = [plain(n.text) for n in found(cost, "span", "name")]
    over_m = ["Operations (GFLOP)", "Time (s)", "Peak memory (MiB)", "Weights (MiB)"]
    over_m += ["Training (min)", "Training steps"]
    assert titles[:10] == [*over_m, "AUSE", "AUCE", "RMSE (m)", "NLL"]
    first = [plain(td.text) for td in found(cost, "td")[:8]]
    assert first == ["25.9 M", "41.3 GFLOP", "128 × 256", "12", "12", "random", "1 h 22 min", "4,000"]


def test_every_number_is_in_a_table(scene_document: SceneDocument) -> None:
    numbers = plain(" ".join(n.text for n in part(scene_document("depth"), "-numbers")))
    stat = fake.score(fake.depth(), "ensemble", "wild-3").summary[4]["crps"]
    assert plain(measured(stat.mean, stat.std)) in numbers


def test_published_cells_stand_beside_ours(scene_document: SceneDocument) -> None:
    (table,) = scene_document("kitti").find_all("table", "cells")
    assert ["2,241 ± 71", "32", "2,732 ± 44", "2,714", "8"] in [texts(row, "td")[:5] for row in table.find_all("tr")]
    assert "ours over all valid pixels together (pooled)" in plain(scene_document("kitti").text)


def test_a_run_with_holes_still_makes_a_page(scene_document: SceneDocument) -> None:
    text = plain(scene_document("partial").text)
    assert "MC-dropout failed: CUDA out of memory" in text
    assert "Ensembling leads, not certain" in text
    assert "has AUSE 0.4282 ± 0.0036, AUCE 0.1531 ± 0.0091 and RMSE 2.556 ± 0.023." in text


@pytest.mark.parametrize("part", ["summary", "curves", "draws", "overlap", "pictures"])
def test_a_part_that_is_missing_for_a_method_does_not_break_the_page(part: str, run_document: RunDocument) -> None:
    results = fake.small()
    for score in (score for score in results.scores if score.method == "ensemble"):
        setattr(score, part, [] if part in ("draws", "pictures") else {})
    results.methods["ensemble"].cost, results.methods["ensemble"].training = None, []
    text = plain(run_document(results).text)
    assert ("MC-dropout has AUSE" if part == "summary" else "Ensembling ranks errors best") in text


def test_a_point_estimate_is_compared_at_its_own_m(run_document: RunDocument) -> None:
    results = fake.dense_run(domains=("clean", "wild"), members=(1, 2, 4))
    for score in (score for score in results.scores if score.method == "mc_dropout"):
        score.summary = {1: score.summary[1]}
    assert "At M = 4 and M = 1, MC-dropout is next" in plain(run_document(results).text)


def test_older_evaluations_stand_beside_the_newest_at_the_end(scene_document: SceneDocument) -> None:
    document = scene_document("twice_evaluated")
    *_, rmse = found(part(document, "-evaluations"), "table")
    assert texts(document, "p", "table-title")[-3:] == ["AUSE", "AUCE", "RMSE (m)"]
    assert texts(rmse, "th")[:4] == ["Method", "newest", "bf16", "street, clean"]
    assert texts(rmse, "th")[5] == "MC-dropout M = 2"
    newest, older = (fake.twice_evaluated().scores[i].summary[2]["rmse"] for i in (2, 4))
    shown = rows(rmse.find_all("tbody")[0])
    assert shown["MC-dropout"] == [plain(measured(one.mean, one.std)) for one in (newest, older)]
    assert shown["Ensembling"][1] == "–"
    assert texts(document, "h3")[-1] == "Other evaluations"


def test_runs_of_one_problem_share_its_section(scene_document: SceneDocument) -> None:
    document = scene_document("two_dense_runs")
    keys = [button.attributes["data-key"] for button in document.find_all("button")]
    assert keys == ["Ensembling · street", "MC-dropout · street", "Ensembling · mine", "MC-dropout · mine"]
    assert "Calibration and sparsification" not in document.text


def test_what_is_to_be_known_of_images_stands_on_the_page(run_document: RunDocument) -> None:
    results = fake.dense_run(domains=("clean",), members=(1, 2))
    results.domains["clean"].notes, results.training_notes = ["2 absent: 7, 9."], ["1 absent: 5."]
    assert [text for text in texts(run_document(results), "p", "warning") if "absent" in text] == [
        "Training data: 1 absent: 5.",
        f"{results.domains['clean'].label}: 2 absent: 7, 9.",
    ]


def test_runs_that_were_scored_on_other_pixels_are_compared_with_a_warning(run_document: RunDocument) -> None:
    runs = [fake.dense_run(name=name, domains=("clean",), members=(1, 2)) for name in ("a", "b")]
    for score in runs[1].scores:
        score.pixels.valid = 7
    assert "What is called clean is not the same data in all runs" in plain(run_document(*runs).text)
