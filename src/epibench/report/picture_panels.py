"""What pictures on a page are made of: panels in rows, an image in a drawing of a fixed width."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree.ElementTree import Element

from markupsafe import Markup

from epibench.report.svg import element

WIDTH = 380.0  # about as wide as three in a row are on a screen, so that text has its usual size
BAR_ROOM = 26.0


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
