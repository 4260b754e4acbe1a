"""Pictures of segmentation: image and truth, and each method's classes, its errors and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from epibench.report.charts.lines import STRIPES, class_swatch
from epibench.report.charts.svg import markup
from epibench.report.entries import ClassStyles
from epibench.report.numbers import m_equals, percent
from epibench.report.pictures.colours import (
    AMOUNT,
    NUM_COLOURS,
    ColourScale,
    GridValues,
    draw_bar,
    indexed_uri,
    palette,
    scale_end,
)
from epibench.report.pictures.panels import (
    MOST_COLUMNS,
    WIDTH,
    ClassMap,
    Panel,
    PanelRow,
    draw_image,
    known_values,
    photo_chart,
    picture_canvas,
    read_classes,
    read_grid,
    shrunk,
)
from epibench.report.runs import EvalDomain, Run, RunMethod, class_styles
from epibench.results import Picture

UNLABELLED = 255
RIGHT, WRONG = 0.0, 0.9  # shares of the scale of uncertainty: a method that knows its errors shows the same twice
STRIPE = 96  # stripes of what has no label, across a picture


class ClassPanels:
    """Draws the pictures of one run: classes in their colours, and uncertainty on one scale for all."""

    def __init__(self, run: Run, pictures: Sequence[Picture]) -> None:
        self.run = run
        grids = [read_grid(one.uncertainty) for picture in pictures for one in picture.methods.values()]
        self.amount = ColourScale(scale_end(known_values(grids), 0.98), AMOUNT, "nats")

    def rows(self, picture: Picture, methods: Sequence[RunMethod], domain: EvalDomain) -> Iterator[PanelRow]:
        """Image, truth and a key in a row, then a row for each method."""
        styles, target = class_styles(self.run.results, domain.name), read_classes(picture.target)
        shown = [method for method in methods if method.name in picture.methods]
        maps = [target, *(read_classes(picture.methods[method.name].predicted) for method in shown)]
        first = [
            Panel("Image", photo_chart(picture)),
            Panel("True classes", classes_chart("True classes", target, styles)),
            Panel("Classes in these pictures", class_key(maps, styles)),
        ]
        yield PanelRow("Image and truth", first)
        for method, predicted in zip(shown, maps[1:], strict=True):
            yield self._method_row(picture, method, predicted, styles)

    def _method_row(
        self, picture: Picture, method: RunMethod, predicted: ClassMap | None, styles: ClassStyles
    ) -> PanelRow:
        prediction = picture.methods[method.name]
        where, wrong = (
            f"{method.label}, {m_equals(prediction.M)}",
            wrong_pixels(predicted, read_classes(picture.target)),
        )
        share = share_wrong(wrong)
        uncertainty = read_grid(prediction.uncertainty)
        panels = [
            Panel("Predicted classes", classes_chart(f"Predicted classes, {where}", predicted, styles)),
            Panel(
                f"Where it is wrong{f': {share} of the labelled pixels' if share else ''}",
                errors_chart(f"Errors, {where}", wrong),
            ),
            Panel("Uncertainty (entropy)", self._uncertainty(f"Predictive entropy, {where}", uncertainty)),
        ]
        return PanelRow(where, panels, method.index)

    def _uncertainty(self, description: str, values: GridValues | None) -> Markup | None:
        if values is None:
            return None
        height = WIDTH * values.shape[0] / values.shape[1]
        root = picture_canvas(height, f"{description}, from 0 to {self.amount.upper:g} nats", bar=True)
        draw_image(root, self.amount.uri(shrunk(values, MOST_COLUMNS)), height)
        draw_bar(root, self.amount, WIDTH, height + 5)
        return markup(root)


def wrong_pixels(predicted: ClassMap | None, target: ClassMap | None) -> GridValues | None:
    """1 where a prediction is wrong, NaN where there is no label; None where there is no truth of the same size."""
    if predicted is None or target is None or predicted.shape != target.shape:
        return None
    return np.where(target == UNLABELLED, np.nan, predicted != target).astype(np.float32)


def share_wrong(wrong: GridValues | None) -> str:
    """The share of labelled pixels that are wrong; empty where there are none."""
    known = known_values([wrong])
    return percent(float(known.mean())) if known.size else ""


def classes_chart(description: str, classes: ClassMap | None, styles: ClassStyles) -> Markup | None:
    """A map of classes in their colours; None where there is no map."""
    if classes is None:
        return None
    small = _every(classes)
    colours = [styles.of(number).colour for number in range(NUM_COLOURS - 2)]
    # The last two colours are those of the stripes: there are never so many classes.
    indices = np.where(small == UNLABELLED, NUM_COLOURS - 2 + _stripes(small.shape), np.minimum(small, NUM_COLOURS - 3))
    return _drawn(description, indices, bytes(part for colour in (*colours, *STRIPES) for part in colour))


def errors_chart(description: str, wrong: GridValues | None) -> Markup | None:
    """Where a prediction is wrong, in the colours of uncertainty; None where that is not known."""
    if wrong is None:
        return None
    small, amounts = _every(wrong), palette(AMOUNT)
    shades = [amounts[3 * i : 3 * i + 3] for i in (round(share * (NUM_COLOURS - 1)) for share in (RIGHT, WRONG))]
    indices = np.where(np.isfinite(small), np.nan_to_num(small), 2 + _stripes(small.shape))
    return _drawn(description, indices, b"".join(shades) + bytes(part for colour in STRIPES for part in colour))


def class_key(maps: Sequence[ClassMap | None], styles: ClassStyles) -> Markup | None:
    """The classes that occur in any of some maps, with their colours; None where there are none."""
    numbers = sorted({int(number) for classes in maps if classes is not None for number in np.unique(classes)})
    if not numbers:
        return None
    items = Markup("")
    for number in numbers:
        style = None if number == UNLABELLED else styles.of(number)
        name = "not labelled" if style is None else style.name
        items += Markup("<li>{} <span>{}</span></li>").format(class_swatch(style), name)
    return Markup('<ul class="class-key">{}</ul>').format(items)


def _every(values: NDArray[Any]) -> NDArray[Any]:
    """A map of at most so many columns as a page has room for: every so many-th pixel."""
    step = -(-values.shape[1] // MOST_COLUMNS)
    return values[::step, ::step]


def _stripes(shape: tuple[int, ...]) -> NDArray[Any]:
    """0 and 1 in stripes that go up to the right."""
    rows, columns = np.indices(shape)
    stripes: NDArray[Any] = (rows + columns) // max(2, shape[1] // STRIPE) % 2
    return stripes


def _drawn(description: str, indices: NDArray[Any], colours: bytes) -> Markup:
    height = WIDTH * indices.shape[0] / indices.shape[1]
    root = picture_canvas(height, description)
    draw_image(root, indexed_uri(indices, colours), height)
    return markup(root)
