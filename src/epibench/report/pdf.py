"""Drawings as PDF, through matplotlib's writer: vectors, embedded fonts, the size of the page that of the drawing.

Of SVG this draws what our own drawings consist of, and nothing else: groups that are moved or cut, lines, paths,
rectangles, ellipses, texts and embedded pictures, with attributes for styles.
"""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

import numpy as np
from PIL import Image

from epibench.errors import InputError

if TYPE_CHECKING:
    from epibench.report.standalone import Drawing

POINTS = 72 / 96  # of a pixel
PER_INCH = 96.0
FONTS = (
    "Arial",
    "Helvetica",
    "Liberation Sans",
    "Nimbus Sans",
)  # the first that is installed; narrow as those of pages
WIDE_FONT, SHRINK = "DejaVu Sans", 0.9  # comes with matplotlib and has every letter that we use, but is wider
ANCHORS = {"start": "left", "middle": "center", "end": "right"}
ABOUT = {"Creator": "epibench", "Producer": None, "CreationDate": None}  # the same drawing gives the same file

_COMMAND = re.compile(r"([MmLlHhVvAaZz])([^MmLlHhVvAaZz]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
_MOVE = re.compile(r"translate\((-?[\d.e-]+),(-?[\d.e-]+)\)")


def check_pdf() -> None:
    """Say what is missing for PDF files."""
    try:
        import matplotlib.backends.backend_pdf  # noqa: F401
    except ImportError:
        raise InputError("PDF figures need the package matplotlib: pip install 'epibench[pdf]'") from None


def pdf_bytes(drawing: Drawing) -> bytes:
    """The drawing as a PDF file of one page."""
    check_pdf()
    import matplotlib
    from matplotlib.backends.backend_pdf import FigureCanvasPdf
    from matplotlib.figure import Figure

    width, height = drawing.size
    stream = io.BytesIO()
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "pdf.fonttype": 42, "backend": "pdf"}):
        figure = Figure(figsize=(width / PER_INCH, height / PER_INCH), dpi=72)
        FigureCanvasPdf(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_axis_off()
        _Page(axes, _clips(drawing.root)).draw(drawing.root, State())
        figure.savefig(stream, format="pdf", metadata={**ABOUT, "Title": drawing.title})
    return stream.getvalue()


def _clips(root: Element) -> dict[str, Mapping[str, str]]:
    """The rectangles that groups are cut to, by their reference."""
    return {f"url(#{one.get('id')})": one[0].attrib for one in root.iter() if _tag(one) == "clipPath"}


def _tag(one: Element) -> str:
    return one.tag.rpartition("}")[2]


@dataclass(frozen=True)
class State:
    """What groups pass on to what they hold: where it is moved to, how it looks, and what it is cut to."""

    x: float = 0.0
    y: float = 0.0
    opacity: float = 1.0
    style: tuple[tuple[str, str], ...] = ()
    clip: Any = None

    def within(self, one: Element) -> State:
        """The state of an element."""
        moved = _MOVE.search(one.get("transform", ""))
        x, y = (float(moved[1]), float(moved[2])) if moved else (0.0, 0.0)
        style = {**dict(self.style), **one.attrib}
        opacity = self.opacity * float(one.get("opacity", 1.0))
        return replace(self, x=self.x + x, y=self.y + y, opacity=opacity, style=tuple(style.items()))

    def get(self, name: str, default: str) -> str:
        """An attribute of the element or of what it is in."""
        return dict(self.style).get(name, default)


class _Page:
    """The page that is drawn on, in pixels of the drawing."""

    def __init__(self, axes: Any, clips: Mapping[str, Mapping[str, str]]) -> None:
        self.axes, self.clips, self.order = axes, clips, 0

    def draw(self, one: Element, above: State) -> None:
        """Draw an element and what it holds."""
        state, tag = above.within(one), _tag(one)
        if tag == "clipPath":
            return
        if clip := self.clips.get(one.get("clip-path", "")):
            state = replace(state, clip=self._clip(clip, state))
        self.order += 1
        if tag in ("path", "line", "rect", "ellipse"):
            self._path(one, state, tag)
        elif tag == "text" and one.text:
            self._text(one, state)
        elif tag == "image":
            self._image(one, state)
        for child in one:
            self.draw(child, state)

    def _clip(self, box: Mapping[str, str], state: State) -> Any:
        from matplotlib.patches import Rectangle

        x, y, width, height = (float(box[name]) for name in ("x", "y", "width", "height"))
        return Rectangle((x + state.x, y + state.y), width, height, transform=self.axes.transData)

    def _path(self, one: Element, state: State, tag: str) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        outline = _outline(one, tag)
        path = Path(outline.vertices + np.array([state.x, state.y]), outline.codes)
        fill, stroke = state.get("fill", "#000000" if tag != "line" else "none"), state.get("stroke", "none")
        width = float(state.get("stroke-width", "1")) * POINTS
        dashes = [float(n) * POINTS / max(width, 1e-9) for n in _NUMBER.findall(state.get("stroke-dasharray", ""))]
        patch = PathPatch(
            path,
            facecolor=fill if fill != "none" else (0, 0, 0, 0),
            edgecolor=stroke if stroke != "none" else (0, 0, 0, 0),
            linewidth=width if stroke != "none" else 0.0,
            linestyle=(0, dashes) if dashes else "-",
            joinstyle=state.get("stroke-linejoin", "miter"),
            capstyle={"round": "round"}.get(state.get("stroke-linecap", ""), "butt"),
            alpha=state.opacity if state.opacity < 1 else None,
            fill=fill != "none",
        )
        self._add(patch, state)

    def _text(self, one: Element, state: State) -> None:
        names, factor = _fonts()
        size = float(state.get("font-size", "11")) * POINTS * factor
        self._add(
            self.axes.text(
                float(one.get("x", 0)) + state.x,
                float(one.get("y", 0)) + state.y,
                (one.text or "").replace("$", r"\$"),
                fontsize=size,
                fontfamily=list(names),
                fontweight=state.get("font-weight", "normal"),
                color=state.get("fill", "#000000"),
                alpha=state.opacity,
                ha=ANCHORS[state.get("text-anchor", "start")],
                va="baseline",
                parse_math=False,
            ),
            state,
        )

    def _image(self, one: Element, state: State) -> None:
        content = base64.b64decode(one.attrib["href"].partition("base64,")[2])
        x, y, width, height = (float(one.get(name, 0)) for name in ("x", "y", "width", "height"))
        pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGBA"))
        extent = (x + state.x, x + state.x + width, y + state.y + height, y + state.y)
        self._add(self.axes.imshow(pixels, extent=extent, interpolation="none", aspect="auto", origin="upper"), state)
        # Showing a picture moves the limits.
        self.axes.set_xlim(0, self.axes.figure.get_figwidth() * PER_INCH)
        self.axes.set_ylim(self.axes.figure.get_figheight() * PER_INCH, 0)

    def _add(self, artist: Any, state: State) -> None:
        """Put something on top of what is there."""
        artist.set_zorder(self.order)
        if artist.axes is None:
            self.axes.add_artist(artist)
        if state.clip is not None:
            artist.set_clip_path(state.clip)
        else:
            artist.set_clip_on(False)


@cache
def _fonts() -> tuple[tuple[str, ...], float]:
    """The fonts of texts, the first preferred, and what their size is multiplied with."""
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    found = next((name for name in FONTS if name in known), None)
    return ((WIDE_FONT,), SHRINK) if found is None else ((found, WIDE_FONT), 1.0)


def _outline(one: Element, tag: str) -> Any:
    """The outline of an element, as matplotlib's path in pixels."""
    from matplotlib.path import Path

    def number(name: str) -> float:
        return float(one.get(name, 0))

    if tag == "line":
        return Path([(number("x1"), number("y1")), (number("x2"), number("y2"))])
    if tag == "rect":
        left, top, right, bottom = number("x"), number("y"), number("width"), number("height")
        return Path.unit_rectangle().transformed(_affine(right, bottom, left, top))
    if tag == "ellipse":
        return Path.unit_circle().transformed(_affine(number("rx"), number("ry"), number("cx"), number("cy")))
    return Path.make_compound_path(*_parts(one.get("d", "")))


def _affine(across: float, down: float, x: float, y: float) -> Any:
    from matplotlib.transforms import Affine2D

    return Affine2D().scale(across, down).translate(x, y)


def _parts(text: str) -> Iterator[Any]:
    """The parts of an SVG path; arcs are those of circles, as markers have them: two halves."""
    from matplotlib.path import Path

    points: list[tuple[float, float]] = []
    closed, x, y = False, 0.0, 0.0

    def part() -> Iterator[Any]:
        if points:
            end = [points[0]] if closed else []
            codes = [Path.MOVETO, *[Path.LINETO] * (len(points) - 1), *([Path.CLOSEPOLY] if closed else [])]
            yield Path([*points, *end], codes)

    for command, rest in _COMMAND.findall(text):
        values = [float(found) for found in _NUMBER.findall(rest)]
        relative = command.islower()
        if command in "Aa":
            radius = values[0]
            centre = (x + radius, y) if values[5] > 0 else (x - radius, y)
            if values[5] > 0:
                yield Path.circle(centre, radius)
            x, y, points = x + values[5], y + values[6], []
            continue
        if command in "Zz":
            closed = True
            continue
        if command in "Mm":
            yield from part()
            points, closed = [], False
        for first, second in _steps(command, values):
            if command in "Hh":
                x = x + first if relative else first
            elif command in "Vv":
                y = y + first if relative else first
            else:
                x, y = (x + first, y + second) if relative else (first, second)
            points.append((x, y))
    yield from part()


def _steps(command: str, values: list[float]) -> Iterator[tuple[float, float]]:
    """The numbers of a command, two at a time, or one at a time for those along an axis."""
    if command in "HhVv":
        yield from ((value, 0.0) for value in values)
    else:
        yield from zip(values[::2], values[1::2], strict=True)
