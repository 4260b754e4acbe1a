"""Pictures of dense problems: what is known of an image, and what each method predicts, its error and its uncertainty.

A picture file that is missing or damaged is None: its panel says so, and a warning names the file.
"""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from epibench.errors import InputError
from epibench.picture_files import PictureFile
from epibench.report.chart import LIGHT
from epibench.report.charts.lines import STRIPES, class_swatch, hex_colour
from epibench.report.charts.matplotlib import (
    ANCHORS,
    LETTER,
    LINE,
    MARGIN,
    PER_INCH,
    draw_image,
    empty_figure,
    settings,
)
from epibench.report.charts.svg import element, markup
from epibench.report.entries import ClassStyles
from epibench.report.numbers import m_equals, percent
from epibench.report.pictures import Drawing, Panel, PanelRow
from epibench.report.pictures.colours import (
    AMOUNT,
    DEPTH,
    NUM_COLOURS,
    ColourScale,
    GridValues,
    data_uri,
    indexed,
    palette,
    scale_end,
)
from epibench.report.runs import EvalDomain, Run, RunMethod, class_styles
from epibench.results import RGB, Grid, ShownPicture

ClassMap = NDArray[np.uint8]  # (height, width)

WIDTH = 380.0  # about as wide as three in a row are on a screen, so that text has its usual size
BAR_GAP, BAR_HEIGHT, BAR_ROOM = 5.0, 7.0, 26.0
PANEL_GAP, PANEL_TITLE = 16.0, 16.0
KEY_COLUMNS, KEY_ROOM = 3, 32.0  # of classes; of a square and the gap to the next column
UNKNOWN = "#c9ccd1"
MOST_COLUMNS = 640  # of a picture; larger ones are shrunk, as the page has no room to show more
MOST_SPARSE_COLUMNS = 320  # where pixels are single points, which must be seen
SPARSE = 0.12  # where less of a picture is known than this, single pixels are enlarged
MOST_PIXELS = 64_000_000
MEDIA_TYPES = {"PNG": "image/png", "JPEG": "image/jpeg"}
UNREADABLE = (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError)  # raised by Pillow
UNLABELLED = 255
RIGHT, WRONG = 0.0, 0.9  # shares of the scale of uncertainty: a method that knows its errors shows the same twice
STRIPE = 96  # stripes of what has no label, across a picture


def read_grid(grid: Grid | PictureFile | None, zero_is_none: bool = False) -> GridValues | None:
    """Numbers of a grey PNG in counts of a scale, (height, width); NaN where zero stands for none."""
    counts = _pixels(grid.png) if isinstance(grid, Grid) else None
    if counts is None or not isinstance(grid, Grid):
        return None
    values = counts.astype(np.float32) * np.float32(grid.scale) + np.float32(grid.offset)
    return np.where(counts == 0, np.float32(np.nan), values) if zero_is_none else values


def read_classes(png: Grid | PictureFile | None) -> ClassMap | None:
    """Classes of pixels from an 8-bit grey PNG, (height, width)."""
    pixels = _pixels(png) if isinstance(png, PictureFile) else None
    return pixels if pixels is not None and pixels.dtype == np.uint8 else None


def _pixels(file: PictureFile) -> NDArray[Any] | None:
    image = _opened(file)
    try:
        pixels = np.asarray(image) if image is not None else np.empty(0)
    except UNREADABLE:
        return None
    return pixels if pixels.ndim == 2 else None


def _opened(file: PictureFile) -> Image.Image | None:
    try:
        image = Image.open(io.BytesIO(file.read()))
    except InputError as error:
        warnings.warn(f"{error} The page has no picture there.", stacklevel=1)
        return None
    except UNREADABLE:
        return None
    return image if image.width * image.height <= MOST_PIXELS else None


def photo_uri(file: PictureFile) -> str | None:
    """A photo as a data URI."""
    image = _opened(file)
    media_type = MEDIA_TYPES.get(image.format or "") if image is not None else None
    return f"data:{media_type};base64,{base64.b64encode(file.read()).decode()}" if media_type else None


def photo_image(file: PictureFile) -> Image.Image | None:
    """A photo as pixels; None where it cannot be read."""
    try:
        image = _opened(file)
        return None if image is None else image.convert("RGB")
    except UNREADABLE:
        return None


