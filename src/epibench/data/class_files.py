"""Class tables of one's own: a CSV file, a list of names, or the name of a built-in one."""

from __future__ import annotations

import csv
import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from epibench.data.class_colours import Colour, class_colours
from epibench.data.labels import CLASS_TABLES, IGNORE, MAX_CLASSES, ClassTable, Value, table_of_names
from epibench.errors import InputError

HEADER = "value"
ROWS = "give rows of value,name[,colour], as 7,road or 128 64 128,road"
HEX = re.compile(r"#[0-9a-fA-F]{6}")


def find_classes(given: str | Path | Sequence[str]) -> ClassTable:
    """The built-in table of that name, the one in a CSV file, or one of these names."""
    if not isinstance(given, str | Path):
        return table_of_names(given)
    if str(given) in CLASS_TABLES:
        return CLASS_TABLES[str(given)]
    path = Path(given).expanduser()
    if path.suffix.lower() != ".csv" and not path.is_file():
        nearest = difflib.get_close_matches(str(given), CLASS_TABLES, 1, 0.0)[0]
        known = ", ".join(CLASS_TABLES)
        raise InputError(
            f"classes '{given}': no class table is called so, the nearest is {nearest} (there are {known}); or give a "
            f".csv file"
        )
    return read_classes(path)


def read_classes(path: Path | str) -> ClassTable:
    """The table in a CSV file with rows `value,name[,colour]`; rows of one name are merged, no name: not counted.

    Classes are numbered in the order of their first rows. 255 is not counted unless it has a row.
    """
    names: dict[str, Colour | None] = {}
    values: dict[Value, int] = {}
    for place, cells in _rows(Path(path)):
        value, name, colour = _parsed(cells, place)
        if value in values:
            raise InputError(f"{place}: value '{cells[0]}' has a row already; give each value once")
        if values and isinstance(value, int) != isinstance(next(iter(values)), int):
            raise InputError(f"{place}: '{cells[0]}' mixes numbers and colours; a label image has one of them")
        if name and names.get(name) not in (None, colour) and colour is not None:
            raise InputError(f"{place}: '{name}' has another colour already; give one for each class")
        if name and (name not in names or names[name] is None):
            names[name] = colour
        values[value] = list(names).index(name) if name else IGNORE
    if not 1 <= len(names) <= MAX_CLASSES:
        raise InputError(f"{path}: has {len(names) or 'no'} classes, but 1 to {MAX_CLASSES} are possible; {ROWS}")
    if isinstance(next(iter(values)), int):
        values.setdefault(IGNORE, IGNORE)
    return ClassTable(Path(path).stem, tuple(names), _colours(names, values), tuple(values.items()))


def _rows(path: Path) -> list[tuple[str, list[str]]]:
    """Rows with something in them, each with `FILE, line N`."""
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
    found = [(f"{path}, line {number}", cells) for number, cells in enumerate(rows, 1) if any(cells)]
    return found[1:] if found and found[0][1][0].lower() == HEADER else found


def _parsed(cells: list[str], place: str) -> tuple[Value, str, Colour | None]:
    if len(cells) > 3:
        raise InputError(f"{place}: has {len(cells)} cells; {ROWS}")
    value, name, colour = (*cells, "", "")[:3]
    parsed = _colour(value)
    if parsed is not None:
        return parsed, name, _own_colour(colour, place)
    if not (value.isdecimal() and value.isascii() and int(value) <= 255):
        raise InputError(f"{place}: '{value}' is neither a number from 0 to 255 nor a colour; {ROWS}")
    return int(value), name, _own_colour(colour, place)


def _own_colour(text: str, place: str) -> Colour | None:
    if text and _colour(text) is None:
        raise InputError(f"{place}: '{text}' is no colour; give it as 128 64 128 or #804080")
    return _colour(text)


def _colour(text: str) -> Colour | None:
    """`128 64 128` or `#804080`."""
    if HEX.fullmatch(text):
        return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
    parts = text.split()
    if len(parts) != 3 or not all(part.isdecimal() and part.isascii() and int(part) <= 255 for part in parts):
        return None
    return int(parts[0]), int(parts[1]), int(parts[2])


def _colours(names: dict[str, Colour | None], values: dict[Value, int]) -> tuple[Colour, ...]:
    """The colour that is given, or the first one in label images, or one of ours."""
    found = []
    for number, (given, default) in enumerate(zip(names.values(), class_colours(len(names)), strict=True)):
        first = next(value for value, each in values.items() if each == number)
        found.append(given or (first if isinstance(first, tuple) else default))
    return tuple(found)
