"""Charts on matplotlib axes: in notebooks, and in PDF, PNG and SVG files that look as on the page.

Lengths are pixels of the page, 1/96 inch. matplotlib is imported only where something is drawn.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, Literal

from PIL import Image

from epibench.errors import InputError
from epibench.report.chart import (
    COUNTS_HEIGHT,
    DASHES,
    LIGHT,
    LOOKS,
    Axis,
    Bins,
    Box,
    Chart,
    Series,
    Size,
    areas,
    colour_of,
    mark_places,
    marker_of,
)

FileKind = Literal["svg", "pdf", "png"]
POINT = 72 / 96  # of a pixel
PER_INCH = 96
PNG_PER_INCH = 300
MARGIN, LINE, TITLE_ROOM, KEY_GAP = 10.0, 16.0, 19.0, 6.0
LETTER = 6.2  # the width of a letter of 11 px, on the generous side
TEXT, SMALL_TEXT = 11 * POINT, 9.5 * POINT
SWATCH, GAP = 26.0, 14.0  # of the key
FONTS = ("Arial", "Helvetica", "Liberation Sans", "Nimbus Sans", "DejaVu Sans")  # the last comes with matplotlib
MARKERS: tuple[Any, ...] = (
    *("o", "s", "^", "D", "v", "P", "p"),
    ((-4.2, -2.4), (4.2, -2.4), (4.2, 2.4), (-4.2, 2.4), (-4.2, -2.4)),
)
ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def check_matplotlib() -> None:
    """Raise InputError where figures cannot be drawn."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise InputError("figures: matplotlib is not installed. Fix: pip install 'epibench[figures]'") from None


@cache
def _fonts() -> list[str]:
    from matplotlib.font_manager import fontManager

    installed = {font.name for font in fontManager.ttflist}
    return [name for name in FONTS if name in installed]


