"""Figures that stand alone: every one of the page, with its styles written out, as SVG and as PDF."""

import re
import sys
import zlib
from functools import cache
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring

import fake
import numpy as np
import pytest

from epibench.errors import InputError
from epibench.report import pdf
from epibench.report.figure_files import FigureFile, figures_of, slug
from epibench.report.run_page import render_run_page
from epibench.report.runs import read_runs
from epibench.report.standalone import Drawing, standalone, style_rules

SVG = "{http://www.w3.org/2000/svg}"
ENSEMBLE, DROPOUT = "#0072b2", "#d55e00"  # of the light theme


@cache
def figures(scene: str) -> dict[str, FigureFile]:
    found = list(figures_of(read_runs(SCENES[scene]())))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


SCENES = {
    "depth": lambda: [fake.depth()],
    "segmentation": lambda: [fake.segmentation()],
    "regression": lambda: [fake.regression()],
    "classification": lambda: [fake.classification()],
    "damaged": lambda: [fake.damaged_class_pictures()],
    "hostile_run": lambda: [fake.toy_hostile()],
    **{name: lambda make=make: [make()] for name, make in fake.SCORE_SCENES.items()},  # type: ignore[misc]
}


def elements(drawing: Drawing, tag: str) -> list[Element]:
    return list(fromstring(drawing.svg).iter(SVG + tag))


def texts(drawing: Drawing) -> list[str]:
    return [one.text or "" for one in elements(drawing, "text")]


@pytest.mark.parametrize("scene", SCENES)
def test_drawings_need_no_style_sheet_and_refer_to_nothing_outside(scene: str) -> None:
    assert figures(scene)
    for figure in figures(scene).values():
        text = figure.drawing.svg
        assert "var(" not in text
        assert not re.search(r"<style|<script|<use| class=| data-", text)
        assert all(href.startswith("data:image/") for href in re.findall(r'href="([^"]*)"', text))
        for one in fromstring(text).iter():
            assert "nan" not in str([value for name, value in one.attrib.items() if name != "href"])
            assert one.get("display") != "none"


def test_colours_and_dashes_are_those_of_the_page() -> None:
    drawing = figures("two_gaussian")["wild-rmse"].drawing
    lines = [one for one in elements(drawing, "path") if one.get("stroke-width") == "2"]
    assert [one.get("stroke") for one in lines] == [ENSEMBLE, DROPOUT]
    assert [one.get("stroke-dasharray") for one in lines] == [None, "7 3"]
    bands = [one for one in elements(drawing, "path") if one.get("opacity") == "0.16"]
    assert [one.get("fill") for one in bands] == [ENSEMBLE, DROPOUT]


def test_the_dark_theme_and_print_rules_are_not_read() -> None:
    declared = {value for rule in style_rules() for value in rule.declarations.values()}
    assert "#0072b2" in declared
    assert "#4aa8e0" not in declared  # the same colour in the dark


def test_a_figure_says_what_it_shows_and_names_its_lines() -> None:
    found = texts(figures("depth")["clean-ause"].drawing)
    assert found[0] == "AUSE ↓ · street, clean"
    assert {"Ensembling", "MC-dropout", "members M"} <= set(found)


def test_lines_of_draws_are_not_named_one_by_one() -> None:
    found = texts(figures("depth")["clean-coverage-of-every-draw-ensembling-m2"].drawing)
    assert not any(text.startswith("draw ") for text in found)
    assert "8 draws" in found


def test_each_m_has_its_own_file() -> None:
    for m in fake.DENSE_MEMBERS:
        drawing = figures("depth")[f"clean-coverage-m{m}"].drawing
        assert f"M\u00a0=\u00a0{m}" in " ".join(texts(drawing))
    curves = {figures("depth")[f"clean-coverage-m{m}"].drawing.svg for m in fake.DENSE_MEMBERS}
    assert len(curves) == len(fake.DENSE_MEMBERS)


def charts_of_the_page(page: str) -> set[str]:
    """The descriptions of all charts of a page."""
    return set(re.findall(r'<svg viewBox="[^"]*" role="img" aria-label="([^"]*)" class="chart"', page))


@pytest.mark.parametrize("scene", ["depth", "segmentation", "regression", "classification"])
def test_every_chart_of_the_page_has_a_file(scene: str) -> None:
    results = SCENES[scene]()
    wanted = charts_of_the_page(render_run_page(results))
    made = {fromstring(one.drawing.svg).get("aria-label") for one in figures(scene).values()}
    unescaped = {text.replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">") for text in wanted}
    bars = {text for text in unescaped if text.startswith("Colours:")}  # of maps, whose colours the index says
    assert len(unescaped) > 20
    assert unescaped - made == bars


def test_pictures_of_an_image_are_one_drawing_with_titles() -> None:
    name = next(name for name in figures("segmentation") if "-image-" in name)
    drawing = figures("segmentation")[name].drawing
    images = len(elements(drawing, "image"))
    assert images >= 2 + 3 * 3  # image and truth; classes, errors and uncertainty of each method
    assert {"Image", "True classes", "Uncertainty (entropy)", "road"} <= set(texts(drawing))
    width, height = drawing.size
    for text in elements(drawing, "text"):
        assert 0 <= float(text.get("y", 0)) <= height
    assert all(float(one.get("width", 0)) <= width for one in elements(drawing, "image"))


