"""A table of results, and its renderers: terminal, Markdown and LaTeX; the macro `table_of` writes HTML.

A builder fills a `Table` once (`report/tables.py`, sections of pages); every renderer shows the same cells.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from epibench.report.numbers import FIGURE_SPACE, PUNCTUATION_SPACE, aligned, listed, plain_powers
from epibench.results import RGB

if TYPE_CHECKING:
    from rich.text import Text

OVERLAP, TIE = "°", " ≈"
Tone = Literal["", "good", "bad", "same"]


@dataclass(frozen=True)
class Name:
    """The head of a row, column or block: a text, with the style of a method or the colour of a class."""

    label: str
    index: int | None = None
    colour: RGB | None = None


@dataclass(frozen=True)
class Cell:
    """A value with its spread. tone: whether `spread` is a gain or a loss, named by `word`; bar: from low to high."""

    value: str = ""
    spread: str = ""
    best: bool = False
    note: str = ""
    tied: bool = False
    overlaps: bool = False
    tone: Tone = ""
    word: str = ""
    bar: tuple[float, float] | None = None

    @property
    def marked_spread(self) -> str:
        """The spread with the marks of overlapping draws and of ties."""
        return f"{self.spread}{OVERLAP if self.overlaps else ''}{TIE if self.tied else ''}"

    @property
    def text(self) -> str:
        """The value with its spread and the mark of a tie."""
        return f"{self.value} {self.spread}".strip() + (TIE if self.tied else "")


@dataclass(frozen=True)
class Column:
    """A column. soft: less important than others; kept: not left out of narrow terminals; points: to be aligned."""

    name: Name
    soft: bool = False
    kept: bool = False
    points: bool = False


@dataclass(frozen=True)
class Row:
    """A row. only: the place of a last cell that belongs to no column, such as M = 1."""

    name: Name
    cells: Sequence[Cell]
    remark: str = ""
    only: str = ""


@dataclass(frozen=True)
class Block:
    """Rows under a common title, with the direction that is better."""

    title: Name = Name("")
    better: str = ""
    meaning: str = ""
    rows: Sequence[Row] = ()

    @property
    def heading(self) -> str:
        """The title with an arrow, or with the ideal."""
        arrow = self.better[:1] if self.better[:1] in ("↓", "↑") else self.better and f"({self.better})"
        return f"{self.title.label} {arrow}".rstrip()

    def aligned(self, columns: Sequence[Column]) -> list[Row]:
        """The rows, with decimal points of the same column in line."""
        rows = [list(row.cells) for row in self.rows if not row.only]
        for i, column in enumerate(columns):
            numbers = [row for row in rows if i < len(row) and any(map(str.isdigit, row[i].value))]
            if column.points:
                for row, value in zip(numbers, aligned([row[i].value for row in numbers]), strict=True):
                    row[i] = replace(row[i], value=value)
        done = iter(rows)
        return [row if row.only else replace(row, cells=next(done)) for row in self.rows]


@dataclass(frozen=True)
class Table:
    """A table. corner: the header of the names of rows; over: of the titles of blocks; notes: how to read it."""

    title: str
    columns: Sequence[Column]
    blocks: Sequence[Block]
    corner: str = "method"
    over: str = "metric"
    notes: Sequence[str] = ()

    @property
    def cells(self) -> list[Cell]:
        """All cells."""
        return [cell for block in self.blocks for row in block.rows for cell in row.cells]

    @property
    def spread_width(self) -> int:
        """The characters of the widest spread, which all cells reserve."""
        return max((len(cell.marked_spread) for cell in self.cells), default=0)


def terminal_text(table: Table, width: int, drop_first: bool = False) -> Text:
    """Lines for a terminal: never a cut number; the first or last columns beyond the width are left out and named."""
    from rich.text import Text

    heads: list[tuple[str, str]] = []
    lines: list[Sequence[Cell]] = []
    for block in table.blocks:
        title = block.title
        if title.label:
            heads.append((title.label, "" if title.index is None else "cyan"))
            lines.append(())
        for row in block.rows:
            place = f" ({row.only})" if row.only else ""
            method = row.name.index is not None
            heads.append((f"{'  ' if title.label and method else ''}{row.name.label}{place}", "cyan" if method else ""))
            lines.append(_filled(row, len(table.columns)))
    indent = max((len(head) for (head, _), cells in zip(heads, lines, strict=True) if cells), default=0)
    texts = [[plain_powers(cells[i].text) if cells else "" for cells in lines] for i in range(len(table.columns))]
    for column in texts:
        if any(text.endswith(TIE) for text in column):  # others have room for the mark, so that numbers line up
            column[:] = [text if not text or text.endswith(TIE) else text + " " * len(TIE) for text in column]
    widths = [2 + max(len(column.name.label), *map(len, texts[i]), 0) for i, column in enumerate(table.columns)]
    kept = list(range(len(table.columns)))
    while indent + sum(widths[i] for i in kept) > width:
        spare = [i for i in kept if not table.columns[i].kept]
        if len(spare) < 2:
            break
        kept.remove(spare[0] if drop_first else spare[-1])
    shown = [Text(" " * indent + "".join(table.columns[i].name.label.rjust(widths[i]) for i in kept))]
    for number, ((head, style), cells) in enumerate(zip(heads, lines, strict=True)):
        line = Text(head.ljust(indent) if cells else head, style=style)
        for i in kept if cells else ():
            style = "bold green" if cells[i].best else "dim" if table.columns[i].soft else ""
            line.append(Text(texts[i][number].rjust(widths[i]), style=style))
        line.rstrip()
        shown.append(line)
    if out := [column.name.label for i, column in enumerate(table.columns) if i not in kept]:
        shown.append(Text(f"left out, as the terminal is narrow: {listed(out)}", style="dim"))
    return Text("\n").join(shown)


def _filled(row: Row, number: int) -> list[Cell]:
    """A cell for each column; one of no column comes last."""
    missing, cells = [Cell()] * (number - len(row.cells)), list(row.cells)
    return [*cells[:-1], *missing, *cells[-1:]] if row.only else [*cells, *missing]


def markdown_text(table: Table) -> str:
    """Lines of Markdown; what leads, or differs, is bold."""
    over = [table.over] if any(block.title.label for block in table.blocks) else []
    head = [*over, table.corner, *(column.name.label for column in table.columns)]
    number = len(table.columns)
    lines = [head, ["---"] * (len(over) + 1) + ["--:"] * number]
    for block in table.blocks:
        for row in block.rows:
            names = [*([block.heading] if over else []), row.name.label + (f" ({row.only})" if row.only else "")]
            cells = [(_markdown(f"{cell.value} {cell.marked_spread}".strip()), cell) for cell in _filled(row, number)]
            texts = [f"**{text}**" if cell.best or cell.tone == "bad" else text for text, cell in cells]
            lines.append([*map(_markdown, names), *texts])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _markdown(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


TEXT_WIDTH, LETTER, SEPARATION = 345.0, 4.3, 8.0  # of an article, in points: what does not fit goes below
GREEK = {
    letter: "\\" + unicodedata.name(letter).split()[-1].lower().replace("lamda", "lambda")
    for letter in "αβγδεζηθκλμνξπρστφχψω"
}
SIGNS = {"→": r"\to", "↓": r"\downarrow", "↑": r"\uparrow", "±": r"\pm", "×": r"\times", "−": "-", "·": r"\cdot"}
SIGNS |= {"≤": r"\le", "≥": r"\ge", "≈": r"\approx", "‖": r"\Vert", "°": r"^{\circ}", "∞": r"\infty", "√": r"\surd"}
SIGNS |= {"₁": "_1", "₂": "_2", "²": "^2", "³": "^3", "\u00b5": r"\mu", "Δ": r"\Delta", "Σ": r"\Sigma", **GREEK}
SPECIAL = {
    **{letter: rf"\{letter}" for letter in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "`": r"\textasciigrave{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "'": r"\textquotesingle{}"},
    **{'"': r"\textquotedbl{}", "\u00a0": "~", "\n": " ", "–": "--", "—": "---", "…": r"\dots{}"},
    **{"“": "``", "”": "''", "‘": "`", "’": "'"},
    **{letter: f"${sign}$" for letter, sign in SIGNS.items()},
}


def latex_text(table: Table, label: str) -> str:
    """A float with a booktabs table, its notes in the caption; columns that do not fit side by side go below.

    Soft columns are left out: what they say is in the notes, where it matters.
    """
    title = " ".join("".join(letter if letter.isprintable() else " " for letter in table.title).split())
    notes = re.sub(r"\\textasciigrave\{\}(\w+)\\textasciigrave\{\}", r"\\texttt{\1}", escaped(" ".join(table.notes)))
    columns, blocks = [column for column in table.columns if not column.soft], []
    for block in table.blocks:
        hard = []
        for row in block.aligned(table.columns):
            cells = [cell for cell, column in zip(row.cells, table.columns, strict=False) if not column.soft]
            hard.append(replace(row, cells=cells))
        blocks.append(replace(block, rows=hard))
    rows = [row for block in blocks for row in block.rows]
    names = LETTER * (3 + max(len(row.name.label) for row in rows))
    widest = max((len(cell.value + cell.spread) for row in rows if not row.only for cell in row.cells), default=1)
    most = max(2, int((TEXT_WIDTH - names) / (LETTER * widest + SEPARATION)))
    lines = [f"% {title}; needs \\usepackage{{booktabs}}", r"\begin{table}", r"  \centering", r"  \footnotesize"]
    lines += [r"  \setlength{\tabcolsep}{4pt}", f"  \\caption{{{escaped(table.title)}. {_with_m(notes)}}}"]
    lines.append(f"  \\label{{tab:{label}}}")
    for start in range(0, len(columns), most):
        lines += [r"  \par\medskip"] if start else []
        lines += [f"  {line}" for line in _tabular(blocks, columns[start : start + most], start)]
    return "\n".join([*lines, r"\end{table}", ""])


def escaped(text: str) -> str:
    """Any text, so that LaTeX prints it; letters that pdfLaTeX cannot print are named by their number."""
    return "".join(SPECIAL.get(letter) or _letter(letter) for letter in text)


def _letter(letter: str) -> str:
    if letter.isascii() and letter.isprintable():
        return letter
    if "\u00c0" <= letter <= "\u017f" and letter.isalpha():
        return letter  # Latin letters with marks, which every LaTeX knows
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain if plain.isalnum() else f"[U+{ord(letter):04X}]"


def _with_m(text: str) -> str:
    return re.sub(r"\bM( = \d+)?\b", r"$\g<0>$", text)


def _tabular(blocks: Sequence[Block], columns: Sequence[Column], start: int) -> Iterator[str]:
    """The lines of one tabular. start: the first of its columns."""
    yield rf"\begin{{tabular}}{{@{{}}l{'r' * len(columns)}@{{}}}}"
    yield r"  \toprule"
    yield "  " + " & ".join(["", *(_with_m(escaped(column.name.label)) for column in columns)]) + r" \\"
    for block in blocks:
        yield r"  \midrule"
        if block.title.label:
            yield rf"  \multicolumn{{{len(columns) + 1}}}{{@{{}}l}}{{{escaped(block.heading)}}} \\"
        for row in block.rows:
            name = ("\\quad " if block.title.label else "") + escaped(row.name.label)
            if not row.only:
                cells = itertools.islice(row.cells, start, start + len(columns))
                yield "  " + " & ".join([name, *map(_latex_cell, cells)]) + r" \\"
            elif start == 0:
                cell = f"{_latex_cell(row.cells[-1])} at {row.only.replace(' ', '~')}"
                yield rf"  {name} & \multicolumn{{{len(columns)}}}{{l@{{}}}}{{{cell}}} \\"
    yield r"  \bottomrule"
    yield r"\end{tabular}"


def _latex_cell(cell: Cell) -> str:
    """A number with its std; bold where it leads."""
    value = cell.value.rstrip(FIGURE_SPACE + PUNCTUATION_SPACE)
    if not any(map(str.isdigit, value)):
        return escaped(f"{value} {cell.note}".rstrip())
    text = rf"$\mathbf{{{_mathematics(value)}}}$" if cell.best else f"${_mathematics(value)}$"
    if padding := cell.value[len(value) :]:
        text += rf"\phantom{{{padding.replace(PUNCTUATION_SPACE, '.').replace(FIGURE_SPACE, '0')}}}"
    if cell.spread:
        text += f" ${_mathematics(cell.spread)}$" if cell.spread.startswith("±") else f" {escaped(cell.spread)}"
    raised = (r"\circ" if cell.overlaps else "") + (r"\approx" if cell.tied else "")
    return text + (rf"\rlap{{$^{{{raised}}}$}}" if raised else "")  # beside the number, which stays aligned


def _mathematics(text: str) -> str:
    """A number of a table in mathematical mode."""
    text = re.sub(r"e(-?\d+)", r" \\times 10^{\1}", plain_powers(text))
    return text.replace("−", "-").replace("±", r"{\pm}").replace(",", "{,}").replace("<", "{<}")