def settings(page_style: bool = True) -> AbstractContextManager[None]:
    """The settings of figures and files: names are never read as formulas. page_style: colours, sizes and fonts."""
    check_matplotlib()
    import matplotlib

    soft, line, ink, grid = (LIGHT[name] for name in ("soft", "line", "ink", "grid"))
    plain: Any = {"text.parse_math": False, "text.usetex": False}
    own: Any = {
        **{"font.family": _fonts(), "font.size": TEXT},
        **{"text.color": soft, "axes.labelcolor": soft, "xtick.labelcolor": soft, "ytick.labelcolor": soft},
        **{"xtick.labelsize": TEXT, "ytick.labelsize": TEXT, "legend.fontsize": TEXT},
        **{"axes.labelsize": TEXT, "axes.labelpad": 4 * POINT},
        **{"axes.titlesize": TEXT, "axes.titleweight": "bold", "axes.titlecolor": ink, "axes.titlelocation": "left"},
        **{"axes.spines.left": False, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": line},
        **{"axes.grid": True, "axes.grid.axis": "y", "axes.axisbelow": True, "axes.facecolor": "none"},
        **{"grid.color": grid, "grid.linestyle": "-", "grid.linewidth": POINT, "axes.linewidth": POINT},
        **{"xtick.color": line, "xtick.major.size": 4 * POINT, "xtick.major.width": POINT, "ytick.major.size": 0},
        **{"legend.frameon": False, "legend.borderpad": 0, "legend.borderaxespad": 0, "legend.labelcolor": soft},
        **{"legend.handlelength": SWATCH / 11, "legend.handletextpad": 6 / 11, "legend.columnspacing": GAP / 11},
        **{"legend.labelspacing": LINE / 11 - 1},
        **{"figure.facecolor": "white", "savefig.facecolor": "auto"},
        **{"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "epibench"},
    }
    return matplotlib.rc_context({**plain, **own} if page_style else plain)


def empty_figure(size: Size, in_notebook: bool = False) -> Any:
    """A white figure; one for a notebook is known to pyplot, and so is shown."""
    check_matplotlib()
    from matplotlib.figure import Figure

    make: Any = Figure
    if in_notebook:
        from matplotlib import pyplot

        make = pyplot.figure
    return make(figsize=(size[0] / PER_INCH, size[1] / PER_INCH))


def file_bytes(figure: Any, kind: FileKind, title: str = "", description: str = "") -> bytes:
    """A figure as the content of a file; the same figure gives the same bytes, as there are no dates."""
    about: dict[FileKind, dict[str, str | None]] = {
        "svg": {"Creator": "epibench", "Date": None, "Title": title, "Description": description},
        "pdf": {"Creator": "epibench", "Producer": None, "CreationDate": None, "Title": title, "Subject": description},
        "png": {"Software": "epibench", "Title": title, "Description": description},
    }
    stream = io.BytesIO()
    with settings(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names may have letters that no font has
        figure.savefig(stream, format=kind, dpi=PNG_PER_INCH if kind == "png" else PER_INCH, metadata=about[kind])
    if kind != "svg":
        return stream.getvalue()
    # Readers may have other fonts than this machine.
    here, everywhere = (", ".join(f"'{name}'" for name in names) for names in (_fonts(), FONTS))
    return stream.getvalue().replace(here.encode(), f"{everywhere}, sans-serif".encode())


def draw_image(axes: Any, image: Image.Image, box: Box, **style: Any) -> None:
    """A picture with its left, top, right and bottom."""
    pixels = image.convert("RGBA" if "transparency" in image.info else "RGB")
    left, top, right, bottom = box
    axes.imshow(pixels, extent=(left, right, bottom, top), aspect="auto", interpolation="none", **style)


def draw_chart(chart: Chart, title: str, key: str = "", axes: Any = None, in_notebook: bool = False) -> Any:
    """Draw a layer of a chart and return its axes.

    Args:
        chart: The chart.
        title: The text above, which names the y axis.
        key: Of the layer, where there are several.
        axes: Axes of the caller, whose style they keep; by default a new figure as large as the chart on the page.
        in_notebook: Whether a new figure shows itself in notebooks.
    """
    layer = next((layer for layer in chart.layers if layer.key == key), chart.layers[0])
    # The first of a name is the one at the largest M.
    shown = [one for one in reversed(layer.series) if one.look != "thin" and not one.bins]
    named = dict(reversed({one.name or one.label: one for one in shown}.items()))
    with settings(page_style=axes is None):
        if axes is None:
            axes = framed(chart, title, named, in_notebook)
        else:
            _draw_frame(axes, chart)
            # Texts wider than the axes would make a constrained layout shrink them.
            letters = max(int(axes.bbox.width / axes.figure.dpi * 72 / (0.65 * axes.title.get_fontsize())), 12)
            axes.set_title("\n".join(textwrap.wrap(title, letters)), loc="left")
            axes.set_xlabel("\n".join(textwrap.wrap(chart.x_axis.label, letters)))
            if named:
                axes.legend([_line(one) for one in named.values()], [*named])
        _draw_guides(axes, chart)
        notes = [*chart.remarks]
        if not layer.series:
            notes.append((0.5, 0.75, "middle", "not scored at this M"))
        if layer.note:
            notes.append((0.985, 0.04 if chart.diagonal else 0.95, "end", layer.note))
        for across, up, anchor, text in notes:
            style = {"ha": ANCHORS[anchor], "fontsize": 10.5 * POINT, "alpha": 0.85}
            axes.text(across, up, text, transform=axes.transAxes, **style)
        if chart.between and len(layer.series) == 2:
            upper, lower = layer.series
            for area in areas(upper.x, lower.y, upper.y):
                axes.fill_between(area.x, area.upper, area.lower, color=colour_of(upper.style), alpha=0.13, linewidth=0)
        for one in layer.series:
            _draw_series(axes, chart, one)
        for number, i, (x, y), text in mark_places(chart.plot, layer.series):
            one, value = layer.series[number], layer.series[number].y[i] or 0.0
            off = ((x - chart.plot.x(one.x[i])) * POINT, (chart.plot.y(value) - y) * POINT)
            look = {"fontsize": SMALL_TEXT, "color": colour_of(one.style), "ha": "center", "annotation_clip": False}
            axes.annotate(text, (one.x[i], value), off, textcoords="offset points", **look)
    return axes


def framed(chart: Chart, title: str, named: dict[str, Series], in_notebook: bool = False) -> Any:
    """The empty axes of a chart on a new figure, with a title above and a key below."""
    plot, (width, height) = chart.plot, chart.size
    lines = textwrap.wrap(title, int(width / LETTER), break_long_words=False) or [""]
    head = MARGIN + LINE * (len(lines) - 1) + (TITLE_ROOM if title else 0.0)
    columns = max(1, int((width + GAP) / (SWATCH + 6 + GAP + LETTER * max(map(len, named), default=0))))
    rows = -(-len(named) // columns)
    whole = width + 2 * MARGIN, head + height + (KEY_GAP + LINE * rows if rows else 0.0) + MARGIN
    figure = empty_figure(whole, in_notebook)
    left, right = MARGIN + plot.left - chart.inset, MARGIN + plot.right + chart.inset
    top, bottom = head + plot.top, head + plot.bottom
    box = left / whole[0], 1 - bottom / whole[1], (right - left) / whole[0], (bottom - top) / whole[1]
    axes = figure.add_axes(box)
    _draw_frame(axes, chart)

    def place(x: float, y: float) -> tuple[float, float]:  # as shares of the axes
        return (x - left) / (right - left), (bottom - y) / (bottom - top)

    x, y = place(MARGIN, MARGIN)
    axes.set_title("\n".join(lines), loc="left", x=x, y=y, va="top", pad=0)
    axes.yaxis.label.set(rotation=0, ha="left", va="baseline")
    axes.yaxis.set_label_coords(*place(MARGIN + 2, head + 11))
    if named:
        # Labels that begin with _ would be left out.
        labels = [f" {label}" if label.startswith("_") else label for label in named]
        corner = MARGIN / whole[0], 1 - (head + height + KEY_GAP) / whole[1]
        lines_of_key = [_line(one) for one in named.values()]
        figure.legend(lines_of_key, labels, loc="upper left", bbox_to_anchor=corner, ncols=columns)
    return axes


def _draw_frame(axes: Any, chart: Chart) -> None:
    plot = chart.plot
    for name, axis, room in (("x", chart.x_axis, chart.inset / (plot.right - plot.left)), ("y", chart.y_axis, 0.0)):
        scale, limits = ("log" if axis.log else "linear"), (_value(axis, -room), _value(axis, 1 + room))
        axes.set(**{f"{name}scale": scale, f"{name}lim": limits, f"{name}label": axis.label})
        own = getattr(axes, f"{name}axis")
        own.set_ticks([value for value, _ in axis.ticks], [text for _, text in axis.ticks])
        own.set_ticks([], minor=True)
    if chart.counts:
        axes.xaxis.set_label_coords(0.5, -(COUNTS_HEIGHT + 16) / (plot.bottom - plot.top))


def _value(axis: Axis, share: float) -> float:
    if axis.upper <= axis.lower:
        return float(axis.lower * 2.0 ** (share - 0.5))
    if axis.log:
        return math.exp(math.log(axis.lower) + share * math.log(axis.upper / axis.lower))
    return float(axis.lower + share * (axis.upper - axis.lower))


def _draw_guides(axes: Any, chart: Chart) -> None:
    guide = {"color": LIGHT["soft"], "linewidth": POINT, "alpha": 0.55, "zorder": 1.5}
    if chart.diagonal:
        axes.plot(chart.diagonal_ends, chart.diagonal_ends, **guide)
    if chart.zero:
        axes.axhline(0, **guide)
    for number, (floor, name) in enumerate(chart.floors):
        axes.axhspan(chart.y_axis.lower, floor, color=LIGHT["soft"], alpha=0.13, linewidth=0)
        axes.axhline(floor, color=LIGHT["soft"], linewidth=POINT, linestyle=(0, (3, 2)))
        off = (6 + 150 * number) * POINT, (-11 if chart.plot.bottom - chart.plot.y(floor) >= 14 else 4) * POINT
        where = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(name, (0, floor), off, **where)


def _line(series: Series, **more: Any) -> Any:
    from matplotlib.colors import to_rgba
    from matplotlib.lines import Line2D

    look, colour, published = LOOKS[series.look], colour_of(series.style), series.look == "published"
    dashes = DASHES[series.style % len(DASHES)] if look.dash is None else look.dash
    pattern = [float(length) / look.width for length in dashes.split()]
    faint = look.opacity if series.look == "faint" else 1.0
    shown = {
        "color": to_rgba(LIGHT["soft"] if look.grey else colour, look.opacity),
        "linewidth": look.width * POINT,
        "linestyle": (0, pattern) if pattern else "-",
        "solid_joinstyle": "round",
        "marker": "" if series.look == "oracle" else MARKERS[marker_of(series.style)],
        "markersize": 7.2 * POINT,
        "markerfacecolor": "white" if published else to_rgba(colour, faint),
        "markeredgecolor": LIGHT["soft"] if published else "white",
        "markeredgewidth": POINT * (1.3 if published else 1.0),
    }
    return Line2D([], [], **{**shown, **more})


def _draw_series(axes: Any, chart: Chart, series: Series) -> None:
    import numpy as np

    def add_line(points: Sequence[int], **style: Any) -> None:
        line = _line(series, **style)
        line.set_data([series.x[i] for i in points], [values[i] for i in points])
        axes.add_line(line)

    colour, ends = colour_of(series.style), (chart.y_axis.lower, chart.y_axis.upper)
    values = np.clip([math.nan if y is None else y for y in series.y], *ends)
    if series.bins:
        _draw_bins(axes, chart, series.bins, colour)
    for area in series.bands if series.look != "oracle" else ():
        edges = np.clip([area.lower, area.upper], *ends)
        axes.fill_between(area.x, *edges, color=colour, alpha=0.16, linewidth=0)
    add_line(range(len(values)), marker="")
    if not chart.markers:
        return
    for x, *whisker in series.whiskers:
        axes.plot([x, x], np.clip(whisker, *ends), color=colour, linewidth=1.5 * POINT)
    hollow = {"markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 1.6 * POINT}
    for look, is_hollow in (({}, False), (hollow, True)):
        shown = range(1 if series.look == "level" else len(values))
        # A line without points would count as one at the corner of the figure.
        if points := [i for i in shown if bool(series.hollow and series.hollow[i]) == is_hollow]:
            add_line(points, linestyle="none", clip_on=False, zorder=3, **look)


def _draw_bins(axes: Any, chart: Chart, bins: Bins, colour: str) -> None:
    """Bars of accuracy, and below the axes bars of shares with their digits."""
    plot, style = chart.plot, {"color": colour, "linewidth": 0}
    width, tall = 2 * bins.half - 2 / (plot.right - plot.left), plot.bottom - plot.top
    axes.bar(bins.middles, [height or 0.0 for height in bins.heights], width, alpha=0.24, **style)
    # The base lies below the labels of the x axis.
    base, below = (plot.bottom - chart.size[1] + 30) / tall, axes.get_xaxis_transform()
    tops = [(COUNTS_HEIGHT - 26) / tall * share for share in bins.shares]
    axes.bar(bins.middles, tops, width, base, transform=below, clip_on=False, alpha=0.55, **style)
    for middle, share in zip(bins.middles, bins.shares, strict=True):
        text, y = bins.share_text(share), base - 11 / tall
        axes.text(middle, y, text, transform=below, fontsize=SMALL_TEXT, ha="center")
