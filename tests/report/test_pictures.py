"""Pictures: of depths, of classes and of toy problems, and how numbers become colours."""

import base64
import io
import itertools
import re
from typing import Any

import fake
import numpy as np
import pytest
from html_tree import Node, parse_html
from PIL import Image

from epibench.report.charts.lines import STRIPES, class_swatch
from epibench.report.charts.svg import polyline
from epibench.report.dense_section import picture_books
from epibench.report.entries import ClassStyles
from epibench.report.pictures.colours import (
    AMOUNT,
    DEPTH,
    PROBABILITY,
    ColourScale,
    data_uri,
    palette,
    scale_end,
)
from epibench.report.pictures.dense import (
    class_key,
    classes_chart,
    enlarged,
    errors_chart,
    photo_uri,
    read_classes,
    read_grid,
    shrunk,
)
from epibench.report.pictures.toy import toy_book
from epibench.report.runs import domains_of, methods_of, read_runs
from epibench.results import Grid, PictureFile, Results

STYLES = ClassStyles(["road", "sky"], [(128, 64, 128), (70, 130, 180)])
METHODS = {
    "gaussian": ["Predicted depth", "|Error|", "Uncertainty (std)"],
    "categorical": ["Predicted classes", "Where it is wrong", "Uncertainty (entropy)"],
}
FIRST = {
    "gaussian": ("Input and truth", ["Image", "Sparse depth, the input", "True depth"]),
    "categorical": ("Image and truth", ["Image", "True classes", "Classes in these pictures"]),
}


def books(results: Results) -> list[dict[str, Any]]:
    (run,) = read_runs([results])
    return picture_books(run, methods_of([run]), domains_of([run]), "book")


def titles(book: dict[str, Any], layer: int = 0) -> dict[str, list[str]]:
    """The panels that are drawn, by row; the share of wrong pixels is left out."""
    return {
        row.title.replace("\u00a0", " "): [panel.title.split(":")[0] for panel in row.panels if panel.chart is not None]
        for row in book["layers"][layer]["rows"]
    }


