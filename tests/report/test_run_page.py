import base64
import copy
import hashlib
import re
from collections.abc import Callable
from pathlib import Path

import fake_run
import pytest
from html_tree import Node, Rendered
from page_checks import assert_accessible

from epibench.report import write_run_page
from epibench.report.numbers import measured
from epibench.report.runs import VIEWS, View, kl_entries, methods_of, read_runs
from epibench.results import Stat

RunDocument = Callable[..., Node]
SceneDocument = Callable[[str], Node]
SPACES = str.maketrans({"\u00a0": " ", "\u2007": " ", "\u2008": " ", "−": "-"})
MOST_CHARACTERS = 1_500_000


def plain(text: str) -> str:
    """Text with ordinary spaces and minus signs."""
    return re.sub(r"\s+", " ", text.translate(SPACES)).strip()


def view_of(document: Node, key: str) -> Node:
    """The part of the page that shows one view of the KL."""
    (found,) = [n for n in document.find_all("div", "layer") if n.attributes.get("data-m") == key]
    return found


def rows(table: Node) -> dict[str, list[str]]:
    """The cells of each row by the label at its head."""
    lines = [tr for body in table.find_all("tbody") for tr in body.find_all("tr") if tr.find_all("td")]
    return {
        plain(tr.find_all("span", "ellipsis")[0].text): [plain(td.text) for td in tr.find_all("td")] for tr in lines
    }


def test_the_page_is_well_formed_and_its_ids_are_its_own(rendered_run: Rendered) -> None:
    document = rendered_run.document  # the reader refuses tags that close out of order
    ids = [n.attributes["id"] for n in document.walk() if "id" in n.attributes]
    assert len(ids) == len(set(ids))


def test_is_accessible(rendered_run: Rendered) -> None:
    document = rendered_run.document
    assert_accessible(document)


def test_needs_no_network(rendered_run: Rendered) -> None:
    document = rendered_run.document
    assert not [n for n in document.walk() if n.tag in ("link", "img", "iframe", "object", "embed")]
    targets = [n.attributes["href"] or "" for n in document.walk() if "href" in n.attributes]
    assert all(target.startswith(("#", "data:image/png;base64,")) for target in targets)
    assert not re.search(r"url\(|@import", document.find_all("style")[0].text)


def test_links_lead_somewhere(rendered_run: Rendered) -> None:
    document = rendered_run.document
    ids = {n.attributes.get("id") for n in document.walk()}
    targets = [n.attributes["href"] or "" for n in document.walk() if n.tag in ("a", "use")]
    assert {target[1:] for target in targets} <= ids