def known_values(grids: Sequence[GridValues | None]) -> GridValues:
    """All numbers of some grids."""
    known = [grid[np.isfinite(grid)] for grid in grids if grid is not None]
    return np.concatenate(known) if known else np.empty(0, np.float32)


def scale_ends(pictures: Sequence[ShownPicture]) -> tuple[float, float, float]:
    """Both ends of depth, and the upper end of error and uncertainty, for the colours of some pictures."""
    depths = known_values([read_grid(picture.target, zero_is_none=True) for picture in pictures])
    amounts = [error_of(picture, name) for picture in pictures for name in picture.methods]
    predicted = [one for picture in pictures for one in picture.methods.values()]
    amounts += [read_grid(one.std if one.uncertainty is None else one.uncertainty) for one in predicted]
    lower = -scale_end(-depths, 0.995) if depths.size and depths.min() < 0 else 0.0
    return lower, scale_end(depths, 0.995), scale_end(known_values(amounts), 0.98)


def shade(share: float) -> RGB:
    """A colour of the scale of uncertainty."""
    red, green, blue = palette(AMOUNT)[round(share * (NUM_COLOURS - 1))].tolist()
    return red, green, blue


def shrunk(values: GridValues, most: int, sparse: bool = False) -> GridValues:
    """A grid of at most `most` columns: the mean of each block, or the smallest number of sparse grids."""
    factor = -(-values.shape[1] // most)
    if factor <= 1:
        return values
    height, width = (size // factor * factor for size in values.shape)
    blocks = values[:height, :width].reshape(height // factor, factor, width // factor, factor)
    if sparse:
        least: GridValues = np.fmin.reduce(blocks, axis=(1, 3))
        return least
    number, total = np.isfinite(blocks).sum(axis=(1, 3)), np.nansum(blocks, axis=(1, 3))
    return np.where(number > 0, total / np.maximum(number, 1), np.nan).astype(np.float32)


def enlarged(values: GridValues) -> GridValues:
    """A grid whose single numbers are spread over their neighbours, so that they can be seen; the smallest wins."""
    (height, width), padded = values.shape, np.pad(values, 1, constant_values=np.nan)
    return reduce(np.fmin, (padded[i : i + height, j : j + width] for i in range(3) for j in range(3)))


def error_of(picture: ShownPicture, method: str) -> GridValues | None:
    """Where a method is off and by how much; None without a target of its size."""
    mean, target = read_grid(picture.methods[method].mean), read_grid(picture.target, zero_is_none=True)
    return np.abs(mean - target) if mean is not None and target is not None and mean.shape == target.shape else None


def wrong_pixels(predicted: ClassMap | None, target: ClassMap | None) -> GridValues | None:
    """1 where a prediction is wrong, NaN without a label; None without a truth of the same size."""
    if predicted is None or target is None or predicted.shape != target.shape:
        return None
    return np.where(target == UNLABELLED, np.nan, predicted != target).astype(np.float32)


def _drawing(
    description: str,
    image: Image.Image,
    height: float,
    scale: ColourScale | None = None,
    known: bool = True,
    uri: str = "",
) -> Drawing:
    """A picture, perhaps with the bar of its colours below; unknown pixels are grey."""
    bar, end = height + BAR_GAP, height + BAR_GAP + BAR_HEIGHT
    size = WIDTH, height + (BAR_ROOM if scale else 0.0)
    box = f"0 0 {WIDTH:g} {size[1]:.1f}"
    root = element(None, "svg", viewBox=box, role="img", aria_label=description, class_="picture")
    if not known:
        element(root, "rect", class_="unknown", width=WIDTH, height=height)
    stretched = {"preserveAspectRatio": "none"}
    element(root, "image", href=uri or data_uri(image), **stretched, x=0, y=0, width=WIDTH, height=height)
    if scale:
        element(root, "image", href=data_uri(scale.bar), **stretched, x=0, y=bar, width=WIDTH, height=BAR_HEIGHT)
        for x, words, anchor in scale.labels(WIDTH):
            element(root, "text", words, x=x, y=end + 11, text_anchor=anchor)

    def draw(axes: Any, x: float, y: float) -> None:
        if not known:
            axes.fill_between([x, x + WIDTH], y, y + height, color=UNKNOWN, linewidth=0, zorder=-1)
        draw_image(axes, image, (x, y, x + WIDTH, y + height))
        if scale:
            draw_image(axes, scale.bar, (x, y + bar, x + WIDTH, y + end))
            for at, words, anchor in scale.labels(WIDTH):
                axes.text(x + at, y + end + 11, words, ha=ANCHORS[anchor])

    return Drawing(markup(root), description, size, draw)


def photo_chart(picture: ShownPicture) -> Drawing | None:
    """The photo of a picture; None where it cannot be read."""
    uri, image = photo_uri(picture.photo), photo_image(picture.photo)
    height = WIDTH * picture.height / picture.width
    return _drawing(f"Image {picture.image}", image, height, uri=uri) if uri and image else None


def grid_chart(description: str, values: GridValues | None, scale: ColourScale) -> Drawing | None:
    """A grid in colours with its bar; None without a grid."""
    if values is None:
        return None
    sparse = bool(np.isfinite(values).mean() < SPARSE)
    small = shrunk(values, MOST_SPARSE_COLUMNS if sparse else MOST_COLUMNS, sparse)
    if sparse and np.isfinite(small).mean() < SPARSE:
        small = enlarged(small)
    height = WIDTH * values.shape[0] / values.shape[1]
    ends = f"{description}, from {scale.lower:g} to {scale.upper:g} {scale.unit}"
    return _drawing(ends.rstrip(), scale.image(small), height, scale, bool(np.isfinite(small).all()))


class DepthPanels:
    """Draws the pictures of one run on common scales: one of depth or other values, one of error and uncertainty."""

    def __init__(self, run: Run, pictures: Sequence[ShownPicture]) -> None:
        lower, upper, amount = scale_ends(pictures)
        self.depth, self.amount = ColourScale(upper, DEPTH, run.unit, lower), ColourScale(amount, AMOUNT, run.unit)
        self.word = "depth" if run.problem == "depth-completion" else "values"

    def rows(self, picture: ShownPicture, methods: Sequence[RunMethod], domain: EvalDomain) -> Iterator[PanelRow]:
        """Input and truth in a row, then a row for each method."""
        sparse, target = (read_grid(grid, zero_is_none=True) for grid in (picture.sparse_depth, picture.target))
        first = [Panel("Image", photo_chart(picture))]
        if self.word == "depth":
            first.append(Panel("Sparse depth, the input", grid_chart("Sparse input depth", sparse, self.depth)))
        first.append(Panel(f"True {self.word}", grid_chart(f"True {self.word}", target, self.depth)))
        yield PanelRow("Input and truth", first)
        for method in methods:
            if prediction := picture.methods.get(method.name):
                where, error = f"{method.label}, {m_equals(prediction.M)}", error_of(picture, method.name)
                mean, std = read_grid(prediction.mean), read_grid(prediction.std)
                panels = [
                    Panel(f"Predicted {self.word}", grid_chart(f"Predicted {self.word}, {where}", mean, self.depth)),
                    Panel("|Error|", grid_chart(f"Absolute error, {where}", error, self.amount)),
                    Panel("Uncertainty (std)", grid_chart(f"Predicted std, {where}", std, self.amount)),
                ]
                yield PanelRow(where, panels, method.index)


class ClassPanels:
    """Draws the pictures of one run: classes in their colours, and uncertainty on one scale for all."""

    def __init__(self, run: Run, pictures: Sequence[ShownPicture]) -> None:
        self.run, self.amount = run, ColourScale(scale_ends(pictures)[2], AMOUNT, "nats")

    def rows(self, picture: ShownPicture, methods: Sequence[RunMethod], domain: EvalDomain) -> Iterator[PanelRow]:
        """Image, truth and a key in a row, then a row for each method."""
        styles, target = class_styles(self.run, domain.name), read_classes(picture.target)
        shown = [method for method in methods if method.name in picture.methods]
        maps = [read_classes(picture.methods[method.name].predicted) for method in shown]
        first = [
            Panel("Image", photo_chart(picture)),
            Panel("True classes", classes_chart("True classes", target, styles)),
            Panel("Classes in these pictures", class_key([target, *maps], styles)),
        ]
        yield PanelRow("Image and truth", first)
        for method, predicted in zip(shown, maps, strict=True):
            prediction, wrong = picture.methods[method.name], wrong_pixels(predicted, target)
            where, known = f"{method.label}, {m_equals(prediction.M)}", known_values([wrong])
            share = f": {percent(float(known.mean()))} of the labelled pixels" if known.size else ""
            entropy = grid_chart(f"Predictive entropy, {where}", read_grid(prediction.uncertainty), self.amount)
            panels = [
                Panel("Predicted classes", classes_chart(f"Predicted classes, {where}", predicted, styles)),
                Panel(f"Where it is wrong{share}", errors_chart(f"Errors, {where}", wrong)),
                Panel("Uncertainty (entropy)", entropy),
            ]
            yield PanelRow(where, panels, method.index)


def classes_chart(description: str, classes: ClassMap | None, styles: ClassStyles) -> Drawing | None:
    """A map of classes in their colours; None without a map."""
    if classes is None:
        return None
    colours = [styles.of(number).colour for number in range(NUM_COLOURS - len(STRIPES))]
    return _striped_chart(description, np.minimum(classes, len(colours) - 1), classes != UNLABELLED, colours)


def errors_chart(description: str, wrong: GridValues | None) -> Drawing | None:
    """Where a prediction is wrong, in the colours of uncertainty; None where that is not known."""
    if wrong is None:
        return None
    return _striped_chart(description, wrong == 1, np.isfinite(wrong), [shade(RIGHT), shade(WRONG)])


def _striped_chart(description: str, numbers: NDArray[Any], known: NDArray[Any], colours: Sequence[RGB]) -> Drawing:
    """A map of numbers in their colours: every n-th pixel, with stripes that go up to the right where unknown."""
    step = -(-numbers.shape[1] // MOST_COLUMNS)
    numbers, known = numbers[::step, ::step], known[::step, ::step]
    rows, columns = np.indices(numbers.shape)
    stripes = (rows + columns) // max(2, numbers.shape[1] // STRIPE) % 2
    image = indexed(np.where(known, numbers, len(colours) + stripes), np.array([*colours, *STRIPES], np.uint8))
    return _drawing(description, image, WIDTH * numbers.shape[0] / numbers.shape[1])


def class_key(maps: Sequence[ClassMap | None], styles: ClassStyles) -> Drawing | None:
    """The classes that occur in any of some maps, with their colours; None where there are none."""
    numbers = sorted({int(number) for classes in maps if classes is not None for number in np.unique(classes)})
    if not numbers:
        return None
    named = [
        (None, "not labelled") if number == UNLABELLED else (styles.of(number), styles.of(number).name)
        for number in numbers
    ]
    items = [Markup("<li>{} <span>{}</span></li>").format(class_swatch(style), name) for style, name in named]
    lines, width = -(-len(named) // KEY_COLUMNS), KEY_ROOM + LETTER * max(len(name) for _, name in named)

    def draw(axes: Any, x: float, y: float) -> None:
        for place, (style, name) in enumerate(named):
            left, top = x + place // lines * width, y + 4 + LINE * (place % lines)
            colour = hex_colour(STRIPES[0] if style is None else style.colour)
            hatch = {"hatch": "////", "edgecolor": hex_colour(STRIPES[1])} if style is None else {}
            axes.fill_between([left, left + 12], top, top + 12, facecolor=colour, linewidth=0, **hatch)
            axes.text(left + 18, top + 10, name)

    html = Markup('<ul class="class-key">{}</ul>').format(Markup("").join(items))
    size = width * -(-len(named) // lines), LINE * lines + 8
    return Drawing(html, "Classes in these pictures", size, draw)


def draw_rows(rows: Sequence[PanelRow]) -> Any:
    """Draw the pictures of one image on one matplotlib figure: a row for each method, with titles."""
    with settings():
        axes = empty_figure((WIDTH, WIDTH)).add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        right, y = 0.0, MARGIN
        for row in rows:
            axes.text(MARGIN, y + 10, row.title, fontweight="bold", color=LIGHT["ink"])
            x, y = MARGIN, y + LINE + PANEL_TITLE
            for panel in row.panels:
                axes.text(x, y - 6, panel.title)
                if panel.chart:
                    panel.chart.draw(axes, x, y)
                else:
                    axes.text(x, y + 24, "no picture")
                x += (panel.chart.size[0] if panel.chart else WIDTH) + PANEL_GAP
            right = max(right, x - PANEL_GAP + MARGIN)
            y += max((panel.chart.size[1] for panel in row.panels if panel.chart), default=LINE) + PANEL_GAP
        bottom = y - PANEL_GAP + MARGIN
        axes.figure.set_size_inches(right / PER_INCH, bottom / PER_INCH)
        axes.set(xlim=(0, right), ylim=(bottom, 0), aspect="auto")
        return axes
