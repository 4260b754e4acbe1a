import copy
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import fake_results
import pytest
from html_tree import Node, Rendered
from page_checks import assert_accessible

from epibench.report import write_score_page
from epibench.report.metric_info import metric_info
from epibench.results import ScoreResults, Stat

DocumentOf = Callable[[ScoreResults], Node]
SPACES = str.maketrans({"\u00a0": " ", "\u2007": " ", "\u2008": " ", "−": "-"})


def plain(text: str) -> str:
    """Text with ordinary spaces and minus signs."""
    return re.sub(r"\s+", " ", text.translate(SPACES)).strip()


def number(text: str) -> float:
    mantissa, _, exponent = plain(text).replace(",", "").partition("×10")
    return float(mantissa) * 10 ** int(exponent.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0)


def cells(document: Node) -> dict[tuple[str, str, int], Node]:
    """Every cell of the metric tables by metric title, file label and M."""
    found = {}
    for table in document.find_all("table", "metrics"):
        if "classes" in table.classes:
            continue
        (head,) = table.find_all("thead")
        columns = [int(plain(th.text).removeprefix("M = ")) for th in head.find_all("th")[1:]]
        for body in table.find_all("tbody"):
            title = plain(body.find_all("span", "name")[0].text)
            for row in body.find_all("tr")[1:]:
                label = plain(row.find_all("span", "ellipsis")[0].text)
                for m, cell in zip(columns, row.find_all("td"), strict=True):
                    found[title, label, m] = cell
    return found


def test_returns_the_path_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = write_score_page(fake_results.single(), tmp_path / "new" / "folder")
    assert path == tmp_path / "new" / "folder" / "score.html"
    assert [p.name for p in path.parent.iterdir()] == ["score.html"]


