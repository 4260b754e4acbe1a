"""Tables of classes: the loss of each class under a shift, and every metric of every class."""

import fake
import pytest
from page_checks import plain, texts

from epibench.metrics.info import INFOS
from epibench.report.class_section import class_section, class_tables, per_class_names
from epibench.report.entries import ClassStyles
from epibench.report.runs import problem_of, read_runs
from epibench.results import ClassStat, DomainFacts, PoolSize, Score

METRICS = ("iou", "accuracy", "ause", "ece", "brier", "nll")


def with_classes(values, names, label="Ensembling"):
    stats = {name: ClassStat(mean=[*found], std=[0.01 for _ in found], n=3) for name, found in values.items()}
    return fake.entry(label, {4: stats}, kind="categorical", pool=PoolSize(16), classes=ClassStyles(names))


def section_of(results):
    found = problem_of(read_runs([results]))
    return class_section(*([(d, found.entries[d.name]) for d in half] for half in (found.first, found.others)))


def small(inside, outside, name="iou_per_class"):
    """A run of one method whose classes have these values on the training domain and under a shift."""
    about = {"settings": {}, "kind": "categorical", "pool": PoolSize(16), "method": "ensemble"}
    names, values = ["road", "sky", "car"], {"clean": inside, "wild": outside}
    roles = {"clean": "in-domain", "wild": "shifted"}
    stats = {d: ClassStat(mean=[*v], std=None, n=2) for d, v in values.items()}
    return fake.run_results(
        problem="segmentation",
        domains={d: DomainFacts(label=d, role=role, class_names=names) for d, role in roles.items()},
        methods={"ensemble": fake.dense_facts("ensemble", (2,))},
        scores=[Score(domain=d, summary={2: {name: stat}}, **about) for d, stat in stats.items()],
    )


def table_of(results):
    """The first table, and by class: the text, the tone and the bar of its only cell, and the change."""
    (table,) = section_of(results)["layers"][0]["shown"]
    (block,) = table["table"].blocks
    return table, {row.name.label: row.cells[0] for row in block.rows}


@pytest.mark.parametrize(
    ("inside", "outside", "name", "classes", "tones", "finding"),
    [
        (
            [0.9, None, 0.7],
            [0.8, None, 0.2],
            "iou",
            "car road sky",
            "bad bad same",
            "By IoU, car and road suffer most.",
        ),
        (
            [0.1, 0.4, 0.3],
            [0.5, 0.3, 0.4],
            "ece",
            "road car sky",
            "bad bad good",
            "By ECE, road and car suffer most, sky least.",
        ),
        (
            *([0.9, 0.0, 0.7], [0.8, 0.0, 0.7], "iou", "road car sky", "bad same same"),
            "By IoU, road suffers most, car least. 1 of 3 classes have IoU 0 on clean already.",
        ),
    ],
)
def test_the_class_that_loses_most_comes_first_and_one_without_a_loss_last(
    inside, outside, name, classes, tones, finding
) -> None:
    table, cells = table_of(small(inside, outside, f"{name}_per_class"))
    assert " ".join(cells) == classes
    assert " ".join(cell.tone for cell in cells.values()) == tones
    assert table["finding"] == finding


def test_cells_have_both_values_and_a_bar_between_them() -> None:
    cell = table_of(small([0.9, 0.5, 0.7], [0.8, 0.6, 0.2]))[1]["car"]
    assert plain(cell.value) == "0.700 → 0.200"
    assert cell.bar == (0.2, 0.7)
    assert table_of(small([0.9, 0.0, 0.7], [0.8, 0.0, 0.7]))[1]["sky"].spread == ""


def test_classes_are_matched_by_their_names() -> None:
    results = small([0.9, 0.5, 0.7], [0.2, 0.6])
    results.domains["wild"].class_names = ["car", "lane"]
    cells = {name: plain(cell.value) for name, cell in table_of(results)[1].items()}
    assert cells == {"car": "0.700 → 0.200", "lane": "0.600"}


def test_without_another_domain_the_worst_class_comes_first() -> None:
    results = small([0.9, 0.5, 0.7], [0.0])
    del results.domains["wild"], results.scores[1]
    table, cells = table_of(results)
    assert list(cells) == ["sky", "car", "road"]
    assert (table["before"], table["finding"]) == (None, "")