def decoded(uri: str | None) -> np.ndarray:
    """The pixels of a PNG in a data URI, with their opacity: (height, width, 4)."""
    data = base64.b64decode((uri or "").removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def pixels(chart: object) -> np.ndarray:
    """The first image of a drawing, (height, width, 4)."""
    return decoded(parse_html(str(chart)).find_all("image")[0].attributes["href"])


def names(chart: object) -> list[str]:
    return [item.text.strip() for item in parse_html(str(chart)).find_all("li")]


@pytest.mark.parametrize("kind", METHODS)
def test_each_image_has_truth_and_a_row_for_each_method(kind: str) -> None:
    (clean, _) = books(fake.small(kind))
    title, panels = FIRST[kind]
    assert titles(clean) == {title: panels, "Ensembling, M = 2": METHODS[kind], "MC-dropout, M = 2": METHODS[kind]}
    captions = [layer["caption"].replace("\u00a0", " ") for layer in clean["layers"]]
    assert captions == [f"street, clean, image {number}, predictions at M = 2" for number in (3, 4)]
    assert books(fake.partial()) == []


def test_errors_are_shown_only_where_the_target_is_known() -> None:
    results = fake.dense_run(domains=("wild",), members=(1, 2))
    (book,) = books(results)
    target = read_grid(results.domains["wild"].pictures[0].target, zero_is_none=True)
    assert target is not None
    error = pixels(book["layers"][0]["rows"][1].panels[1].chart)
    assert np.array_equal(error[..., 3] > 0, np.isfinite(target))


def test_the_share_of_wrong_pixels_is_of_those_with_a_label() -> None:
    results = fake.dense_run("categorical", domains=("wild",), members=(1, 2))
    (book,) = books(results)
    (picture, _), (shown, _) = results.domains["wild"].pictures, fake.score(results, "ensemble", "wild").pictures
    target, predicted = (read_classes(text) for text in (picture.target, shown.predicted))
    assert target is not None
    share = 100 * (predicted != target)[target != 255].mean()
    title = book["layers"][0]["rows"][1].panels[1].title.replace("\u00a0", " ")
    (said,) = re.findall(r": ([\d.]+) % of the labelled pixels", title)
    assert float(said) == pytest.approx(share, rel=0.05)


def test_damaged_depths_are_left_out() -> None:
    (clean,) = books(fake.damaged_pictures())
    assert titles(clean)["Input and truth"] == ["Sparse depth, the input"]
    assert titles(clean)["Ensembling, M = 2"] == ["Predicted depth"]
    assert titles(clean, 1)["Input and truth"] == ["Image", "True depth"]
    assert "MC-dropout, M = 2" not in titles(clean, 1)


def test_damaged_classes_are_left_out() -> None:
    (clean,) = books(fake.damaged_class_pictures())
    assert titles(clean) == {
        "Image and truth": ["Image", "True classes", "Classes in these pictures"],
        "Ensembling, M = 2": ["Uncertainty (entropy)"],  # a colour picture is no map of classes
        "MC-dropout, M = 2": ["Predicted classes"],  # the truth has another size
    }
    assert titles(clean, 1) == {
        "Image and truth": ["Image", "Classes in these pictures"],  # 16 bits are too many
        "Ensembling, M = 2": ["Predicted classes", "Uncertainty (entropy)"],
        "MC-dropout, M = 2": ["Predicted classes"],
    }
    assert names(clean["layers"][1]["rows"][0].panels[2].chart) == ["class 40", "class 254"]


def test_classes_have_their_colours_and_what_is_not_labelled_is_striped() -> None:
    found = pixels(classes_chart("classes", np.array([[0, 1, 255, 255]], np.uint8), STYLES))[0, :, :3].tolist()
    assert [tuple(colour) for colour in found[:2]] == STYLES.colours
    assert {tuple(colour) for colour in found[2:]} <= set(STRIPES)
    wide = pixels(classes_chart("classes", np.full((20, 20), 255, np.uint8), STYLES))[..., :3]
    assert {tuple(colour) for colour in wide.reshape(-1, 3).tolist()} == set(STRIPES)
    errors = pixels(errors_chart("errors", np.array([[0.0, 1.0, np.nan]], np.float32)))[0, :, :3].astype(int)
    assert errors[0].sum() < 20
    assert errors[1].sum() > 400
    assert tuple(errors[2].tolist()) in STRIPES


def test_the_key_has_the_classes_that_occur() -> None:
    maps = [np.array([[1, 255]], np.uint8), None, np.array([[7]], np.uint8)]
    assert names(class_key(maps, STYLES)) == ["sky", "class 7", "not labelled"]
    assert class_key([None], STYLES) is None
    assert 'fill="#804080"' in class_swatch(STYLES.of(0))
    assert "path" in class_swatch(None)
    own = ClassStyles(["a", "b"])  # classes without a colour get one
    assert own.of(0).colour != own.of(1).colour
    assert all(0 <= part <= 255 for part in own.of(200).colour)


def test_uncertainty_is_on_one_scale_for_all() -> None:
    rows = [row for book in books(fake.small("categorical")) for layer in book["layers"] for row in layer["rows"][1:]]
    assert len({re.findall(r"from 0 to [\d.]+ nats", str(row.panels[2].chart))[0] for row in rows}) == 1


def test_depth_starts_at_zero() -> None:
    assert "True depth, from 0 to 80 m" in str(books(fake.small())[0]["layers"][0]["rows"][0].panels[2].chart)


def test_a_domain_with_classes_of_its_own_has_its_names_and_colours() -> None:
    _, camvid = books(fake.mapped())
    first = camvid["layers"][0]["rows"][0].panels
    assert names(first[2].chart) == ["road", "building", "sky", "vehicle", "not labelled"]
    truth = pixels(first[1].chart)[..., :3].reshape(-1, 3)
    assert (truth == fake.COMMON_COLOURS[1]).all(axis=1).any()


def test_a_grid_comes_back_in_its_unit() -> None:
    values = np.array([[0.0, 1.5], [20.25, 200.0]], np.float32)
    found = read_grid(fake.grid(values), zero_is_none=True)
    assert found is not None
    assert np.isnan(found[0, 0])
    assert np.allclose(found[np.isfinite(found)], [1.5, 20.25, 200.0])


@pytest.mark.parametrize("content", [None, b"", b"not a PNG"])
def test_what_is_no_picture_is_none(content: bytes | None) -> None:
    file = None if content is None else PictureFile.of(content)
    assert read_classes(file) is None
    assert read_grid(None if file is None else Grid(scale=1.0, png=file)) is None


def test_a_cut_off_picture_is_none() -> None:
    grid = fake.grid(np.ones((40, 40), np.float32))
    grid.png = PictureFile.of(grid.png.read()[:-30])
    assert read_grid(grid) is None


def test_a_photo_is_passed_on_with_its_type() -> None:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 2)).save(buffer, "jpeg")
    uri = f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
    assert photo_uri(PictureFile.of(buffer.getvalue())) == uri
    assert photo_uri(PictureFile.of(b'" onload="alert(1)')) is None


