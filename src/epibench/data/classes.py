"""Class tables: the classes of the values of label images. Tables in CSV files, and default colours."""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from epibench.errors import InputError, some_of
from epibench.oklab import from_oklab, in_bytes

if TYPE_CHECKING:
    from torch import Tensor

Colour = tuple[int, int, int]
Value = int | Colour
Pairs = tuple[tuple[str, str], ...]  # of a mapping: (class of the model, class of the domain)

IGNORE = 255
UNKNOWN = 254  # in lookup tables: no value of the class table
MAX_CLASSES = 254
MAX_NAMED = 3


@dataclass(frozen=True)
class ClassTable:
    """Classes with names and colours, and the class of each value of a label image.

    values: (value, class or IGNORE). A value is a number of 0 … 255 in a grey image, or a colour in an RGB image.
    """

    name: str
    names: tuple[str, ...]
    colours: tuple[Colour, ...]
    values: tuple[tuple[Value, int], ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.names) <= MAX_CLASSES:
            raise InputError(f"class table '{self.name}': has {len(self.names)} classes; give 1 to {MAX_CLASSES}")
        if len(set(self.names)) < len(self.names) or not all(self.names):
            raise InputError(f"class table '{self.name}': names must differ, and none may be empty")
        if len(self.colours) != len(self.names):
            raise InputError(f"class table '{self.name}': {len(self.names)} names, but {len(self.colours)} colours")

    @property
    def num_classes(self) -> int:
        """The number of classes."""
        return len(self.names)

    @property
    def in_colour(self) -> bool:
        """Whether label images are RGB."""
        return isinstance(self.values[0][0], tuple)

    @property
    def digest(self) -> str:
        """A hash of names and values, which changes when label images are decoded differently."""
        text = json.dumps([self.names, sorted(self.values, key=str)])
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    def decode(self, picture: npt.NDArray[np.uint8], path: Path | str) -> Tensor:
        """Return classes, IGNORE for uncounted pixels, (height, width) int64.

        Args:
            picture: (height, width) numbers, or (height, width, 3) colours.
            path: Name of the picture in errors.

        Raises:
            InputError: A value is not in the table.
        """
        import torch

        numbers: npt.NDArray[np.integer] = picture
        if self.in_colour:  # as numbers of 24 bits
            red, green, blue = np.moveaxis(picture.astype(np.int32), -1, 0)
            numbers = red << 16 | green << 8 | blue
        classes = _lookup(self.values)[numbers]
        if (classes == UNKNOWN).any():
            raise InputError(f"{path}: {self._unknown(numbers, classes == UNKNOWN)}")
        return torch.from_numpy(classes).long()

    def _unknown(self, numbers: npt.NDArray[np.integer], unknown: npt.NDArray[np.bool_]) -> str:
        """Return a text about values that are not in the table: their number and first place."""
        values, counts = np.unique(numbers[unknown], return_counts=True)
        row, column = np.argwhere(unknown)[0]
        colour = "{0} {1} {2}".format if self.in_colour else "{3}".format
        shown = some_of([colour(v >> 16, v >> 8 & 255, v & 255, v) for v in values.tolist()], MAX_NAMED)
        kind = ("colour" if self.in_colour else "value") + ("s" if len(values) > 1 else "")
        pixels = "1 pixel" if counts.sum() == 1 else f"{counts.sum():,} pixels"
        return (
            f"{kind} {shown} in {pixels}, first in row {row}, column {column}: not in the class table "
            f"'{self.name}'; give the table of these files, or add the value to yours (without a name: not counted)"
        )


@lru_cache(8)
def _lookup(values: tuple[tuple[Value, int], ...]) -> npt.NDArray[np.uint8]:
    """Return the class of every value, UNKNOWN for values that are not in the table."""
    table = np.full(2**24 if isinstance(values[0][0], tuple) else 256, UNKNOWN, np.uint8)
    for value, number in values:
        table[value if isinstance(value, int) else value[0] << 16 | value[1] << 8 | value[2]] = number
    return table


def table_of_names(names: Sequence[str], name: str = "own", colours: Sequence[Colour] | None = None) -> ClassTable:
    """Return classes 0 … n − 1 with these names; 255 is not counted."""
    values = ((number, number) for number in range(len(names)))
    colours = class_colours(len(names)) if colours is None else tuple(colours)
    return ClassTable(name, tuple(names), colours, (*values, (IGNORE, IGNORE)))


ROWS = "give rows of value,name[,colour], as 7,road or 128 64 128,road"
HEX = re.compile(r"#[0-9a-fA-F]{6}")


