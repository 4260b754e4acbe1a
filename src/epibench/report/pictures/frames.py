"""Frames of a sequence: image, prediction, error and uncertainty side by side, a row for each method.

All frames of a sequence have the same size and the same colour scales, so that nothing flickers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from epibench.report.entries import ClassStyles
from epibench.report.numbers import percent, significant
from epibench.report.pictures.colours import AMOUNT, DEPTH, ColourScale, GridValues, palette, scale_end
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
    wrong_pixels,
)
from epibench.results import ShownPicture

LEAST_WIDTH = 320  # of a panel: smaller pictures are enlarged by a whole number
GAP, LINE, FONT_SIZE, BAR_HEIGHT, SWATCH = 8, 18, 13, 8, 11
BACKGROUND, INK, FAINT, UNKNOWN = (255, 255, 255), (25, 25, 25), (110, 110, 110), (168, 168, 168)
COLUMNS = 4


@dataclass(frozen=True)
class Scales:
    """Where colours end: of depth in the target's unit, and of error and uncertainty."""

    depth: float
    amount: float


def scales_of(pictures: Sequence[ShownPicture], largest: float | None = None) -> Scales:
    """Scales that suit some pictures; largest: the end of error and uncertainty, if it is given."""
    depths = [read_grid(picture.target, zero_is_none=True) for picture in pictures]
    amounts = [error_of(picture, name) for picture in pictures for name in picture.methods]
    amounts += [
        read_grid(one.std if one.uncertainty is None else one.uncertainty)
        for picture in pictures
        for one in picture.methods.values()
    ]
    end = scale_end(known_values(amounts), 0.98) if largest is None else largest
    return Scales(scale_end(known_values(depths), 0.995), end)