def test_what_pictures_share_is_in_each_of_them() -> None:
    drawing = figures("regression")["picture-sgld-m-16-example-1"].drawing
    dots = [one for one in elements(drawing, "path") if one.get("stroke-linecap") == "round"]
    assert len(dots) == 1
    assert dots[0].get("d", "").count("M") == 108
    assert "h0M" not in dots[0].get("d", "")  # without length, some programs draw nothing
    assert elements(drawing, "clipPath")


def test_examples_differ() -> None:
    one, other = (figures("regression")[f"picture-sgld-m-16-example-{number}"].drawing.svg for number in (1, 2))
    assert one != other


def test_a_single_m_is_drawn_as_a_dot_for_each_method() -> None:
    drawing = figures("single")["no-domain-given-rmse"].drawing
    markers = [one for one in elements(drawing, "path") if "translate" in one.get("transform", "")]
    assert len(markers) == 2  # in the chart and in the key
    assert "M\u00a0=\u00a04" in texts(drawing)


@pytest.mark.parametrize(
    ("parts", "name"),
    [(("wild-5", "RMSE (m)"), "wild-5-rmse-m"), (("M = 4",), "m-4"), (("../../etc/x",), "etc-x"), (("", "é"), "")],
)
def test_names_of_files_are_plain(parts: tuple[str, ...], name: str) -> None:
    assert slug(*parts) == name


def test_names_of_files_of_hostile_results_are_plain() -> None:
    for name in (*figures("hostile_scores"), *figures("hostile_run")):
        assert re.fullmatch(r"[a-z0-9-]+", name)


def test_a_long_title_is_broken_and_nothing_overlaps() -> None:
    chart = '<svg viewBox="0 0 200 100" role="img" aria-label="x" class="chart"><g class="axes"/></svg>'
    drawing = standalone(chart, "a title of many words that is far too long for one line of so small a drawing")
    lines = [one for one in elements(drawing, "text") if one.get("font-weight") == "bold"]
    assert len(lines) > 2
    assert drawing.size[1] > 100 + 2 * 16


def test_it_saves_by_the_ending_of_the_name(tmp_path: Path) -> None:
    drawing = figures("two_gaussian")["wild-rmse"].drawing
    assert drawing.save(tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    assert drawing.save(str(tmp_path / "a.pdf")).read_bytes().startswith(b"%PDF-")
    with pytest.raises(InputError, match=r"a\.png: a figure is saved as \.svg or \.pdf$"):
        drawing.save(tmp_path / "a.png")


def media_box(content: bytes) -> list[float]:
    found = re.search(rb"/MediaBox \[ ([\d. ]+) \]", content)
    assert found is not None
    return [float(number) for number in found[1].split()]


def page_content(content: bytes) -> bytes:
    """The largest stream of a file that is no font and no picture: what is drawn on the page."""
    streams = re.findall(rb"<<([^>]*)>>\s*stream\r?\n(.*?)\r?\nendstream", content, re.DOTALL)
    shown = [data for head, data in streams if b"/Length1" not in head and b"/Subtype" not in head]
    return max((zlib.decompress(data) for data in shown if data[:1] == b"x"), key=len)


@pytest.mark.parametrize(
    ("scene", "name"),
    [
        ("depth", "clean-ause"),
        ("segmentation", "clean-reliability-ensembling-m8"),
        ("regression", "picture-sgld-m-16-example-1"),
        ("classification", "picture-sgld-m-16-example-1"),
        ("regression", "kl-reference-to-method-grid-pooled"),
    ],
)
def test_a_pdf_has_one_page_of_the_size_of_the_drawing(scene: str, name: str) -> None:
    drawing = figures(scene)[name].drawing
    content = pdf.pdf_bytes(drawing)
    assert content.rstrip().endswith(b"%%EOF")
    assert content.count(b"/Type /Page ") == 1
    width, height = drawing.size
    assert media_box(content) == pytest.approx([0, 0, 0.75 * width, 0.75 * height], abs=0.1)
    assert b"/FontFile2" in content  # fonts are embedded, and not as Type 3, which some publishers refuse
    assert b"/Type3" not in content


def test_the_same_drawing_gives_the_same_pdf() -> None:
    drawing = figures("depth")["clean-ause"].drawing
    assert pdf.pdf_bytes(drawing) == pdf.pdf_bytes(drawing)


def test_lines_of_a_pdf_lie_where_the_drawing_has_them() -> None:
    chart = (
        '<svg viewBox="0 0 100 100" role="img" aria-label="x" class="chart"><g transform="translate(10,20)">'
        '<g class="series s0"><path class="line" d="M0,0l10,20 h5"/></g></g></svg>'
    )
    drawing = standalone(chart, "", names=False)
    drawn = page_content(pdf.pdf_bytes(drawing)).decode("latin-1")
    # With a margin of 10: (20, 30), (30, 50), (35, 50) from the top of 120 pixels, in points from the bottom.
    points = [[0.75 * x, 0.75 * (120 - y)] for x, y in ((20, 30), (30, 50), (35, 50))]
    numbers = np.array([[float(x), float(y)] for x, y in re.findall(r"^([\d.]+) ([\d.]+) [ml]$", drawn, re.MULTILINE)])
    for point in points:
        assert np.abs(numbers - point).sum(axis=1).min() < 0.01
    assert re.search(r" 0 0\.44\d+ 0\.69\d+ RG ", drawn)  # the colour of the first style


def test_pdf_without_matplotlib_is_refused_in_one_line(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_pdf", None)
    with pytest.raises(InputError, match=r"^PDF figures need the package matplotlib: pip install 'epibench\[pdf\]'$"):
        pdf.pdf_bytes(figures("depth")["clean-ause"].drawing)
