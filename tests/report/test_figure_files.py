"""Every figure of a page as a file: which there are, what they say, and what is in a file."""

import io
import re
import sys
from functools import cache
from html import unescape
from xml.etree.ElementTree import fromstring

import fake
import numpy as np
import pytest
from PIL import Image

from epibench.errors import InputError
from epibench.report.figure_files import FigureFile, figures_of, slug
from epibench.report.run_page import render_run_page
from epibench.report.runs import read_runs

ENSEMBLE, DROPOUT = "#0072b2", "#d55e00"  # of the light theme


@cache
def figures(scene: str) -> dict[str, FigureFile]:
    found = list(figures_of(read_runs(fake.SCENES[scene]())))
    assert len({one.name for one in found}) == len(found)
    return {one.name: one for one in found}


def texts(one: FigureFile) -> list[str]:
    """All words of a figure, as its SVG file has them."""
    root = fromstring(one.content("svg"))
    return ["".join(text.itertext()).strip() for text in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("scene", ["depth", "segmentation", "regression", "classification"])
def test_every_chart_of_the_page_has_a_file(scene: str) -> None:
    results = fake.SCENES[scene]()
    charts = re.findall(r'<svg viewBox="[^"]*" role="img" aria-label="([^"]*)" class="chart"', render_run_page(results))
    wanted = {unescape(text) for text in charts}
    bars = {text for text in wanted if text.startswith("Colours:")}  # of maps, whose colours the index says
    assert len(wanted) > 20
    assert wanted - {one.description for one in figures(scene).values()} == bars


def test_lines_bands_and_dashes_are_those_of_the_page() -> None:
    axes = figures("two_gaussian")["wild-rmse"].draw()
    lines = [line for line in axes.lines if line.get_linewidth() == 1.5 and line.get_marker() == ""]  # 2 px
    assert [line.get_color()[:3] for line in lines] == [pytest.approx(rgb(one)) for one in (ENSEMBLE, DROPOUT)]
    assert [line.is_dashed() for line in lines] == [False, True]
    assert len(axes.collections) == 2  # bands


def rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))


def test_a_figure_says_what_it_shows_and_names_its_lines() -> None:
    found = texts(figures("depth")["clean-ause"])
    assert {"AUSE ↓ · street, clean", "Ensembling", "MC-dropout", "members M"} <= set(found)


def test_lines_of_draws_are_not_named_one_by_one() -> None:
    found = texts(figures("depth")["clean-coverage-of-every-draw-ensembling-m2"])
    assert not any(text.startswith("draw ") for text in found)
    assert "8 draws" in found


def test_each_m_has_its_own_file() -> None:
    for m in fake.DENSE_MEMBERS:
        assert f"M\u00a0=\u00a0{m}" in " ".join(texts(figures("depth")[f"clean-coverage-m{m}"]))
    curves = {figures("depth")[f"clean-coverage-m{m}"].content("svg") for m in fake.DENSE_MEMBERS}
    assert len(curves) == len(fake.DENSE_MEMBERS)


def test_reliability_has_bars_and_their_shares() -> None:
    axes = figures("segmentation")["clean-reliability-ensembling-m8"].draw()
    bars = [bar for bar in axes.patches if bar.get_height()]
    shares = [text.get_text() for text in axes.texts if re.fullmatch(r"<?\d+", text.get_text())]
    assert len(shares) == 10
    assert {bar.get_y() < 0 for bar in bars} == {True, False}  # below the axes, and in them


def test_a_single_m_is_drawn_as_a_dot_for_each_method() -> None:
    axes = figures("single")["no-domain-given-rmse"].draw()
    assert sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() == "o") == 1
    assert axes.get_xlabel() == "M\u00a0=\u00a04"