def test_the_policy_names_the_script_by_its_hash(rendered_run: Rendered) -> None:
    (script,) = rendered_run.document.find_all("script")
    digest = base64.b64encode(hashlib.sha256(script.text.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in rendered_run.page


def test_text_from_files_is_escaped(scene_document: SceneDocument) -> None:
    document = scene_document("hostile")
    assert len(document.find_all("script")) == 1
    assert not [name for n in document.walk() for name in n.attributes if name.startswith("on")]
    assert "<script>alert(1)</script>\"'&\ufffd?" in document.find_all("body")[0].text


@pytest.mark.parametrize("scene", ["regression", "classification"])
def test_one_run_stays_small(scene: str, tmp_path: Path) -> None:
    assert write_run_page(fake_run.SCENES[scene](), tmp_path / "x.html").stat().st_size < MOST_CHARACTERS


def test_results_are_only_read(tmp_path: Path) -> None:
    results = fake_run.regression()
    before = copy.deepcopy(results)
    write_run_page([results], tmp_path / "report.html")
    assert results == before


def test_questions_come_in_order(scene_document: SceneDocument) -> None:
    headings = [plain(h.text) for h in scene_document("regression").find_all("h3")]
    assert headings == [
        "Which method is closest to the reference?",
        "What the methods predict",
        "Beside what was published",
        "On fresh test data",
        "Reference and cost",
    ]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.key)
def test_the_table_of_each_view_holds_its_numbers(view: View, scene_document: SceneDocument) -> None:
    results = fake_run.classification()
    (table,) = view_of(scene_document("classification"), view.key).find_all("table", "kl")
    floor, *cells = rows(table)["SGHMC"]
    stats = fake_run.kl_leaf(results, "sghmc", view)
    assert [cell.removesuffix(" ≈") for cell in cells] == [plain(measured(s.mean, s.std)) for s in stats.values()]
    (known,) = {entry.floor for entry in kl_entries(methods_of(read_runs([results])), view)}
    assert float(floor.replace("×10⁻⁵", "e-5")) == pytest.approx(known, rel=0.06)


def test_the_pooled_kl_over_the_grid_is_seen_first(scene_document: SceneDocument) -> None:
    layers = scene_document("regression").find_all("div", "layer")
    assert [n.attributes["data-m"] for n in layers if "chosen" in n.classes] == ["pooled-reference_to_method-grid"]
    assert len(layers) == 8


def test_the_headline_names_who_is_closest(scene_document: SceneDocument) -> None:
    view = view_of(scene_document("classification"), "pooled-reference_to_method-grid")
    assert view.find_all("p", "headline")[0].text == "Ensembling is closest"


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
    paragraphs = scene_document(scene).find_all("p", style)
    assert plain(paragraphs[0].text).startswith(verdict)


def test_published_cells_are_counted(scene_document: SceneDocument) -> None:
    (counts,) = scene_document("classification").find_all("ul", "counts")
    within, differ = (plain(item.text) for item in counts.find_all("li"))
    assert within == "18 of 23 cells within one published std"
    assert differ == "6 of 23 cells differ with p < 0.05; chance alone gives 1.2"


def test_a_published_cell_shows_both_means_and_both_judgements(scene_document: SceneDocument) -> None:
    (table,) = scene_document("regression").find_all("table", "cells")
    first = [plain(td.text) for td in table.find_all("tr")[2].find_all("td")]
    assert first[:2] == ["0.44 ± 0.22", "128"]
    assert [text.split()[-1] for text in first[-3:-1]] == ["agrees", "agrees"]
    assert re.fullmatch(r"-\d+ %, \+\d+ %", first[-1])


def test_own_data_makes_the_comparison_one_in_kind(scene_document: SceneDocument) -> None:
    said = "not on the published data: the numbers are comparable in kind only"
    assert said in plain(scene_document("classification").text)
    assert said not in plain(scene_document("regression").text)


def test_a_quick_variant_is_called_one(scene_document: SceneDocument) -> None:
    said = "This is the quick variant of toy-regression-dropout"
    assert said in plain(scene_document("dropout_rates").text)


def test_a_recipe_of_ones_own_has_no_published_part(run_document: RunDocument) -> None:
    document = run_document(fake_run.run(name="mine", members=(8, 16)))
    assert "Beside what was published" not in document.text


def test_metrics_are_shown_for_each_domain(scene_document: SceneDocument) -> None:
    headings = [plain(h.text) for h in scene_document("regression").find_all("h4")]
    assert [h for h in headings if "training region" in h] == [
        "Inside the training region",
        "Outside the training region",
    ]


def test_point_estimates_are_levels_over_the_m_of_the_others(scene_document: SceneDocument) -> None:
    view = view_of(scene_document("regression"), "pooled-reference_to_method-grid")
    (level,) = [g for g in view.find_all("g", "level") if g.attributes["data-label"] == "MAP"]
    assert len(level.find_all("path", "marker")) == 1


def test_a_level_far_off_is_named_and_does_not_stretch_the_axis(run_document: RunDocument) -> None:
    results = fake_run.run(shapes={"map": (40_000.0, 0.0, 0.1), "ensemble": (0.3, 0.1, 0.1)}, members=(8, 16))
    view = view_of(run_document(results), "pooled-reference_to_method-grid")
    (figure,) = view.find_all("figure")
    assert not figure.find_all("g", "level")
    assert plain(figure.find_all("text", "remark")[0].text).startswith("↑ MAP: 3")


def test_lines_that_pictures_share_are_styled_without_ancestors(rendered_run: Rendered) -> None:
    # Rules that name an ancestor do not reach what <use> shows: lines would be black areas.
    style = rendered_run.document.find_all("style")[0].text
    assert not re.search(r"[^\s{},] \.(dots|truth|outline)\b", style)


def test_several_runs_share_a_page_with_labels_of_their_own(scene_document: SceneDocument) -> None:
    document = scene_document("two_runs")
    keys = [button.attributes["data-key"] for button in document.find_all("button")]
    assert "Ensembling · toy-regression" in keys
    assert "Ensembling · momentum" in keys


def test_runs_of_one_recipe_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    pair = [fake_run.momentum(), fake_run.run(name="toy-regression-momentum", members=(8, 16), seed=1)]
    text = write_run_page(pair, tmp_path / "x.html", ["first", "second"]).read_text(encoding="utf-8")
    assert "Ensembling · first" in text
    assert "Ensembling · second" in text
    assert "toy-regression-momentum (first)" in text


def test_runs_on_different_data_are_compared_with_a_warning(scene_document: SceneDocument) -> None:
    document = scene_document("two_runs")
    assert "The runs were trained on different data" in document.find_all("p", "warning")[0].text


def test_problems_have_sections_of_their_own(scene_document: SceneDocument) -> None:
    document = scene_document("two_problems")
    titles = [plain(section.find_all("h2")[0].text) for section in document.find_all("section", "kind")]
    assert titles == ["Toy regression 7 methods", "Toy classification 4 methods"]


def test_a_method_looks_alike_on_every_page(scene_document: SceneDocument) -> None:
    def style(document: Node) -> list[str]:
        (button,) = [b for b in document.find_all("button") if b.attributes["data-key"] == "SGLD"]
        return button.find_all("svg")[0].classes

    assert style(scene_document("regression")) == style(scene_document("classification"))


def test_infinite_draws_are_counted(run_document: RunDocument) -> None:
    results = fake_run.classification()
    view = VIEWS[0]
    fake_run.kl_leaf(results, "sgld", view)[8] = Stat(mean=None, std=None, n=24)
    draws = results.kl_draws["sgld"][view.convention][view.direction][view.region]
    draws[8] = [None] * 3 + [0.5] * 21
    (table,) = view_of(run_document(results), view.key).find_all("table", "kl")
    assert "infinite in 3 of 24 draws" in rows(table)["SGLD"][1]


def test_a_run_that_stopped_early_still_makes_a_page(scene_document: SceneDocument) -> None:
    text = plain(scene_document("bare").text)
    assert "No finite KL" in text
    assert "The run was compared with no reference." in text


def test_a_run_without_kls_says_so_first(run_document: RunDocument) -> None:
    document = run_document(fake_run.bare().model_copy(update={"kl": {}}))
    assert "no reference" in document.find_all("p", "warning")[0].text


def test_a_run_whose_only_method_failed_says_so(scene_document: SceneDocument) -> None:
    warnings = [plain(p.text) for p in scene_document("failed").find_all("p", "warning")]
    assert "sgld failed: the loss is not finite" in warnings
    assert "No method was finished, so there are no numbers." in warnings
    assert not [text for text in warnings if "There is no KL" in text]


def test_settings_versions_and_the_command_are_there(scene_document: SceneDocument) -> None:
    footer = plain(scene_document("regression").find_all("footer")[0].text)
    assert "epibench run RUN/recipe.json --out NEW" in footer
    assert "ensemble.learning_rate0.001" in footer
    assert "commit3f2a91c" in footer
