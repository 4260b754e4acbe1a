"""Pictures of segmentation: image and truth, and each method's classes, its errors and its uncertainty."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from epibench.report.class_styles import STRIPES, UNLABELLED, ClassStyles, class_styles, class_swatch
from epibench.report.colour_map import AMOUNT, NUM_COLOURS, indexed_png, palette, png_uri
from epibench.report.colour_scale import ColourScale, draw_bar, scale_end
from epibench.report.domains import Domain
from epibench.report.grids import Classes, Grid, pooled, read_classes, read_grid, shrunk
from epibench.report.numbers import finite, m_equals, percent
from epibench.report.picture_panels import (
    MOST_COLUMNS,
    WIDTH,
    Panel,
    PanelRow,
    photo_chart,
    picture_canvas,
    picture_methods,
    picture_panel,
)
from epibench.report.runs import Method, Run
from epibench.report.svg import markup

RIGHT, WRONG = 0.0, 0.9  # shares of the scale of uncertainty: a method that knows its errors shows the same twice
STRIPE = 96  # stripes of what has no label, across a picture


@dataclass(frozen=True)
class ClassPrediction:
    """One method's classes and uncertainty for one image, and where it is wrong: NaN where there is no label."""

    predicted: Classes | None
    uncertainty: Grid | None
    wrong: Grid | None
    m: int | None

    @property
    def share_wrong(self) -> str:
        """The share of labelled pixels that are wrong; empty where there are none."""
        known = self.wrong[np.isfinite(self.wrong)] if self.wrong is not None else np.empty(0)
        return percent(float(known.mean())) if known.size else ""


class ClassPanels:
    """Draws the pictures of one run: classes in their colours, and uncertainty on one scale for all."""

    def __init__(self, run: Run, pictures: Sequence[dict[str, Any]]) -> None:
        self.run = run
        found = [
            read_class_prediction(picture, method).uncertainty
            for picture in pictures
            for method in picture_methods(picture)
        ]
        self.amount = ColourScale(scale_end(pooled(found), 0.98), AMOUNT, "nats")

    def rows(self, picture: dict[str, Any], methods: Sequence[Method], domain: Domain) -> Iterator[PanelRow]:
        """Image, truth and a key in a row, then a row for each method."""
        styles, target = class_styles(self.run.results, domain.name), read_classes(picture.get("target"))
        shown = [
            (method, read_class_prediction(picture, method.name))
            for method in methods
            if method.name in picture_methods(picture)
        ]
        maps = [target, *(found.predicted for _, found in shown)]
        first = [
            Panel("Image", photo_chart(picture)),
            Panel("True classes", classes_chart("True classes", target, styles)),
            Panel("Classes in these pictures", class_key(maps, styles)),
        ]
        yield PanelRow("Image and truth", first)
        for method, found in shown:
            yield self._method_row(found, method, styles)

    def _method_row(self, found: ClassPrediction, method: Method, styles: ClassStyles) -> PanelRow:
        where = f"{method.label}, {m_equals(found.m)}" if found.m is not None else method.label
        share = f": {found.share_wrong} of the labelled pixels" if found.share_wrong else ""
        panels = [
            Panel("Predicted classes", classes_chart(f"Predicted classes, {where}", found.predicted, styles)),
            Panel(f"Where it is wrong{share}", errors_chart(f"Errors, {where}", found.wrong)),
            Panel("Uncertainty (entropy)", self._uncertainty(f"Predictive entropy, {where}", found.uncertainty)),
        ]
        return PanelRow(where, panels, method.index)

    def _uncertainty(self, description: str, values: Grid | None) -> Markup | None:
        if values is None:
            return None
        height = WIDTH * values.shape[0] / values.shape[1]
        root = picture_canvas(height, f"{description}, from 0 to {self.amount.upper:g} nats", bar=True)
        picture_panel(root, self.amount.uri(shrunk(values, MOST_COLUMNS)), height)
        draw_bar(root, self.amount, WIDTH, height + 5)
        return markup(root)


def read_class_prediction(picture: dict[str, Any], method: str) -> ClassPrediction:
    """A method's maps; no errors where there is no truth, or one of another size."""
    found = picture_methods(picture)[method]
    predicted, target = read_classes(found.get("predicted")), read_classes(picture.get("target"))
    wrong = None
    if predicted is not None and target is not None and predicted.shape == target.shape:
        wrong = np.where(target == UNLABELLED, np.nan, predicted != target).astype(np.float32)
    m = finite(found.get("M"))
    return ClassPrediction(predicted, read_grid(found.get("uncertainty")), wrong, None if m is None else int(m))


def classes_chart(description: str, classes: Classes | None, styles: ClassStyles) -> Markup | None:
    """A map of classes in their colours; None where there is no map."""
    if classes is None:
        return None
    small = _every(classes)
    colours = [styles.of(number).colour for number in range(NUM_COLOURS - 2)]
    # The last two colours are those of the stripes: there are never so many classes.
    indices = np.where(small == UNLABELLED, NUM_COLOURS - 2 + _stripes(small.shape), np.minimum(small, NUM_COLOURS - 3))
    return _drawn(description, indices, bytes(part for colour in (*colours, *STRIPES) for part in colour))


def errors_chart(description: str, wrong: Grid | None) -> Markup | None:
    """Where a prediction is wrong, in the colours of uncertainty; None where that is not known."""
    if wrong is None:
        return None
    small = _every(wrong)
    amounts = palette(AMOUNT)
    shades = [
        amounts[3 * place : 3 * place + 3] for place in (round(share * (NUM_COLOURS - 1)) for share in (RIGHT, WRONG))
    ]
    indices = np.where(np.isfinite(small), np.nan_to_num(small), 2 + _stripes(small.shape))
    return _drawn(description, indices, b"".join(shades) + bytes(part for colour in STRIPES for part in colour))


def class_key(maps: Sequence[Classes | None], styles: ClassStyles) -> Markup | None:
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


def _every(values: Any) -> Any:
    """A map of at most so many columns as a page has room for: every so many-th pixel."""
    step = -(-values.shape[1] // MOST_COLUMNS)
    return values[::step, ::step]


def _stripes(shape: tuple[int, ...]) -> Any:
    """0 and 1 in stripes that go up to the right."""
    width = max(2, shape[1] // STRIPE)
    rows, columns = np.indices(shape)
    return (rows + columns) // width % 2


def _drawn(description: str, indices: Any, colours: bytes) -> Markup:
    height = WIDTH * indices.shape[0] / indices.shape[1]
    root = picture_canvas(height, description)
    picture_panel(root, png_uri(indexed_png([row.tobytes() for row in indices.astype(np.uint8)], colours)), height)
    return markup(root)
