import base64
import io
import itertools
from typing import Any

import fake
import numpy as np
import pytest
from html_tree import Node, parse_html
from PIL import Image

from epibench.report.charts.svg import polyline
from epibench.report.pictures.colours import PROBABILITY, indexed_uri, palette
from epibench.report.pictures.toy import toy_book
from epibench.report.runs import methods_of, read_runs
from epibench.results import Results, ToyPictures


def toy_pictures(results: Results) -> ToyPictures:
    assert results.toy is not None
    return results.toy


def book(results: Results) -> dict[str, Any]:
    (run,) = read_runs([results])
    found = toy_book(run, methods_of([run]), "book")
    assert found is not None
    return found


def chart(pictures: dict[str, Any], group: int, panel: int) -> Node:
    return parse_html(str(pictures["groups"][group].panels[panel].chart))


def read_png(uri: str) -> np.ndarray:
    """The pixels of a PNG in a data URI, with their opacity: (height, width, 4)."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))


def test_a_png_comes_back_pixel_for_pixel() -> None:
    colours = palette(PROBABILITY)
    indices = np.array([[0, 1, 5], [2, 255, 6]])
    pixels = read_png(indexed_uri(indices, colours, first_is_clear=True))
    assert pixels[..., :3].tolist() == np.frombuffer(colours, np.uint8).reshape(-1, 3)[indices].tolist()
    assert (pixels[..., 3] == 0).tolist() == (indices == 0).tolist()


def test_the_palette_is_lightest_in_the_middle() -> None:
    sums = [sum(palette(PROBABILITY)[3 * i : 3 * i + 3]) for i in range(256)]
    assert sums[:128] == sorted(sums[:128])
    assert sums[128:] == sorted(sums[128:], reverse=True)


def test_the_top_row_of_a_map_is_the_largest_x2() -> None:
    results = fake.classification()
    pictures = toy_pictures(results)
    pictures.reference = {"probs": [float((value or 0.0) > 0) for value in pictures.grid["x2"] for _ in range(60)]}
    (image,) = chart(book(results), 0, 0).find_all("image")
    pixels = read_png(image.attributes["href"] or "")
    colours = np.frombuffer(palette(PROBABILITY), np.uint8).reshape(-1, 3)
    assert (pixels[0, :, :3] == colours[-1]).all()
    assert (pixels[59, :, :3] == colours[0]).all()


def test_methods_have_a_picture_for_each_m() -> None:
    found = book(fake.classification())
    titles = {group.title: [panel.title.replace("\u00a0", " ") for panel in group.panels] for group in found["groups"]}
    assert titles["SGLD"] == ["M = 16", "M = 64"]
    assert titles["To compare with"] == ["Reference", "Data and truth"]


def test_point_estimates_share_a_figure() -> None:
    found = book(fake.regression())
    assert [panel.title.split(",")[0] for panel in found["groups"][1].panels] == ["MAP", "Maximum likelihood"]


def test_direct_regression_shows_no_uncertainty() -> None:
    assert not chart(book(fake.regression()), 0, 2).find_all("path", "std")


def test_the_truth_has_bands_of_its_own_std_in_every_picture_of_regression() -> None:
    found = book(fake.regression())
    shared = parse_html(found["shared"])
    (truth,) = [group for group in shared.find_all("g") if group.attributes["id"] == "book-truth"]
    outer, inner = (heights(path.attributes["d"] or "") for path in truth.find_all("path", "true-std"))
    assert outer[0] - outer[-1] == pytest.approx(2 * (inner[0] - inner[-1]), abs=0.3)
    assert inner[-1] - inner[0] == pytest.approx(2 * 0.1 / 8 * 152, abs=0.3)  # ± 0.1 of 8 on 152 pixels
    charts = [chart(found, group, panel) for group in range(len(found["groups"])) for panel in (0, 1)]
    assert all("#book-truth" in [use.attributes["href"] for use in one.find_all("use")] for one in charts)


def heights(path: str) -> list[float]:
    """The vertical positions of the points of a path."""
    start, steps = path.removeprefix("M").removesuffix("Z").split("l")
    offsets = [float(step.split(",")[1]) for step in steps.split(" ")]
    return list(itertools.accumulate(offsets, initial=float(start.split(",")[1])))


def test_each_example_is_a_layer_and_the_first_is_seen() -> None:
    layers = chart(book(fake.regression()), 2, 0).find_all("g", "layer")
    assert [layer.attributes["data-m"] for layer in layers] == ["1", "2"]
    assert ["chosen" in layer.classes for layer in layers] == [True, False]


def test_a_run_without_pictures_has_none() -> None:
    (run,) = read_runs([fake.bare()])
    assert toy_book(run, methods_of([run]), "book") is None


def test_pictures_without_a_reference_are_drawn() -> None:
    results = fake.regression()
    toy_pictures(results).reference = None
    titles = [panel.title for panel in book(results)["groups"][0].panels]
    assert titles == ["Data and truth", "Direct regression, no uncertainty"]


def test_up_to_five_examples_are_shown() -> None:
    results = fake.regression()
    for sizes in toy_pictures(results).methods.values():
        for m, examples in sizes.items():
            sizes[m] = examples[:1] * 7
    found = book(results)
    assert [option.key for option in found["switch"].options] == ["1", "2", "3", "4", "5"]
    assert len(chart(found, 2, 0).find_all("g", "layer")) == 5


def test_a_polyline_is_exact_to_a_tenth_however_long() -> None:
    points = [(0.04 * i, 0.26 * i) for i in range(1000)]
    text = polyline(points)
    start, steps = text.removeprefix("M").split("l")
    x, y = map(float, start.split(","))
    for step in steps.split(" "):
        dx, dy = map(float, step.split(","))
        x, y = x + dx, y + dy
    assert abs(x - points[-1][0]) <= 0.0501
    assert abs(y - points[-1][1]) <= 0.0501
