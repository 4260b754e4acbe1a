"""Charts of the page as drawings that stand alone: styles resolved into attributes, one M, a title and a key.

The style sheets of the page are the only source of colours and lines; here they are read in their light theme, and
what they say is written onto each element, as programs that draw figures know neither variables nor classes.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element, fromstring, register_namespace, tostring

from epibench.errors import InputError
from epibench.files import write_bytes, write_text
from epibench.report.charts.lines import draw_marker
from epibench.report.charts.svg import NUM_STYLES, element, style_class

SVG = "http://www.w3.org/2000/svg"
FONTS = "Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
SHEETS = ("page.css", "run.css", "dense.css")
PRESENTATION = {
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap", "opacity"),
    *("font-size", "font-weight", "display"),
}
KEPT = {
    *("x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "rx", "ry", "width", "height", "d", "transform", "text-anchor"),
    *("href", "preserveAspectRatio", "viewBox", "clip-path", "id", "role", "aria-label"),
}
MARGIN, TITLE_ROOM, LINE = 10.0, 19.0, 16.0
LETTER = 6.2  # the width of a letter of 11 px, on the generous side
SWATCH, GAP = 26.0, 14.0  # of the key
ALL_LINES_ALIKE = ("thin",)  # looks whose lines the title names together

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_DOT = re.compile(r"h0(?=M|$)")
_VARIABLE = re.compile(r"var\((--[\w-]+)(?:,\s*([^()]*))?\)")

Compound = tuple[str, frozenset[str]]  # the name of an element, if any, and its classes


@dataclass(frozen=True)
class Drawing:
    """A figure that needs nothing else, as SVG; a notebook shows it."""

    root: Element
    title: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in pixels, which are 1/96 inch."""
        return float(self.root.attrib["width"]), float(self.root.attrib["height"])

    @property
    def svg(self) -> str:
        """The text of an SVG file."""
        register_namespace("", SVG)
        return tostring(self.root, encoding="unicode")

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write it as .svg or .pdf, by the name of the file."""
        path = Path(path)
        if path.suffix == ".svg":
            write_text(path, self.svg + "\n")
        elif path.suffix == ".pdf":
            from epibench.report.pdf import pdf_bytes

            write_bytes(path, pdf_bytes(self))
        else:
            raise InputError(f"{path}: a figure is saved as .svg or .pdf")
        return path


@dataclass(frozen=True)
class Rule:
    """A rule of the style sheet: compounds from the outermost to the element itself, and what they are given."""

    path: tuple[Compound, ...]
    declarations: Mapping[str, str]

    @property
    def specificity(self) -> tuple[int, int]:
        """Classes count before names of elements, as in any browser."""
        return sum(len(classes) for _, classes in self.path), sum(bool(tag) for tag, _ in self.path)

    def fits(self, ancestors: Sequence[Element]) -> bool:
        """Whether it is about the last of some nested elements."""
        *outer, own = self.path
        if not _is(ancestors[-1], own):
            return False
        above = iter(reversed(ancestors[:-1]))
        return all(any(_is(one, wanted) for one in above) for wanted in reversed(outer))


def _is(one: Element, wanted: Compound) -> bool:
    tag, classes = wanted
    return (not tag or one.tag == tag) and classes <= set(one.get("class", "").split())


@cache
def style_rules() -> tuple[Rule, ...]:
    """The rules of the style sheets that drawings use, by rising specificity; those in @media are for screens."""
    rules: list[Rule] = []
    for name in SHEETS:
        sheet = _COMMENT.sub("", files("epibench.report").joinpath("templates", name).read_text(encoding="utf-8"))
        for selectors, body in _RULE.findall(_without_blocks(sheet)):
            pairs = [each.partition(":") for each in body.split(";") if each.strip()]
            declared = {key.strip(): value.strip() for key, _, value in pairs}
            for selector in selectors.split(","):
                if path := _path(selector.strip()):
                    rules.append(Rule(path, declared))
    return tuple(sorted(rules, key=lambda rule: rule.specificity))


def _without_blocks(sheet: str) -> str:
    """A style sheet without @media and the like, which hold rules themselves."""
    kept, depth, hidden = [], 0, False
    for part in re.split(r"([{}@])", sheet):
        if part == "@" and depth == 0:
            hidden = True
        elif part in "{}" and part:
            depth += 1 if part == "{" else -1
        if not hidden:
            kept.append(part)
        elif part == "}" and depth == 0:
            hidden = False
    return "".join(kept)


def _path(selector: str) -> tuple[Compound, ...]:
    """The compounds of a selector; none where it asks for more than names of elements, classes and the root."""
    if selector == ":root":
        return (("", frozenset()),)
    if not re.fullmatch(r"[\w.\s-]+", selector):
        return ()
    return tuple((tag, frozenset(filter(None, more.split(".")))) for tag, _, more in map(_split, selector.split()))


def _split(compound: str) -> tuple[str, str, str]:
    return compound.partition(".")


def styled(root: Element) -> Element:
    """The drawing with the light theme of the page written onto its elements, and without classes."""
    _style([root], {})
    return root


def _style(ancestors: list[Element], variables: Mapping[str, str]) -> None:
    """Write onto an element what the rules give it, then onto those within it."""
    own = ancestors[-1]
    given: dict[str, str] = {}
    for rule in style_rules():
        if rule.fits(ancestors):
            # A rule of the root is one of every element here; what is inherited stays nearer.
            given.update(rule.declarations if rule.path[-1] != ("", frozenset()) or len(ancestors) == 1 else {})
    variables = {**variables, **{name: value for name, value in given.items() if name.startswith("--")}}
    if own.tag == "text":
        given.setdefault("font-size", "11px")
    for name in sorted(PRESENTATION & given.keys()):
        value = _resolved(given[name], variables).removesuffix("px")
        if not (name == "stroke-dasharray" and value == "none") and value != "revert" and own.tag != "svg":
            own.set(name, value)
    for child in list(own):
        _style([*ancestors, child], variables)
        if child.get("display") == "none" or child.tag == "title":
            own.remove(child)
    for name in set(own.attrib) - KEPT - PRESENTATION:
        del own.attrib[name]


def _resolved(value: str, variables: Mapping[str, str]) -> str:
    """A value with its variables replaced."""
    while found := _VARIABLE.search(value):
        value = value.replace(found[0], variables.get(found[1], found[2] or ""))
    return value


def layers_of(chart: str) -> list[str]:
    """The keys of the layers of a chart, of which one is seen at a time, the one that the page shows first first."""
    groups = [group for group in fromstring(chart).iter("g") if "data-m" in group.attrib]
    groups.sort(key=lambda group: "chosen" not in group.get("class", "").split())
    return list(dict.fromkeys(group.attrib["data-m"] for group in groups))


def standalone(chart: str, title: str, *, key: str | None = None, shared: str = "", names: bool = True) -> Drawing:
    """A chart of the page as a drawing that stands alone.

    title: above it, as what lies on the y axis is said nowhere else; key: of the layer that is shown, the one that the
    page shows first if None; shared: what the chart refers to; names: whether a key below names the lines.
    """
    chart_root = fromstring(chart)
    _keep_layer(chart_root, next(iter(layers_of(chart)), "") if key is None else key)
    _inline(chart_root, {one.get("id", ""): one for one in fromstring(shared).iter()} if shared else {})
    left, top, width, height = (float(number) for number in chart_root.attrib["viewBox"].split())
    lines = wrapped(title, width + 2 * MARGIN)
    head = LINE * (len(lines) - 1) + TITLE_ROOM if lines else 0.0
    rows = list(_rows(_lines(chart_root), width)) if names else []
    root = element(None, "svg", role="img", aria_label=chart_root.get("aria-label") or title, class_="chart")
    canvas = element(root, "rect", x=0, y=0)
    for number, line in enumerate(lines):
        text = element(root, "text", line, x=MARGIN, y=MARGIN + 10 + LINE * number)
        text.set("font-weight", "bold")
    body = element(root, "g", transform=f"translate({MARGIN - left:g},{MARGIN + head - top:g})")
    body.extend(list(chart_root))
    bottom = MARGIN + head + height + (6 if rows else 0)
    for number, row in enumerate(rows):
        _draw_key(root, row, bottom + LINE * (number + 0.5))
    drawing = finished(root, width + 2 * MARGIN, bottom + LINE * len(rows) + MARGIN, canvas)
    return Drawing(drawing, title)


def finished(root: Element, width: float, height: float, canvas: Element) -> Element:
    """The drawing with its size, a white ground, its styles resolved, and the name space that files need."""
    styled(root)
    for name, value in (("width", width), ("height", height)):
        root.set(name, f"{value:.1f}")
        canvas.set(name, f"{value:.1f}")
    canvas.set("fill", "#ffffff")
    root.set("viewBox", f"0 0 {width:.1f} {height:.1f}")
    root.set("font-family", FONTS)
    _replace_windows(root)
    for path in root.iter("path"):
        # Dots are lines without length and with round ends, which not every program draws.
        path.set("d", _DOT.sub("h.01", path.get("d", "")))
    for text in root.iter("text"):
        if text.get("font-weight") == "bold":
            text.set("fill", "#1c2026")
    for one in root.iter():
        one.tag = f"{{{SVG}}}{one.tag}"
    return root


def wrapped(text: str, width: float, letter: float = LETTER) -> list[str]:
    """A text in lines that are no wider than the drawing; a word is not broken."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and letter * (len(lines[-1]) + 1 + len(word)) <= width - 2 * MARGIN:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return [line for line in lines if line]