@pytest.mark.parametrize(("mean", "layers"), [([], 0), ([None] * 3, 1)])
def test_an_empty_metric_of_classes_breaks_nothing(mean, layers) -> None:
    results = small([0.9, 0.5, 0.7], [0.8, 0.6, 0.2])
    results.scores[1].summary[2]["iou_per_class"] = ClassStat(mean=[*mean], std=None, n=2)
    assert len((section_of(results) or {"layers": ()})["layers"]) == layers


def test_every_metric_of_classes_has_a_layer_with_a_table_for_each_shift(scene_document) -> None:
    document, found = scene_document("segmentation"), section_of(fake.segmentation())
    assert [layer["title"] for layer in found["layers"]] == ["IoU", "Accuracy", "AUSE", "ECE", "Brier score", "NLL"]
    assert all(layer["meaning"] and layer["better"] for layer in found["layers"])
    assert {f"{name}_per_class" for name in (*METRICS, "share")} <= set(INFOS)
    assert "_per_class" not in document.text
    tables = document.find_all("table", "class-shift")
    assert len(tables) == len(METRICS) * 3  # shifted domains
    first = tables[0].find_all("tr")
    assert len(first) == 1 + 19
    assert all(len(row.find_all("svg", "class-swatch")) == 1 for row in first[1:])
    assert "Share of pixels" in first[0].text
    assert plain(first[-1].text).startswith("train 0 % – ")


def test_only_segmentation_has_classes_and_warns_of_other_ones(scene_document) -> None:
    depth = scene_document("depth")
    assert "Class by class" not in depth.text
    assert not depth.find_all("svg", "class-swatch")
    text = plain(scene_document("mapped").text)
    assert "CamVid is scored on 4 classes of its own, street, clean on 19" in text
    assert "classes of its own" not in scene_document("segmentation").text


def test_problems_keep_their_units_and_words_apart(scene_document) -> None:
    document = scene_document("depth_and_segmentation")
    depth, segmentation = (section.text for section in document.find_all("section", "kind"))
    assert ("RMSE (m)" in depth, "mIoU" in depth) == (True, False)
    assert "RMSE" not in segmentation
    assert "(m)" not in segmentation
    items = texts(document.find_all("ul", "overview")[0], "li")
    assert items[0].startswith("Depth completion street, clean in-domain At M = 8, Ensembling ranks errors best (AUSE)")
    assert "predicts best (mIoU)" in items[1]
    assert not scene_document("segmentation").find_all("ul", "overview")


def test_the_best_of_a_class_is_bold_by_the_metrics_own_direction() -> None:
    first = with_classes({"iou_per_class": [0.5, 0.2], "nll_per_class": [0.5, 0.2]}, ["a", "b"])
    second = with_classes({"iou_per_class": [0.4, 0.2], "nll_per_class": [0.4, 0.2]}, ["a", "b"], "MC-dropout")
    iou, nll = class_tables([first, second])
    assert [cell.best for cell in iou.cells] == [True, False, False, False]
    assert [cell.best for cell in nll.cells] == [False, True, False, False]


def test_shares_are_a_column_and_no_metric() -> None:
    entry = with_classes({"share_per_class": [0.75, 0.25], "iou_per_class": [0.5, None]}, ["a"])
    assert per_class_names([entry]) == ["iou_per_class"]
    (table,) = class_tables([entry])
    shares = [(row.name.label, plain(row.cells[0].value)) for row in table.blocks[0].rows]
    assert shares == [("a", "75 %"), ("class 1", "25 %")]


def test_a_metric_of_classes_that_is_new_or_undefined_breaks_nothing(run_document) -> None:
    results = fake.small("categorical")
    for stats in fake.score(results, "ensemble", "wild").summary.values():
        stats["sharpness_per_class"] = ClassStat(mean=[1.5] * 19, std=None, n=8)
        stats["nll_per_class"] = ClassStat(mean=[None] * 19, std=None, n=8)
    text = plain(run_document(results).text)
    assert "sharpness" in text
    assert "By IoU, light" in text


def test_ours_by_the_published_convention_come_without_the_warning(run_document) -> None:
    results = fake.cityscapes()
    assert "different conventions" in run_document(results).text
    assert "different conventions" not in run_document(results.model_copy(update={"convention": "gustafsson2020"})).text
