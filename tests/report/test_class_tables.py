import re
from collections.abc import Callable
from typing import Any

import fake
import pytest
from html_tree import Node
from page_checks import plain

from epibench.metrics.info import INFOS
from epibench.report.class_section import class_section, class_tables, per_class_names
from epibench.report.entries import ClassStyles, Entry
from epibench.report.metric_info import PER_CLASS
from epibench.report.runs import entries_on, featured, methods_of, read_runs, scored_domains
from epibench.report.table import Row
from epibench.report.table_files import render_markdown
from epibench.results import ClassStat, DomainFacts, PoolSize, Results, Score

RunDocument = Callable[..., Node]
SceneDocument = Callable[[str], Node]


def with_classes(values: dict[str, list[float | None]], names: list[str], label: str = "Ensembling") -> Entry:
    stats = {name: ClassStat(mean=[*found], std=[0.01 for _ in found], n=3) for name, found in values.items()}
    return fake.entry(label, {4: stats}, kind="categorical", pool=PoolSize(16), classes=ClassStyles(names))


def section_of(results: Results) -> dict[str, Any] | None:
    runs = read_runs([results])
    methods = methods_of(runs)
    domains = scored_domains(runs, methods)
    first = featured(domains, methods)
    others = [domain for domain in domains if domain not in first]
    return class_section(*([(d, entries_on(methods, d.name)) for d in of_them] for of_them in (first, others)))


def small(inside: list[float | None], outside: list[float | None], name: str = "iou_per_class") -> Results:
    """A run of one method whose classes have these values on the domain trained for and under a shift."""
    values = {"clean": inside, "wild": outside}
    roles = {"clean": "in-domain", "wild": "shifted"}
    names, about = ["road", "sky", "car"], {"settings": {}, "kind": "categorical", "pool": PoolSize(16)}
    return fake.run_results(
        problem="segmentation",
        domains={d: DomainFacts(label=d, role=role, class_names=names) for d, role in roles.items()},
        methods={"ensemble": fake.dense_facts("ensemble", (2,))},
        scores=[
            Score(method="ensemble", domain=d, summary={2: {name: ClassStat(mean=[*v], std=None, n=2)}}, **about)
            for d, v in values.items()
        ],
    )


def table_of(results: Results) -> dict[str, Any]:
    found = section_of(results)
    assert found is not None
    (table,) = found["layers"][0]["shown"]
    assert isinstance(table, dict)
    return table


def rows_of(results: Results) -> list[Row]:
    (block,) = table_of(results)["table"].blocks
    return list(block.rows)


def test_the_class_that_loses_most_comes_first_and_one_without_values_last() -> None:
    results = small([0.9, None, 0.7], [0.8, None, 0.2])
    table, rows = table_of(results), rows_of(results)
    assert [row.name.label for row in rows] == ["car", "road", "sky"]
    assert plain(rows[0].cells[0].value) == "0.700 → 0.200"
    assert [row.cells[0].tone for row in rows] == ["bad", "bad", "same"]
    assert table["finding"] == "By IoU, car and road suffer most."


def test_where_lower_is_better_a_rise_is_a_loss() -> None:
    results = small([0.1, 0.4, 0.3], [0.5, 0.3, 0.4], "ece_per_class")
    table, rows = table_of(results), rows_of(results)
    assert [row.name.label for row in rows] == ["road", "car", "sky"]
    assert [row.cells[0].tone for row in rows] == ["bad", "bad", "good"]
    assert table["finding"] == "By ECE, road and car suffer most, sky least."


def test_a_class_that_was_never_found_has_nothing_to_lose() -> None:
    results = small([0.9, 0.0, 0.7], [0.8, 0.0, 0.7])
    table, rows = table_of(results), rows_of(results)
    assert [row.name.label for row in rows] == ["road", "car", "sky"]
    assert table["finding"] == "By IoU, road suffers most, car least. 1 of 3 classes have IoU 0 on clean already."
    assert rows[2].cells[0].spread == ""


def test_bars_go_from_the_smaller_to_the_larger_of_both_values() -> None:
    assert rows_of(small([0.9, 0.5, 0.7], [0.8, 0.6, 0.2]))[0].cells[0].bar == (0.2, 0.7)


def test_classes_are_matched_by_their_names() -> None:
    results = small([0.9, 0.5, 0.7], [0.2, 0.6])
    results.domains["wild"].class_names = ["car", "lane"]
    rows = {row.name.label: plain(row.cells[0].value) for row in rows_of(results)}
    assert rows == {"car": "0.700 → 0.200", "lane": "0.600"}


def test_without_another_domain_the_worst_class_comes_first() -> None:
    results = small([0.9, 0.5, 0.7], [0.0])
    del results.domains["wild"], results.scores[1]
    table, rows = table_of(results), rows_of(results)
    assert [row.name.label for row in rows] == ["sky", "car", "road"]
    assert table["before"] is None
    assert table["finding"] == ""


