"""What pictures on a page are made of: panels in rows, an image in a drawing of a fixed width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.report.grids import photo_uri
from epibench.report.numbers import finite
from epibench.report.svg import element, markup

WIDTH = 380.0  # about as wide as three in a row are on a screen, so that text has its usual size
BAR_ROOM = 26.0
MOST_COLUMNS = 640  # of a picture; larger ones are shrunk, as the page has no room to show more


@dataclass(frozen=True)
class Panel:
    """One picture and what it shows; None where it could not be drawn."""

    title: str
    chart: Markup | None


@dataclass(frozen=True)
class PanelRow:
    """Pictures that belong together; those of a method carry its style."""

    title: str
    panels: list[Panel]
    style: int | None = None


def picture_canvas(height: float, description: str, bar: bool = False) -> Element:
    """An empty drawing for a picture of some height, with room for a colour bar below."""
    box = f"0 0 {WIDTH:g} {height + (BAR_ROOM if bar else 0.0):.1f}"
    return element(None, "svg", viewBox=box, role="img", aria_label=description, class_="picture")


def picture_panel(root: Element, uri: str, height: float) -> None:
    """An image that fills the drawing, less the room for a colour bar."""
    element(root, "image", href=uri, preserveAspectRatio="none", x=0, y=0, width=WIDTH, height=height)


def picture_methods(picture: dict[str, Any]) -> dict[str, Any]:
    """What a picture holds for each method."""
    found = picture.get("methods")
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def photo_chart(picture: dict[str, Any]) -> Markup | None:
    """The photo of a picture; None where it cannot be read."""
    uri, height, width = photo_uri(picture.get("photo")), finite(picture.get("height")), finite(picture.get("width"))
    if uri is None or not height or not width:
        return None
    shown = WIDTH * height / width
    root = picture_canvas(shown, f"Image {picture.get('image', '')}".rstrip())
    picture_panel(root, uri, shown)
    return markup(root)
