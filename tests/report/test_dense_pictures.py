import base64
import io
import itertools
from typing import Any

import fake
import numpy as np
import pytest
from html_tree import Node, parse_html
from PIL import Image

from epibench.report.dense_section import picture_books
from epibench.report.pictures.colours import AMOUNT, DEPTH, ColourScale, palette, scale_end, shares_uri
from epibench.report.pictures.dense import enlarged, photo_uri, read_grid, shrunk
from epibench.report.runs import domains_of, methods_of, read_runs
from epibench.results import Grid, Results


def books(results: Results) -> list[dict[str, Any]]:
    (run,) = read_runs([results])
    return picture_books(run, methods_of([run]), domains_of([run]), "book")


def titles(book: dict[str, Any], layer: int = 0) -> dict[str, list[str]]:
    return {
        row.title.replace("\u00a0", " "): [panel.title for panel in row.panels if panel.chart is not None]
        for row in book["layers"][layer]["rows"]
    }


def decoded(uri: str) -> np.ndarray:
    """The pixels of a PNG in a data URI, with their opacity: (height, width, 4)."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def image_of(chart: object) -> Node:
    return parse_html(str(chart)).find_all("image")[0]


def test_each_image_has_input_truth_and_a_row_for_each_method() -> None:
    (clean, _) = books(fake.small())
    methods = ["Predicted depth", "|Error|", "Uncertainty (std)"]
    assert titles(clean) == {
        "Input and truth": ["Image", "Sparse depth, the input", "True depth"],
        "Ensembling, M = 2": methods,
        "MC-dropout, M = 2": methods,
    }
    captions = [layer["caption"].replace("\u00a0", " ") for layer in clean["layers"]]
    assert captions == [f"street, clean, image {number}, predictions at M = 2" for number in (3, 4)]


def test_errors_are_shown_only_where_the_target_is_known() -> None:
    results = fake.dense_run(domains=("wild",), members=(1, 2))
    (book,) = books(results)
    error = decoded(image_of(book["layers"][0]["rows"][1].panels[1].chart).attributes["href"] or "")
    target = read_grid(results.domains["wild"].pictures[0].target, zero_is_none=True)
    assert target is not None
    assert np.array_equal(error[..., 3] > 0, np.isfinite(target))


def test_what_cannot_be_read_is_left_out() -> None:
    (clean,) = books(fake.damaged_pictures())
    assert titles(clean)["Input and truth"] == ["Sparse depth, the input"]
    assert titles(clean)["Ensembling, M = 2"] == ["Predicted depth"]
    assert titles(clean, 1)["Input and truth"] == ["Image", "True depth"]
    assert "MC-dropout, M = 2" not in titles(clean, 1)


def test_a_run_without_pictures_has_none() -> None:
    assert books(fake.partial()) == []


def test_a_grid_comes_back_in_its_unit() -> None:
    values = np.array([[0.0, 1.5], [20.25, 200.0]], np.float32)
    found = read_grid(fake.grid(values), zero_is_none=True)
    assert found is not None
    assert np.isnan(found[0, 0])
    assert np.allclose(found[np.isfinite(found)], [1.5, 20.25, 200.0])


@pytest.mark.parametrize("grid", [None, Grid(scale=1.0, png=""), Grid(scale=1.0, png="*"), Grid(scale=1.0, png="AAAA")])
def test_what_is_no_grid_is_none(grid: Grid | None) -> None:
    assert read_grid(grid) is None


def test_a_cut_off_picture_is_none() -> None:
    grid = fake.grid(np.ones((40, 40), np.float32))
    grid.png = base64.b64encode(base64.b64decode(grid.png)[:-30]).decode()
    assert read_grid(grid) is None


def test_a_photo_is_passed_on_with_its_type() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 2)).save(buffer, "jpeg")
    text = base64.b64encode(buffer.getvalue()).decode()
    assert photo_uri(text) == f"data:image/jpeg;base64,{text}"
    assert photo_uri('" onload="alert(1)') is None


def test_shrinking_takes_the_mean_of_what_is_known() -> None:
    values = np.array([[1.0, np.nan, 5.0, 7.0], [3.0, np.nan, 5.0, 7.0]], np.float32)
    assert shrunk(values, 2).tolist() == [[2.0, 6.0]]
    assert shrunk(values, 2, sparse=True).tolist() == [[1.0, 5.0]]
    assert shrunk(values, 4) is values


def test_single_points_are_enlarged_and_the_nearest_wins() -> None:
    values = np.full((4, 6), np.nan, np.float32)
    values[1, 1], values[1, 3] = 9.0, 2.0
    grown = enlarged(values)
    assert grown[0, 0] == 9.0
    assert grown[2, 2] == 2.0
    assert np.isnan(grown[3]).all()


def test_unknown_pixels_are_clear_and_the_ends_have_the_end_colours() -> None:
    pixels = decoded(shares_uri(np.array([[np.nan, 0.0, 1.0, 2.0]]), DEPTH))
    assert pixels[0, 0, 3] == 0
    assert (pixels[0, 1:, 3] == 255).all()
    assert pixels[0, 2, :3].tolist() == [0x44, 0x01, 0x54]
    assert pixels[0, 3].tolist() == pixels[0, 2].tolist()


@pytest.mark.parametrize("anchors", [DEPTH, AMOUNT])
def test_lightness_goes_one_way(anchors: tuple[int, ...]) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    light = np.frombuffer(palette(anchors), np.uint8).reshape(-1, 3) @ weights
    steps = np.diff(light)
    assert (steps <= 1).all() or (steps >= -1).all()


@pytest.mark.parametrize(
    ("values", "end"), [([0.3, 2.4], 3.0), ([71.0], 80.0), ([0.0], 1.0), ([np.nan], 1.0), ([], 1.0)]
)
def test_scales_end_at_round_numbers(values: list[float], end: float) -> None:
    assert scale_end(np.array(values, np.float32), 1.0) == pytest.approx(end)


@pytest.mark.parametrize("upper", [0.04, 1.0, 3.0, 80.0, 1500.0])
def test_ticks_go_from_zero_to_the_end_with_room_between(upper: float) -> None:
    ticks = [value for value, _ in ColourScale(upper, AMOUNT).ticks(380.0)]
    assert ticks[0] == 0
    assert ticks[-1] == upper
    places = [380 * (value / upper) ** 0.5 for value in ticks]
    assert min(b - a for a, b in itertools.pairwise(places)) >= 30