def test_every_metric_of_classes_has_a_layer_and_none_is_unknown(scene_document: SceneDocument) -> None:
    found = section_of(fake.segmentation())
    assert found is not None
    assert [layer["title"] for layer in found["layers"]] == ["IoU", "Accuracy", "AUSE", "ECE", "Brier score", "NLL"]
    assert all(layer["meaning"] and layer["better"] for layer in found["layers"])
    names = {name for name in INFOS if name.endswith(PER_CLASS)}
    assert names >= {f"{name}_per_class" for name in ("iou", "accuracy", "ause", "ece", "brier", "nll", "share")}
    assert "_per_class" not in scene_document("segmentation").text


def test_the_section_has_a_table_for_each_shift_with_shares_and_swatches(scene_document: SceneDocument) -> None:
    document = scene_document("segmentation")
    tables = document.find_all("table", "class-shift")
    assert len(tables) == 6 * 3  # metrics, and shifted domains
    first = tables[0].find_all("tr")
    assert len(first) == 1 + 19
    assert all(len(row.find_all("svg", "class-swatch")) == 1 for row in first[1:])
    assert "Share of pixels" in first[0].text
    assert plain(first[-1].text).startswith("train 0 % – ")


def test_depth_has_no_word_on_classes(scene_document: SceneDocument) -> None:
    document = scene_document("depth")
    assert "Class by class" not in document.text
    assert not document.find_all("svg", "class-swatch")


def test_a_domain_with_other_classes_is_compared_with_a_warning(scene_document: SceneDocument) -> None:
    text = plain(scene_document("mapped").text)
    assert "CamVid is scored on 4 classes of its own, street, clean on 19" in text
    assert "classes of its own" not in scene_document("segmentation").text


def test_problems_keep_their_units_and_words_apart(scene_document: SceneDocument) -> None:
    document = scene_document("depth_and_segmentation")
    depth, segmentation = document.find_all("section", "kind")
    assert "RMSE (m)" in depth.text
    assert "mIoU" not in depth.text
    assert "RMSE" not in segmentation.text
    assert "(m)" not in segmentation.text
    (overview,) = document.find_all("ul", "overview")
    items = [plain(item.text) for item in overview.find_all("li")]
    assert items[0].startswith("Depth completion street, clean in-domain At M = 8, Ensembling ranks errors best (AUSE)")
    assert "predicts best (mIoU)" in items[1]


def test_a_page_of_one_problem_has_no_overview(scene_document: SceneDocument) -> None:
    assert not scene_document("segmentation").find_all("ul", "overview")
    assert not scene_document("cityscapes").find_all("ul", "overview")


def test_the_best_of_a_class_is_bold_by_the_metrics_own_direction() -> None:
    names = ["a", "b"]
    first = with_classes({"iou_per_class": [0.5, 0.2], "nll_per_class": [0.5, 0.2]}, names)
    second = with_classes({"iou_per_class": [0.4, 0.2], "nll_per_class": [0.4, 0.2]}, names, "MC-dropout")
    iou, nll = class_tables([first, second])
    assert [cell.best for cell in iou.cells] == [True, False, False, False]
    assert [cell.best for cell in nll.cells] == [False, True, False, False]


def test_shares_are_a_column_and_no_metric() -> None:
    entry = with_classes({"share_per_class": [0.75, 0.25], "iou_per_class": [0.5, None]}, ["a"])
    assert per_class_names([entry]) == ["iou_per_class"]
    (table,) = class_tables([entry])
    shares = [(row.name.label, plain(row.cells[0].value)) for row in table.blocks[0].rows]
    assert shares == [("a", "75 %"), ("class 1", "25 %")]


def test_a_metric_of_classes_that_is_new_or_undefined_breaks_nothing(run_document: RunDocument) -> None:
    results = fake.small("categorical")
    for stats in fake.score(results, "ensemble", "wild").summary.values():
        stats["sharpness_per_class"] = ClassStat(mean=[1.5] * 19, std=None, n=8)
        stats["nll_per_class"] = ClassStat(mean=[None] * 19, std=None, n=8)
    text = plain(run_document(results).text)
    assert "sharpness" in text
    assert "By IoU, light" in text


@pytest.mark.parametrize(("mean", "layers"), [([], 0), ([None] * 3, 1)])
def test_an_empty_metric_of_classes_breaks_nothing(mean: list[None], layers: int) -> None:
    results = small([0.9, 0.5, 0.7], [0.8, 0.6, 0.2])
    results.scores[1].summary[2]["iou_per_class"] = ClassStat(mean=[*mean], std=None, n=2)
    found = section_of(results)
    assert len(found["layers"] if found else ()) == layers


def test_markdown_has_the_iou_of_every_class() -> None:
    text = render_markdown(read_runs([fake.small("categorical")]))
    assert text.count("#### IoU per class at M\u00a0=\u00a02") == 2
    assert "| class | share of pixels | Ensembling | MC-dropout |" in text
    assert re.search(r"\| road \| 30\u00a0% \| \*\*0\.\d+ ± 0\.\d+\*\* \| 0\.\d+ ± 0\.\d+ \|", text)


def test_ours_by_the_published_convention_come_without_the_warning(run_document: RunDocument) -> None:
    results = fake.cityscapes()
    assert "different conventions" in run_document(results).text
    assert "different conventions" not in run_document(results.model_copy(update={"convention": "gustafsson2020"})).text
