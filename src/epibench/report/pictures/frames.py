"""Frames of a sequence: image, prediction, error and uncertainty side by side, a row for each method.

All frames of a sequence have the same size and the same colour scales, so that nothing flickers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from epibench.report.entries import ClassStyles
from epibench.report.numbers import percent, significant
from epibench.report.pictures.colours import AMOUNT, DEPTH, ColourScale, GridValues
from epibench.report.pictures.dense import (
    RIGHT,
    SPARSE,
    UNLABELLED,
    WRONG,
    ClassMap,
    enlarged,
    error_of,
    known_values,
    photo_image,
    read_classes,
    read_grid,
    shade,
    wrong_pixels,
)
from epibench.results import RGB, ShownPicture

LEAST_WIDTH = 320  # of a panel: smaller pictures are enlarged by a whole number
GAP, LINE, FONT_SIZE, BAR_HEIGHT, SWATCH = 8, 18, 13, 8, 11
BACKGROUND, INK, FAINT, UNKNOWN = (255, 255, 255), (25, 25, 25), (110, 110, 110), (168, 168, 168)
COLUMNS = 4


@dataclass(frozen=True)
class FrameStyle:
    """The look of the frames of a sequence.

    Args:
        title: Above every frame.
        methods: Their labels, by name.
        size: Height and width of the pictures.
        ends: Of the colours of depth, and of error and uncertainty.
        unit: Of error and uncertainty.
        classes: Names and colours; None for depth.
    """

    title: str
    methods: Mapping[str, str]
    size: tuple[int, int]
    ends: tuple[float, float]
    unit: str
    classes: ClassStyles | None = None

    @property
    def names(self) -> Sequence[str]:
        """Of classes."""
        return self.classes.names if self.classes else ()

    @cached_property
    def panel(self) -> tuple[int, int]:
        """Width and height of a panel."""
        height, width = self.size
        factor = max(1, round(LEAST_WIDTH / width))
        return width * factor, height * factor

    @property
    def frame(self) -> tuple[int, int]:
        """Width and height of a frame; both even, as many players ask for."""
        width, height = self.panel
        rows = max(1, len(self.methods)) * (LINE + height + GAP)
        lines = 3 + -(-len(self.names) // self.key_columns[0])
        full = (GAP + COLUMNS * (width + GAP), 2 * GAP + LINE * lines + rows)
        return full[0] + full[0] % 2, full[1] + full[1] % 2

    @cached_property
    def scales(self) -> tuple[ColourScale, ColourScale]:
        """Of depth, and of error and uncertainty."""
        depth, amount = self.ends
        return ColourScale(depth, DEPTH, self.unit), ColourScale(amount, AMOUNT, self.unit)

    @cached_property
    def key_columns(self) -> tuple[int, int]:
        """Number and width of the columns of classes in the key."""
        width = max((_swatch_width(name) for name in self.names), default=1)
        return max(1, COLUMNS * (self.panel[0] + GAP) // width), width

    def draw(self, picture: ShownPicture, number: int, total: int) -> Image.Image:
        """A frame; number: of it in the sequence, from 1."""
        image = Image.new("RGB", self.frame, BACKGROUND)
        pen, (width, height) = ImageDraw.Draw(image), self.panel
        _write(pen, GAP, GAP, f"{self.title}; image {picture.image} ({number} of {total})")
        # Beside the second method stands the truth, as the image is shown already.
        target, (depths, _) = picture.target, self.scales
        truth = (
            _coloured(read_grid(target, True), depths) if self.classes is None else self._classes(read_classes(target))
        )
        first = [("Image", photo_image(picture.photo)), ("Truth", truth), *[("", None)] * len(self.methods)]
        top = GAP + LINE
        for beside, (name, label) in zip(first, self.methods.items(), strict=False):
            for column, (text, shown) in enumerate([beside, *self._panels(picture, name, label)]):
                left = GAP + column * (width + GAP)
                while text and _text_width(text) > width:
                    text = text[:-1]
                _write(pen, left, top, text)
                if shown is not None:
                    # Pixels stay pixels.
                    fitted = ImageOps.pad(shown, (width, height), Image.Resampling.NEAREST, BACKGROUND)
                    image.paste(fitted, (left, top + LINE))
            top += LINE + height + GAP
        self._draw_key(image, pen, top)
        return image

    def _panels(self, picture: ShownPicture, name: str, label: str) -> list[tuple[str, Image.Image | None]]:
        one, (depths, amounts) = picture.methods[name], self.scales
        if self.classes is not None:
            predicted = read_classes(one.predicted)
            wrong = wrong_pixels(predicted, read_classes(picture.target))
            known = known_values([wrong])
            share = f": {percent(float(known.mean()))} of the pixels" if known.size else ""
            shades = np.array([shade(RIGHT), shade(WRONG), UNKNOWN], np.uint8)
            numbers = None if wrong is None else np.where(np.isfinite(wrong), wrong == 1, 2)
            return [
                (label, self._classes(predicted)),
                (f"Wrong{share}", None if numbers is None else Image.fromarray(shades[numbers])),
                ("Uncertainty: entropy", _coloured(read_grid(one.uncertainty), amounts)),
            ]
        error = error_of(picture, name)
        known = known_values([error])
        mean = f", mean {significant(float(known.mean()), 3)} {self.unit}" if known.size else ""
        return [
            (label, _coloured(read_grid(one.mean), depths)),
            (f"Absolute error{mean}", _coloured(error, amounts)),
            ("Uncertainty: standard deviation", _coloured(read_grid(one.std), amounts)),
        ]

    def _classes(self, classes: ClassMap | None) -> Image.Image | None:
        if classes is None or self.classes is None:
            return None
        table = np.array([self.classes.of(number).colour for number in range(UNLABELLED)] + [UNKNOWN], np.uint8)
        return Image.fromarray(table[classes])

    def _draw_key(self, image: Image.Image, pen: ImageDraw.ImageDraw, top: int) -> None:
        depths, amounts = self.scales
        second, third, fourth, end = (GAP + column * (self.panel[0] + GAP) for column in (1, 2, 3, 4))
        if self.classes is None:
            bars = [(depths, second, third - GAP), (amounts, third, end - GAP)]
            _write(pen, GAP, top, "Grey: not known", FAINT)
        else:
            bars = [(amounts, fourth, end - GAP)]
            swatches = [(shade(RIGHT), "right"), (shade(WRONG), "wrong"), (UNKNOWN, "no label")]
            for colour, word in swatches:
                _draw_swatch(pen, third, top, colour, word)
                third += _swatch_width(word)
            columns, width = self.key_columns
            for number, name in enumerate(self.names):
                left, down = GAP + number % columns * width, LINE * (2 + number // columns)
                _draw_swatch(pen, left, top + down, self.classes.of(number).colour, name)
        for scale, left, right in bars:
            image.paste(
                scale.bar.convert("RGB").resize((right - left, BAR_HEIGHT), Image.Resampling.NEAREST), (left, top)
            )
            free = right + GAP
            # From the last label, which has the unit, to the first: labels that would touch it are left out.
            for x, words, anchor in reversed([*scale.labels(right - left)]):
                words = words.replace("≥", ">=")  # the font lacks the sign
                room = _text_width(words)
                place = left + round(x) - {"start": 0, "middle": room // 2, "end": room}[anchor]
                if place + room + GAP <= free:
                    _write(pen, place, top + BAR_HEIGHT + 1, words, FAINT)
                    free = place if anchor == "end" else free


def _coloured(values: GridValues | None, scale: ColourScale) -> Image.Image | None:
    """Numbers in the colours of a scale, grey where unknown. Single points of a scan are enlarged."""
    if values is None:
        return None
    picture = scale.image(enlarged(values) if np.isfinite(values).mean() < SPARSE else values).convert("RGBA")
    ground = Image.new("RGB", picture.size, UNKNOWN)
    ground.paste(picture, mask=picture)
    return ground


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(FONT_SIZE)


def _text_width(text: str) -> int:
    return round(_font().getlength(text))


def _swatch_width(word: str) -> int:
    return SWATCH + 5 + _text_width(word) + 2 * GAP


def _draw_swatch(pen: ImageDraw.ImageDraw, left: int, top: int, colour: RGB, word: str) -> None:
    pen.rectangle((left, top + 3, left + SWATCH, top + 3 + SWATCH), fill=colour, outline=FAINT)
    _write(pen, left + SWATCH + 5, top, word, FAINT)


def _write(pen: ImageDraw.ImageDraw, left: int, top: int, text: str, colour: RGB = INK) -> None:
    # The font that Pillow brings has no sign for a space that does not break.
    pen.text((left, top), text.replace("\N{NO-BREAK SPACE}", " "), fill=colour, font=_font())
