"""What the classes of a domain are called and which colours they have, on pictures and in tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from epibench.data.classes import class_colour
from epibench.report.numbers import finite
from epibench.report.svg import element, markup

RGB = tuple[int, int, int]
UNLABELLED = 255
STRIPES: tuple[RGB, RGB] = ((0x9A, 0xA0, 0xA8), (0xB9, 0xBE, 0xC5))  # of what has no label; seen on light and dark


@dataclass(frozen=True)
class ClassStyle:
    """A class: its number, its name and its colour."""

    number: int
    name: str
    colour: RGB


@dataclass(frozen=True)
class ClassStyles:
    """Names and colours as results give them; numbers, and the colours of class tables that give none, for the rest."""

    names: Sequence[Any] = ()
    colours: Sequence[Any] = ()

    def of(self, number: int) -> ClassStyle:
        """The style of a class."""
        name = str(self.names[number]) if number < len(self.names) else f"class {number}"
        given = _rgb(self.colours[number]) if number < len(self.colours) else None
        return ClassStyle(number, name, given or class_colour(number))


def class_styles(results: Mapping[str, Any], domain: str) -> ClassStyles:
    """The classes that a domain is scored on: its own where it has some, otherwise those of the run."""
    domains = results.get("domains")
    about = domains.get(domain) if isinstance(domains, Mapping) else None
    source = about if isinstance(about, Mapping) and about.get("class_names") else results
    names, colours = (source.get(key) for key in ("class_names", "class_colours"))
    return ClassStyles(names if isinstance(names, list) else (), colours if isinstance(colours, list) else ())


def _rgb(given: Any) -> RGB | None:
    parts = [finite(part) for part in given] if isinstance(given, list | tuple) else []
    if len(parts) != 3 or any(part is None or not 0 <= part <= 255 for part in parts):
        return None
    red, green, blue = (int(part or 0) for part in parts)
    return red, green, blue


def class_swatch(style: ClassStyle | None) -> Markup:
    """A small square in the colour of a class; striped for what has no label."""
    root = element(None, "svg", class_="class-swatch", viewBox="0 0 12 12", aria_hidden="true")
    element(root, "rect", width=12, height=12, fill=_hex(STRIPES[0] if style is None else style.colour))
    if style is None:
        element(root, "path", d="M-1,9L9,-1M3,13L13,3", stroke=_hex(STRIPES[1]), stroke_width=3)
    return markup(root)


def _hex(colour: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