def test_shrinking_takes_the_mean_of_what_is_known_and_single_points_are_enlarged() -> None:
    values = np.array([[1.0, np.nan, 5.0, 7.0], [3.0, np.nan, 5.0, 7.0]], np.float32)
    assert shrunk(values, 2).tolist() == [[2.0, 6.0]]
    assert shrunk(values, 2, sparse=True).tolist() == [[1.0, 5.0]]
    assert shrunk(values, 4) is values
    points = np.full((4, 6), np.nan, np.float32)
    points[1, 1], points[1, 3] = 9.0, 2.0
    grown = enlarged(points)
    assert grown[0, 0] == 9.0
    assert grown[2, 2] == 2.0  # the nearest wins
    assert np.isnan(grown[3]).all()


def test_unknown_pixels_are_clear_and_the_ends_have_the_end_colours() -> None:
    found = decoded(data_uri(ColourScale(1.0, DEPTH).image(np.array([[np.nan, 0.0, 1.0, 2.0]], np.float32))))
    assert found[0, 0, 3] == 0
    assert (found[0, 1:, 3] == 255).all()
    assert found[0, 2, :3].tolist() == [0x44, 0x01, 0x54]
    assert found[0, 3].tolist() == found[0, 2].tolist()


def test_lightness_goes_one_way_and_probabilities_are_lightest_in_the_middle() -> None:
    for anchors in (DEPTH, AMOUNT):
        steps = np.diff(palette(anchors) @ np.array([0.2126, 0.7152, 0.0722]))
        assert (steps <= 1).all() or (steps >= -1).all()
    sums = palette(PROBABILITY).sum(axis=1).tolist()
    assert sums[:128] == sorted(sums[:128])
    assert sums[128:] == sorted(sums[128:], reverse=True)


@pytest.mark.parametrize(
    ("values", "end"), [([0.3, 2.4], 3.0), ([71.0], 80.0), ([0.0], 1.0), ([np.nan], 1.0), ([], 1.0)]
)
def test_scales_end_at_round_numbers(values: list[float], end: float) -> None:
    assert scale_end(np.array(values, np.float32), 1.0) == pytest.approx(end)


@pytest.mark.parametrize("upper", [0.04, 1.0, 3.0, 80.0, 1500.0])
def test_ticks_go_from_zero_to_the_end_with_room_between(upper: float) -> None:
    ticks = ColourScale(upper, AMOUNT).ticks(380.0)
    assert ticks[0] == 0
    assert ticks[-1] == upper
    places = [380 * (value / upper) ** 0.5 for value in ticks]
    assert min(b - a for a, b in itertools.pairwise(places)) >= 30


def toy(results: Results) -> dict[str, Any]:
    (run,) = read_runs([results])
    found = toy_book(run, methods_of([run]), "book")
    assert found is not None
    return found


