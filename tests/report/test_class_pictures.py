import base64
import io
import re
from typing import Any

import fake
import numpy as np
import pytest
from html_tree import parse_html
from PIL import Image

from epibench.report.charts.lines import STRIPES, class_swatch
from epibench.report.dense_section import picture_books
from epibench.report.entries import ClassStyles
from epibench.report.pictures.dense import class_key, classes_chart, errors_chart, read_classes
from epibench.report.runs import domains_of, methods_of, read_runs
from epibench.results import Results

STYLES = ClassStyles(["road", "sky"], [(128, 64, 128), (70, 130, 180)])


def books(results: Results) -> list[dict[str, Any]]:
    (run,) = read_runs([results])
    return picture_books(run, methods_of([run]), domains_of([run]), "book")


def titles(book: dict[str, Any], layer: int = 0) -> dict[str, list[str]]:
    """The panels that are drawn, by row; the share of wrong pixels is left out."""
    return {
        row.title.replace("\u00a0", " "): [panel.title.split(":")[0] for panel in row.panels if panel.chart is not None]
        for row in book["layers"][layer]["rows"]
    }


def pixels(chart: object) -> np.ndarray:
    """The first image of a drawing, (height, width, 3)."""
    uri = parse_html(str(chart)).find_all("image")[0].attributes["href"] or ""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def names(chart: object) -> list[str]:
    return [item.text.strip() for item in parse_html(str(chart)).find_all("li")]


def test_each_image_has_truth_key_and_a_row_for_each_method() -> None:
    (clean, _) = books(fake.small("categorical"))
    methods = ["Predicted classes", "Where it is wrong", "Uncertainty (entropy)"]
    assert titles(clean) == {
        "Image and truth": ["Image", "True classes", "Classes in these pictures"],
        "Ensembling, M = 2": methods,
        "MC-dropout, M = 2": methods,
    }


def test_classes_have_their_colours_and_what_is_not_labelled_is_striped() -> None:
    found = pixels(classes_chart("classes", np.array([[0, 1, 255, 255]], np.uint8), STYLES))[0].tolist()
    assert [tuple(colour) for colour in found[:2]] == STYLES.colours
    assert {tuple(colour) for colour in found[2:]} <= set(STRIPES)
    wide = pixels(classes_chart("classes", np.full((20, 20), 255, np.uint8), STYLES))
    assert {tuple(colour) for colour in wide.reshape(-1, 3).tolist()} == set(STRIPES)


def test_errors_are_bright_and_only_where_there_is_a_label() -> None:
    found = pixels(errors_chart("errors", np.array([[0.0, 1.0, np.nan]], np.float32)))[0].astype(int)
    assert found[0].sum() < 20
    assert found[1].sum() > 400
    assert tuple(found[2].tolist()) in STRIPES


def test_the_share_of_wrong_pixels_is_of_those_with_a_label() -> None:
    results = fake.dense_run("categorical", domains=("wild",), members=(1, 2))
    (book,) = books(results)
    (picture, _), (shown, _) = results.domains["wild"].pictures, fake.score(results, "ensemble", "wild").pictures
    target, predicted = (read_classes(text) for text in (picture.target, shown.predicted))
    assert target is not None
    assert predicted is not None
    share = 100 * (predicted != target)[target != 255].mean()
    title = book["layers"][0]["rows"][1].panels[1].title.replace("\u00a0", " ")
    (said,) = re.findall(r": ([\d.]+) % of the labelled pixels", title)
    assert float(said) == pytest.approx(share, rel=0.05)


def test_the_key_has_the_classes_that_occur() -> None:
    maps = [np.array([[1, 255]], np.uint8), None, np.array([[7]], np.uint8)]
    assert names(class_key(maps, STYLES)) == ["sky", "class 7", "not labelled"]
    assert class_key([None], STYLES) is None


def test_uncertainty_is_on_one_scale_for_all() -> None:
    results = fake.small("categorical")
    found = {
        re.findall(r"from 0 to [\d.]+ nats", str(row.panels[2].chart))[0]
        for book in books(results)
        for layer in book["layers"]
        for row in layer["rows"][1:]
    }
    assert len(found) == 1


def test_a_domain_with_classes_of_its_own_has_its_names_and_colours() -> None:
    _, camvid = books(fake.mapped())
    key = camvid["layers"][0]["rows"][0].panels[2].chart
    assert names(key) == ["road", "building", "sky", "vehicle", "not labelled"]
    truth = pixels(camvid["layers"][0]["rows"][0].panels[1].chart).reshape(-1, 3)
    assert (truth == fake.COMMON_COLOURS[1]).all(axis=1).any()


def test_a_class_without_a_colour_gets_one() -> None:
    found = ClassStyles(["a", "b"])
    assert found.of(0).colour != found.of(1).colour
    assert all(0 <= part <= 255 for part in found.of(200).colour)


def test_swatches_show_the_colour() -> None:
    assert 'fill="#804080"' in class_swatch(STYLES.of(0))
    assert "path" in class_swatch(None)


def test_what_cannot_be_read_is_left_out() -> None:
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


@pytest.mark.parametrize("text", [None, "", "*", base64.b64encode(b"not a PNG").decode()])
def test_what_is_no_map_of_classes_is_none(text: str | None) -> None:
    assert read_classes(text) is None