def test_pictures_of_an_image_are_one_figure_with_titles() -> None:
    name = next(name for name in figures("segmentation") if "-image-" in name)
    axes = figures("segmentation")[name].draw()
    assert len(axes.images) >= 2 + 3 * 3  # image and truth; classes, errors and uncertainty of each method
    assert {"Image", "True classes", "Uncertainty (entropy)", "road"} <= {text.get_text() for text in axes.texts}
    for left, right, bottom, top in (image.get_extent() for image in axes.images):
        assert 0 <= left < right <= axes.get_xlim()[1]
        assert 0 <= top < bottom <= axes.get_ylim()[0]


def test_damaged_pictures_leave_a_gap() -> None:
    name = next(name for name in figures("damaged_class_pictures") if "-image-" in name)
    assert "no picture" in {text.get_text() for text in figures("damaged_class_pictures")[name].draw().texts}


def test_toy_pictures_hold_data_truth_and_the_predictive() -> None:
    axes = figures("regression")["picture-sgld-m-16-example-1"].draw()
    assert 108 in [len(line.get_xdata()) for line in axes.lines]  # the data
    assert len(axes.collections) == 4  # ± 1 and 2 std of the predictive and of the truth
    one, other = (figures("regression")[f"picture-sgld-m-16-example-{number}"].content("svg") for number in (1, 2))
    assert one != other
    assert len(figures("classification")["picture-sgld-m-16-example-1"].draw().images) == 1


@pytest.mark.parametrize(
    ("parts", "name"),
    [(("wild-5", "RMSE (m)"), "wild-5-rmse-m"), (("M = 4",), "m-4"), (("../../etc/x",), "etc-x"), (("", "é"), "")],
)
def test_names_of_files_are_plain(parts: tuple[str, ...], name: str) -> None:
    assert slug(*parts) == name


def test_hostile_results_have_plain_names_and_are_drawn() -> None:
    for name in (*figures("hostile_scores"), *figures("toy_hostile")):
        assert re.fullmatch(r"[a-z0-9-]+", name)
    for one in (next(iter(figures("hostile_scores").values())), next(iter(figures("toy_hostile").values()))):
        assert "<script" not in one.content("svg").decode()


def test_names_that_look_like_formulas_are_drawn_as_they_are() -> None:
    files = [fake.scored_file(f"{i}.zarr", method=name) for i, name in enumerate((r"$\frac{", "_hidden"))]
    runs = read_runs([fake.results(*files)])
    found = texts({one.name: one for one in figures_of(runs)}["wild-rmse"])
    assert {r"$\frac{", "_hidden"} <= set(found)


@pytest.mark.parametrize(
    ("scene", "name"),
    [
        ("depth", "clean-ause"),
        ("segmentation", "clean-reliability-ensembling-m8"),
        ("classification", "picture-reference"),
    ],
)
def test_a_pdf_has_one_page_with_embedded_fonts_and_no_date(scene: str, name: str) -> None:
    content = figures(scene)[name].content("pdf")
    assert content.startswith(b"%PDF-")
    assert content.count(b"/Type /Page ") == 1
    assert b"/FontFile2" in content
    assert b"/Type3" not in content  # which some publishers refuse
    assert content == figures(scene)[name].content("pdf")


def test_svg_files_are_the_same_every_time_and_say_what_they_show() -> None:
    one = figures("depth")["clean-ause"]
    content = one.content("svg")
    assert content == one.content("svg")
    assert one.description in "".join(fromstring(content).itertext())
    assert b"Arial" in content  # named for other machines, whichever font was found here


def test_a_png_is_large_enough_for_print() -> None:
    pixels = np.asarray(Image.open(io.BytesIO(figures("depth")["clean-ause"].content("png"))).convert("RGB"))
    assert pixels.shape[1] == pytest.approx(380 / 96 * 300, abs=1)
    assert tuple(pixels[0, 0]) == (255, 255, 255)
    assert np.abs(pixels.astype(int) - [0, 114, 178]).sum(axis=2).min() == 0  # the colour of the first method


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    message = r"^figures: matplotlib is not installed\. Fix: pip install 'epibench\[figures\]'$"
    with pytest.raises(InputError, match=message):
        figures("depth")["clean-ause"].content("pdf")
    with pytest.raises(InputError, match=message):
        fake.depth().plot("ause", domain="wild")