def drawing(book: dict[str, Any], group: int, panel: int) -> Node:
    return parse_html(str(book["groups"][group].panels[panel].chart))


def test_the_top_row_of_a_map_is_the_largest_x2() -> None:
    results = fake.classification()
    assert results.toy is not None
    results.toy.reference = {"probs": [float(value > 0) for value in results.toy.grid["x2"] for _ in range(60)]}
    found = pixels(toy(results)["groups"][0].panels[0].chart)
    colours = palette(PROBABILITY)
    assert (found[0, :, :3] == colours[-1]).all()
    assert (found[59, :, :3] == colours[0]).all()


def test_methods_have_a_picture_for_each_m_and_point_estimates_share_a_figure() -> None:
    found = {group.title: [panel.title for panel in group.panels] for group in toy(fake.classification())["groups"]}
    assert found["SGLD"] == ["M\u00a0=\u00a016", "M\u00a0=\u00a064"]
    assert found["To compare with"] == ["Reference", "Data and truth"]
    estimates = [panel.title.split(",")[0] for panel in toy(fake.regression())["groups"][1].panels]
    assert estimates == ["MAP", "Maximum likelihood"]


def heights(path: str) -> list[float]:
    """The vertical positions of the points of a path."""
    start, steps = path.removeprefix("M").removesuffix("Z").split("l")
    offsets = [float(step.split(",")[1]) for step in steps.split(" ")]
    return list(itertools.accumulate(offsets, initial=float(start.split(",")[1])))


def test_the_truth_has_bands_of_its_own_std_in_every_picture_of_regression() -> None:
    found = toy(fake.regression())
    assert not drawing(found, 0, 2).find_all("path", "std")  # direct regression has no uncertainty
    (truth,) = [group for group in parse_html(found["shared"]).find_all("g") if group.attributes["id"] == "book-truth"]
    outer, inner = (heights(path.attributes["d"] or "") for path in truth.find_all("path", "true-std"))
    assert outer[0] - outer[-1] == pytest.approx(2 * (inner[0] - inner[-1]), abs=0.3)
    assert inner[-1] - inner[0] == pytest.approx(2 * 0.1 / 8 * 152, abs=0.3)  # ± 0.1 of 8 on 152 pixels
    charts = [drawing(found, group, panel) for group in range(len(found["groups"])) for panel in (0, 1)]
    assert all("#book-truth" in [use.attributes["href"] for use in one.find_all("use")] for one in charts)


def test_each_example_up_to_five_is_a_layer_and_the_first_is_seen() -> None:
    results = fake.regression()
    layers = drawing(toy(results), 2, 0).find_all("g", "layer")
    assert [layer.attributes["data-m"] for layer in layers] == ["1", "2"]
    assert ["chosen" in layer.classes for layer in layers] == [True, False]
    assert results.toy is not None
    for sizes in results.toy.methods.values():
        for m, examples in sizes.items():
            sizes[m] = examples[:1] * 7
    found = toy(results)
    assert [option.key for option in found["switch"].options] == ["1", "2", "3", "4", "5"]
    assert len(drawing(found, 2, 0).find_all("g", "layer")) == 5


def test_runs_without_pictures_or_a_reference_are_drawn_as_far_as_they_go() -> None:
    (run,) = read_runs([fake.bare()])
    assert toy_book(run, methods_of([run]), "book") is None
    results = fake.regression()
    assert results.toy is not None
    results.toy.reference = None
    assert [panel.title for panel in toy(results)["groups"][0].panels] == [
        *("Data and truth", "Direct regression, no uncertainty")
    ]


def test_a_polyline_is_exact_to_a_tenth_however_long() -> None:
    points = [(0.04 * i, 0.26 * i) for i in range(1000)]
    start, steps = polyline(points).removeprefix("M").split("l")
    pairs = [tuple(map(float, pair.split(","))) for pair in (start, *steps.split(" "))]
    assert [sum(column) for column in zip(*pairs, strict=True)] == pytest.approx(points[-1], abs=0.0501)