@dataclass(frozen=True)
class FrameStyle:
    """How the frames of a sequence look. size: height and width of its pictures; methods: their labels, by name.

    classes: names and colours, None for depth.
    """

    title: str
    methods: Mapping[str, str]
    size: tuple[int, int]
    scales: Scales
    unit: str
    classes: ClassStyles | None = None

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
        full = (GAP + COLUMNS * (width + GAP), GAP + LINE + rows + self.key_height)
        return full[0] + full[0] % 2, full[1] + full[1] % 2

    @property
    def key_height(self) -> int:
        """Room for the key below the panels."""
        return 2 * LINE + GAP + (0 if self.classes is None else LINE * len(self.class_lines))

    @cached_property
    def amount_scale(self) -> ColourScale:
        """Of error and uncertainty."""
        return ColourScale(self.scales.amount, AMOUNT, self.unit)

    @cached_property
    def depth_scale(self) -> ColourScale:
        """Of depth."""
        return ColourScale(self.scales.depth, DEPTH, self.unit)

    @cached_property
    def class_lines(self) -> list[list[tuple[int, int]]]:
        """The key of the classes in lines: (class, left end)."""
        lines: list[list[tuple[int, int]]] = [[]]
        left, right = GAP, GAP + COLUMNS * (self.panel[0] + GAP)
        for number, name in enumerate(self.classes.names if self.classes else ()):
            room = SWATCH + 5 + round(_font().getlength(name)) + 2 * GAP
            if left + room > right and lines[-1]:
                lines.append([])
                left = GAP
            lines[-1].append((number, left))
            left += room
        return lines

    def draw(self, picture: ShownPicture, number: int, total: int) -> Image.Image:
        """A frame; number: of it in the sequence, from 1."""
        image = Image.new("RGB", self.frame, BACKGROUND)
        pen, (width, height) = ImageDraw.Draw(image), self.panel
        self._write(pen, GAP, GAP, f"{self.title}; image {picture.image} ({number} of {total})")
        photo = photo_image(picture.photo)
        top = GAP + LINE
        for row, (name, label) in enumerate(self.methods.items()):
            # Beside the second method stands the truth, as the image is shown already.
            first = ("Image", photo) if row == 0 else ("Truth", self._truth(picture)) if row == 1 else ("", None)
            for column, (text, shown) in enumerate([first, *self._panels(picture, name, label)]):
                left = GAP + column * (width + GAP)
                self._write(pen, left, top, _shortened(text, width))
                if shown is not None:
                    fitted = _fitted(shown, (width, height))
                    place = (left + (width - fitted.width) // 2, top + LINE + (height - fitted.height) // 2)
                    image.paste(fitted, place)
            top += LINE + height + GAP
        self._key(image, pen, top)
        return image

    def _panels(self, picture: ShownPicture, name: str, label: str) -> list[tuple[str, Image.Image | None]]:
        """Prediction, error and uncertainty of a method."""
        one = picture.methods[name]
        if self.classes is not None:
            predicted = read_classes(one.predicted)
            wrong = wrong_pixels(predicted, read_classes(picture.target))
            known = known_values([wrong])
            share = f": {percent(float(known.mean()))} of the pixels" if known.size else ""
            return [
                (label, self._classes(predicted)),
                (f"Wrong{share}", _errors(wrong)),
                ("Uncertainty: entropy", self._amounts(read_grid(one.uncertainty))),
            ]
        error = error_of(picture, name)
        known = known_values([error])
        mean = f", mean {significant(float(known.mean()), 3)} {self.unit}" if known.size else ""
        return [
            (label, self._depths(read_grid(one.mean))),
            (f"Absolute error{mean}", self._amounts(error)),
            ("Uncertainty: standard deviation", self._amounts(read_grid(one.std))),
        ]

    def _truth(self, picture: ShownPicture) -> Image.Image | None:
        if self.classes is not None:
            return self._classes(read_classes(picture.target))
        return self._depths(read_grid(picture.target, zero_is_none=True))

    def _classes(self, classes: ClassMap | None) -> Image.Image | None:
        if classes is None or self.classes is None:
            return None
        table = np.array([self.classes.of(number).colour for number in range(UNLABELLED)] + [UNKNOWN], np.uint8)
        return Image.fromarray(table[classes])

    def _depths(self, values: GridValues | None) -> Image.Image | None:
        return None if values is None else _coloured(self.depth_scale.shares(_visible(values)), palette(DEPTH))

    def _amounts(self, values: GridValues | None) -> Image.Image | None:
        return None if values is None else _coloured(self.amount_scale.shares(_visible(values)), palette(AMOUNT))

    def _key(self, image: Image.Image, pen: ImageDraw.ImageDraw, top: int) -> None:
        """The scales below their columns, then the classes."""
        width = self.panel[0]
        second, third, end = (GAP + column * (width + GAP) for column in (1, 2, 4))
        right = end - GAP
        if self.classes is None:
            self._bar(image, pen, self.depth_scale, second, second + width, top)
            self._bar(image, pen, self.amount_scale, third, right, top)
            self._write(pen, GAP, top, "Grey: not known", FAINT)
            return
        self._bar(image, pen, self.amount_scale, third + width + GAP, right, top)
        shades = palette(AMOUNT)
        left = third
        for share, word in ((RIGHT, "right"), (WRONG, "wrong"), (None, "no label")):
            index = 0 if share is None else round(share * 255)
            colour = UNKNOWN if share is None else tuple(shades[3 * index : 3 * index + 3])
            left = self._swatch(pen, left, top, colour, word)
        for line, entries in enumerate(self.class_lines):
            for number, place in entries:
                style = self.classes.of(number)
                self._swatch(pen, place, top + 2 * LINE + line * LINE, style.colour, style.name)

    def _bar(
        self, image: Image.Image, pen: ImageDraw.ImageDraw, scale: ColourScale, left: int, right: int, top: int
    ) -> None:
        """Colours from left to right with round numbers below them."""
        shares = np.linspace(0.0, 1.0, right - left, dtype=np.float32)
        image.paste(_coloured(np.tile(shares, (BAR_HEIGHT, 1)), palette(scale.anchors)), (left, top))
        *ticks, (_, last) = scale.ticks(right - left)
        words = f">= {last} {scale.unit}".rstrip()
        end = right - round(_font().getlength(words))
        self._write(pen, end, top + BAR_HEIGHT + 1, words, FAINT)
        for value, text in ticks:
            room = round(_font().getlength(text))
            middle = left + round((right - left) * float(np.sqrt(value / scale.upper)))
            place = left if value == 0 else middle - room // 2
            if place + room + GAP <= end:
                self._write(pen, place, top + BAR_HEIGHT + 1, text, FAINT)

    def _swatch(self, pen: ImageDraw.ImageDraw, left: int, top: int, colour: tuple[int, ...], word: str) -> int:
        """A colour and what it stands for; returns where the next may begin."""
        pen.rectangle((left, top + 3, left + SWATCH, top + 3 + SWATCH), fill=colour, outline=FAINT)
        self._write(pen, left + SWATCH + 5, top, word, FAINT)
        return left + SWATCH + 5 + round(_font().getlength(word)) + 2 * GAP

    @staticmethod
    def _write(pen: ImageDraw.ImageDraw, left: int, top: int, text: str, colour: tuple[int, int, int] = INK) -> None:
        # The font that Pillow brings has no sign for a space that does not break.
        pen.text((left, top), text.replace("\N{NO-BREAK SPACE}", " "), fill=colour, font=_font())


def _font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(FONT_SIZE)


def _shortened(text: str, room: int) -> str:
    """As much of a text as there is room for."""
    most = len(text)
    while most and _font().getlength(text[:most]) > room:
        most -= 1
    return text[:most]


def _coloured(shares: GridValues, colours: bytes) -> Image.Image:
    """Shares of a scale in its colours; grey where there is none."""
    table = np.concatenate([np.frombuffer(colours, np.uint8).reshape(-1, 3), np.array([UNKNOWN], np.uint8)])
    known = np.isfinite(shares)
    indices = np.where(known, np.round(np.where(known, shares, 0.0) * (len(table) - 2)), len(table) - 1)
    return Image.fromarray(table[indices.astype(np.int64)])


def _errors(wrong: GridValues | None) -> Image.Image | None:
    """Right and wrong pixels in the colours of uncertainty."""
    if wrong is None:
        return None
    shares = np.where(wrong > 0, WRONG, RIGHT).astype(np.float32)
    return _coloured(np.where(np.isfinite(wrong), shares, np.float32(np.nan)), palette(AMOUNT))


def _visible(values: GridValues) -> GridValues:
    """Single points, as those of a scan, enlarged."""
    return enlarged(values) if np.isfinite(values).mean() < SPARSE else values


def _fitted(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """As large as fits into a panel, its shape kept; pixels stay pixels."""
    factor = min(size[0] / image.width, size[1] / image.height)
    wanted = (max(1, round(image.width * factor)), max(1, round(image.height * factor)))
    return image if image.size == wanted else image.resize(wanted, Image.Resampling.NEAREST)