def _keep_layer(root: Element, key: str) -> None:
    """Drop every layer but one."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.get("data-m") not in (None, key):
                parent.remove(child)


def _inline(root: Element, shared: Mapping[str, Element]) -> None:
    """Put what is referred to in place of the references."""
    for parent in list(root.iter()):
        for number, child in enumerate(list(parent)):
            if child.tag == "use":
                found = copy.deepcopy(shared[child.attrib["href"].removeprefix("#")])
                del found.attrib["id"]
                parent[number] = found


def _replace_windows(root: Element) -> None:
    """Drawings within the drawing, which only cut off what lies outside, become groups with a clip path."""
    windows = [one for one in root.iter("svg") if one is not root]
    for number, window in enumerate(windows):
        box = {name: window.attrib.pop(name) for name in ("x", "y", "width", "height")}
        del window.attrib["viewBox"]
        window.tag = "g"
        window.set("clip-path", f"url(#window{number})")
        clip = element(None, "clipPath", id=f"window{number}")
        element(clip, "rect", **box)
        root.insert(number, clip)


def _lines(root: Element) -> list[tuple[str, str]]:
    """The classes and labels of the lines that a key has to name, each once."""
    named: dict[str, str] = {}
    for group in root.iter("g"):
        classes = group.get("class", "").split()
        if "series" in classes and not set(classes) & set(ALL_LINES_ALIKE):
            named.setdefault(group.get("data-label", ""), " ".join(classes))
    return [(classes, label) for label, classes in named.items()]


Keyed = tuple[float, str, str]  # x, classes, label


def _rows(lines: Sequence[tuple[str, str]], width: float) -> Iterator[list[Keyed]]:
    """The entries of the key in rows."""
    row: list[Keyed] = []
    x = 0.0
    for classes, label in lines:
        room = SWATCH + 6 + LETTER * len(label)
        if row and x + room > width:
            yield row
            row, x = [], 0.0
        row.append((x, classes, label))
        x += room + GAP
    if row:
        yield row


def _draw_key(root: Element, row: Sequence[Keyed], y: float) -> None:
    for x, classes, label in row:
        group = element(root, "g", class_=classes)
        left = MARGIN + x
        element(group, "line", class_="line", x1=left, x2=left + SWATCH, y1=y, y2=y)
        style = next((number for number in range(NUM_STYLES) if style_class(number) in classes.split()), 0)
        if "oracle" not in classes.split():
            draw_marker(group, style, left + SWATCH / 2, y)
        element(root, "text", label, x=left + SWATCH + 6, y=y + 3.8)