def test_a_failed_write_keeps_the_old_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_score_page(fake_results.single(), tmp_path)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        write_score_page(fake_results.two_gaussian(), tmp_path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["score.html"]


def test_results_are_only_read(tmp_path: Path) -> None:
    results = fake_results.three_categorical()
    before = copy.deepcopy(results)
    write_score_page(results, tmp_path)
    assert results == before


def test_html_and_svg_are_well_formed(rendered: Rendered) -> None:
    document = rendered.document  # the reader refuses tags that close out of order
    drawings = re.findall(r"<svg.*?</svg>(?!</svg>)", rendered.page, flags=re.DOTALL)
    assert len(drawings) > 10
    for drawing in drawings:
        ElementTree.fromstring(drawing)
    ids = [n.attributes["id"] for n in document.walk() if "id" in n.attributes]
    assert len(ids) == len(set(ids))


def test_is_accessible(rendered: Rendered) -> None:
    document = rendered.document
    assert_accessible(document)
    assert all(svg.find_all("title") for svg in document.find_all("svg", "chart"))


def test_needs_no_network(rendered: Rendered) -> None:
    document = rendered.document
    assert not [n for n in document.walk() if n.tag in ("link", "img", "iframe", "object", "embed")]
    assert not [n for n in document.walk() if "src" in n.attributes]
    assert all((a.attributes["href"] or "").startswith("#") for a in document.find_all("a"))
    assert not re.search(r"url\(|@import", document.find_all("style")[0].text)


def test_links_lead_somewhere(rendered: Rendered) -> None:
    document = rendered.document
    ids = {n.attributes.get("id") for n in document.walk()}
    assert {(a.attributes["href"] or "")[1:] for a in document.find_all("a")} <= ids


def test_text_from_files_is_escaped(document_of: DocumentOf) -> None:
    document = document_of(fake_results.hostile())
    assert len(document.find_all("script")) == 1
    assert "alert" not in document.find_all("script")[0].text
    assert not document.find_all("img")
    assert not [name for n in document.walk() for name in n.attributes if name.startswith("on")]
    body = document.find_all("body")[0].text
    assert "<script>alert(1)</script>\"'&\ufffd?" in body
    assert "</style><img src=x onerror=alert(1)>" in body


@pytest.mark.parametrize("scene_name", ["two_gaussian", "three_categorical", "crowded"])
def test_tables_hold_the_numbers(scene_name: str, document_of: DocumentOf) -> None:
    results = fake_results.SCENES[scene_name]()
    found = cells(document_of(results))
    checked = 0
    for file in results.files:
        for m, metrics in file.summary.items():
            for name, stat in metrics.items():
                companion = re.search("_bound|_standard_error|_infinite|_per_class", name)
                if companion or not isinstance(stat, Stat) or stat.mean is None:
                    continue
                info = metric_info(name)
                title = f"{info.title} ({file.unit})" if info.in_unit else info.title
                cell = found[title, file.method or "", m]
                shown, spread = cell.find_all("span", "value")[0].text, cell.find_all("span", "spread")[0].text
                bound = metrics.get(f"{name}_bound", Stat(mean=0.0, std=None, n=1)).mean
                assert isinstance(bound, float)
                tolerance = max(bound, stat.std / 10 if stat.std else abs(stat.mean) * 1e-3)
                assert number(shown) == pytest.approx(stat.mean, abs=tolerance), (name, m)
                if stat.std:
                    assert number(spread.strip("±°≈< ")) == pytest.approx(stat.std, rel=0.1, abs=bound)
                else:
                    assert spread.strip("≈ ") == ""
                checked += 1
    assert checked > 80


def test_best_is_bold_in_its_direction(document_of: DocumentOf) -> None:
    found = cells(document_of(fake_results.two_gaussian()))
    assert "best" in found["AUSE", "ensemble", 16].classes
    assert "best" not in found["AUSE", "mc_dropout", 16].classes
    assert not any("best" in cell.classes for (title, *_), cell in found.items() if "interval length" in title)
    found = cells(document_of(fake_results.three_categorical()))
    assert "best" in found["mIoU", "ensemble", 16].classes


def test_an_infinite_mean_says_how_many_values_are_infinite(document_of: DocumentOf) -> None:
    document = document_of(fake_results.three_categorical())
    assert plain(cells(document)["NLL", "mc_dropout", 1].text) == "infinite 1,287 values"


def test_everything_undefined_still_makes_a_page(document_of: DocumentOf) -> None:
    results = fake_results.two_gaussian()
    for file in results.files:
        file.curves = {}
        fake_results.undefined(file)
    assert "No values" in document_of(results).text


def test_one_m_shows_values_and_no_lines_over_m(document_of: DocumentOf) -> None:
    document = document_of(fake_results.single())
    assert "Metrics over M" not in document.text
    assert not document.find_all("fieldset")
    mae = fake_results.single().files[0].summary[4]["mae"]
    shown = [number(p.text) for p in document.find_all("p", "big")]
    assert mae.mean == pytest.approx(shown[3], rel=1e-3)
    assert "from one draw" in document.text


def test_one_m_and_several_files_show_dots(document_of: DocumentOf) -> None:
    document = document_of(fake_results.mixed())
    section = document.find_all("section", "kind")[1]
    assert len(section.find_all("svg", "strip")) >= 2 * 3


def test_kinds_have_sections_of_their_own(document_of: DocumentOf) -> None:
    sections = document_of(fake_results.mixed()).find_all("section", "kind")
    assert [plain(s.find_all("h2")[0].text).split()[0] for s in sections] == ["Regression", "Classification"]
    assert "Reliability" not in sections[0].text
    assert "Coverage" not in sections[1].text


def test_classes_have_their_iou(document_of: DocumentOf) -> None:
    results = fake_results.mixed()
    (table,) = document_of(results).find_all("table", "classes")
    rows = table.find_all("tr")[1:]
    assert len(rows) == 150
    assert plain(rows[149].find_all("th")[0].text) == "class name number 149"
    mean = results.files[2].summary[8]["iou_per_class"].mean[149]
    assert number(rows[149].find_all("span", "value")[0].text) == pytest.approx(mean, abs=1e-3)


def test_a_new_metric_simply_appears(document_of: DocumentOf) -> None:
    results = fake_results.two_gaussian()
    for file in results.files:
        for metrics in file.summary.values():
            metrics["sharpness_of_tails"] = Stat(mean=7.25, std=0.5, n=16)
    document = document_of(results)
    assert "Other metrics" in [plain(h.text) for h in document.find_all("h4")]
    assert plain(cells(document)["sharpness_of_tails", "ensemble", 4].text) == "7.25 ± 0.50"


def test_companions_have_no_figure_of_their_own(document_of: DocumentOf) -> None:
    document = document_of(fake_results.two_gaussian())
    titles = [plain(n.find_all("span", "name")[0].text) for n in document.find_all("figcaption")]
    assert not [t for t in titles if re.search("bound|standard_error|infinite", t)]
    assert "Numerical error: at most 0.00014, standard error 1.1×10⁻⁶." in document.text


def test_overlap_is_said(document_of: DocumentOf) -> None:
    text = plain(document_of(fake_results.three_categorical()).text)
    assert "two draws share more than 50 % of their members (62 % at M = 16)" in text
    assert "two draws share" not in plain(document_of(fake_results.two_gaussian()).text)


def test_notes_and_different_pixels_are_said(document_of: DocumentOf) -> None:
    first = fake_results.scored_file("a", members=(1, 2), notes=["12,034 pixels had a variance of 0."])
    second = fake_results.scored_file("b", members=(1, 2))
    second.pixels.valid = 8_500_000
    text = plain(document_of(fake_results.results(first, second)).text)
    assert "12,034 pixels had a variance of 0" in text
    assert "different numbers of valid pixels (8,500,000, 9,000,000)" in text


def test_every_m_can_be_chosen(document_of: DocumentOf) -> None:
    document = document_of(fake_results.two_gaussian())
    layers = [g for g in document.find_all("g", "layer") if g.attributes.get("data-m")]
    assert {g.attributes["data-m"] for g in layers} == {"1", "2", "4", "8", "16"}
    assert {g.attributes["data-m"] for g in layers if "chosen" in g.classes} == {"16"}


def test_files_with_the_same_method_get_labels_of_their_own(document_of: DocumentOf) -> None:
    two = [fake_results.scored_file(f"{folder}/x.zarr", method="ensemble") for folder in "ab"]
    found = cells(document_of(fake_results.results(*two)))
    assert {label for _, label, _ in found} == {"ensemble (a/x.zarr)", "ensemble (b/x.zarr)"}
