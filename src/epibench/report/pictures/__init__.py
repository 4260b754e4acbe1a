"""Pictures of what methods predict."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from epibench.report.chart import Size


@dataclass(frozen=True)
class Drawing:
    """A picture for pages, and what draws it with matplotlib.

    Pictures of toy problems have axes of their own: draw(title, key) draws the example with a key on a new figure.
    Others are parts of a figure: draw(axes, x, y) places them, in pixels.
    """

    html: Markup
    description: str
    size: Size
    draw: Callable[..., Any]
    keys: Sequence[str] = ("",)

    def __html__(self) -> str:
        return self.html

    __str__ = __html__


@dataclass(frozen=True)
class Panel:
    """One picture with its title; None where it could not be drawn. style: of the method, if it stands alone."""

    title: str
    chart: Drawing | None
    style: int | None = None


@dataclass(frozen=True)
class PanelRow:
    """Pictures that belong together. style: of their method."""

    title: str
    panels: list[Panel]
    style: int | None = None