def read_classes(path: Path | str) -> ClassTable:
    """Read a table from a CSV file with rows `value,name[,colour]`.

    Rows of one name are merged. A value without a name is not counted. Classes are numbered in the order of their first
    rows. 255 is not counted unless it has a row.
    """
    names: dict[str, Colour | None] = {}
    values: dict[Value, int] = {}
    for line, cells in _csv_lines(Path(path)):
        value, name, colour = _parsed(cells, line)
        if value in values:
            raise InputError(f"{line}: value '{cells[0]}' has a row already; give each value once")
        if values and isinstance(value, int) != isinstance(next(iter(values)), int):
            raise InputError(f"{line}: '{cells[0]}' mixes numbers and colours; a label image has one of them")
        if name and names.get(name) not in (None, colour) and colour is not None:
            raise InputError(f"{line}: '{name}' has another colour already; give one for each class")
        if name and (name not in names or names[name] is None):
            names[name] = colour
        values[value] = list(names).index(name) if name else IGNORE
    if not 1 <= len(names) <= MAX_CLASSES:
        raise InputError(f"{path}: has {len(names) or 'no'} classes, but 1 to {MAX_CLASSES} are possible; {ROWS}")
    if isinstance(next(iter(values)), int):
        values.setdefault(IGNORE, IGNORE)
    return ClassTable(Path(path).stem, tuple(names), _table_colours(names, values), tuple(values.items()))


def _csv_lines(path: Path) -> list[tuple[str, list[str]]]:
    """Return the cells of each non-empty line, with `FILE, line N`."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        problem = "file is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise InputError(f"{path}: {problem}; give a class table, from the current folder (see docs/data.md)") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: is no text in UTF-8; save the class table as CSV in UTF-8") from None
    first = next((line for line in lines if line.strip()), "")
    delimiter = next((letter for letter in ",;\t" if letter in first), ",")
    try:
        rows = [[cell.strip() for cell in cells] for cells in csv.reader(lines, delimiter=delimiter)]
    except csv.Error as error:
        raise InputError(f"{path}: is no CSV file ({error}); {ROWS}") from None
    filled = [(f"{path}, line {number}", cells) for number, cells in enumerate(rows, 1) if any(cells)]
    return filled[1:] if filled and filled[0][1][0].lower() == "value" else filled


def _parsed(cells: list[str], line: str) -> tuple[Value, str, Colour | None]:
    if len(cells) > 3:
        raise InputError(f"{line}: has {len(cells)} cells; {ROWS}")
    text, name, colour = (*cells, "", "")[:3]
    if colour and _colour(colour) is None:
        raise InputError(f"{line}: '{colour}' is no colour; give it as 128 64 128 or #804080")
    value = _colour(text)
    if value is None and not (text.isdecimal() and text.isascii() and int(text) <= 255):
        raise InputError(f"{line}: '{text}' is neither a number from 0 to 255 nor a colour; {ROWS}")
    return int(text) if value is None else value, name, _colour(colour)


def _colour(text: str) -> Colour | None:
    """Parse `128 64 128` or `#804080`; None for other text."""
    if HEX.fullmatch(text):
        return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
    parts = text.split()
    if len(parts) != 3 or not all(part.isdecimal() and part.isascii() and int(part) <= 255 for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def _table_colours(names: dict[str, Colour | None], values: dict[Value, int]) -> tuple[Colour, ...]:
    """Return the given colour, the first colour of label images, or a default colour of each class."""
    seen = {number: value for value, number in reversed(values.items()) if isinstance(value, tuple)}
    return tuple(given or seen.get(number) or class_colour(number) for number, given in enumerate(names.values()))


GOLDEN_ANGLE = math.pi * (3 - math.sqrt(5))
# Lightness and chroma in OKLCH (Ottosson 2020), in turn, so that similar hues differ in lightness.
SHADES = ((0.68, 0.16), (0.50, 0.13), (0.83, 0.11))
AGAIN = 21  # 21 golden angles are nearly 8 turns: from there on, hues repeat, darker and paler
FADE = 0.87


def class_colours(number: int) -> tuple[Colour, ...]:
    """Return distinct colours of classes 0 … number − 1. A class has the same colour for any number."""
    return tuple(class_colour(index) for index in range(number))


def class_colour(index: int) -> Colour:
    """Return the colour of a class."""
    lightness, chroma = SHADES[index % len(SHADES)]
    fade = FADE ** (index // AGAIN)
    hue, strength = 0.4 + index * GOLDEN_ANGLE, chroma * fade**3
    return in_bytes(from_oklab(lightness * fade, strength * math.cos(hue), strength * math.sin(hue)))
