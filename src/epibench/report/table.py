"""A table of results, and its renderers: terminal, Markdown and LaTeX; the macro `table_of` writes HTML."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
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
    """The head of a row, column or block, with the style of a method or the colour of a class."""

    label: str
    index: int | None = None
    colour: RGB | None = None


@dataclass(frozen=True)
class Cell:
    """A value with its spread. tone, word: the judgement of a change. bar: both ends of a bar."""

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


@dataclass(frozen=True)
class Column:
    """A column. soft: less important, and not in LaTeX. points: with decimal points in line."""

    name: Name
    soft: bool = False
    points: bool = False


@dataclass(frozen=True)
class Row:
    """A row. only: the place of its last cell if that belongs to no column, e.g. M = 1."""

    name: Name
    cells: Sequence[Cell]
    remark: str = ""
    only: str = ""

    @property
    def head(self) -> str:
        """The name with the place of a cell that belongs to no column."""
        return f"{self.name.label} ({self.only})" if self.only else self.name.label

    def filled(self, number: int) -> list[Cell]:
        """A cell for each column; a cell that belongs to no column comes last."""
        missing, cells = [Cell()] * (number - len(self.cells)), list(self.cells)
        return [*cells[:-1], *missing, *cells[-1:]] if self.only else [*cells, *missing]


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
    """A table. corner: the header of row names; over: the header of block titles; notes: how to read it."""

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
    """Lines for a terminal, without a cut number.

    The first or last columns that do not fit are left out, and named; a soft first column stays.
    """
    from rich.text import Text

    lines: list[tuple[str, str, Sequence[Cell]]] = []
    for block in table.blocks:
        if block.title.label:
            lines.append((block.title.label, "" if block.title.index is None else "cyan", ()))
        for row in block.rows:
            method = row.name.index is not None
            head = "  " * bool(block.title.label and method) + row.head
            lines.append((head, "cyan" if method else "", row.filled(len(table.columns))))
    indent = max((len(head) for head, _, cells in lines if cells), default=0)
    columns, widths = [], []
    for i, column in enumerate(table.columns):
        texts = [plain_powers(f"{cells[i].value} {cells[i].spread}".strip()) if cells else "" for *_, cells in lines]
        if any(cells[i].tied for *_, cells in lines if cells):  # numbers line up beside the mark
            marks = [TIE if cells and cells[i].tied else " " * len(TIE) for *_, cells in lines]
            texts = [text and text + mark for text, mark in zip(texts, marks, strict=True)]
        columns.append(texts)
        widths.append(2 + max(len(column.name.label), *map(len, texts), 0))
    kept = list(range(len(columns)))
    while indent + sum(widths[i] for i in kept) > width:
        spare = kept[1:] if table.columns[0].soft else kept
        if len(spare) < 2:
            break
        kept.remove(spare[0] if drop_first else spare[-1])
    shown = [Text(" " * indent + "".join(table.columns[i].name.label.rjust(widths[i]) for i in kept))]
    for number, (head, style, cells) in enumerate(lines):
        line = Text(head.ljust(indent) if cells else head, style=style)
        for i in kept if cells else ():
            style = "bold green" if cells[i].best else "dim" if table.columns[i].soft else ""
            line.append(Text(columns[i][number].rjust(widths[i]), style=style))
        line.rstrip()
        shown.append(line)
    if out := [column.name.label for i, column in enumerate(table.columns) if i not in kept]:
        shown.append(Text(f"left out, as the terminal is narrow: {listed(out)}", style="dim"))
    return Text("\n").join(shown)


def markdown_text(table: Table) -> str:
    """Lines of Markdown; what leads, or differs, is bold."""
    number, over = len(table.columns), [table.over] if any(block.title.label for block in table.blocks) else []
    lines = [[*over, table.corner, *(column.name.label for column in table.columns)]]
    lines.append(["---"] * (len(over) + 1) + ["--:"] * number)
    for block in table.blocks:
        for row in block.rows:
            texts = [*([block.heading] if over else []), row.head]
            for cell in row.filled(number):
                text = f"{cell.value} {cell.marked_spread}".strip()
                texts.append(f"**{text}**" if cell.best or cell.tone == "bad" else text)
            lines.append([text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|") for text in texts])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
    """A float with a booktabs table and its notes in the caption; columns beyond the width go below."""
    title = " ".join("".join(letter if letter.isprintable() else " " for letter in table.title).split())
    notes = re.sub(r"\\textasciigrave\{\}(\w+)\\textasciigrave\{\}", r"\\texttt{\1}", escaped(" ".join(table.notes)))
    soft = sum(column.soft for column in table.columns)  # these come first, and the notes name their values
    blocks = [(block, block.aligned(table.columns)) for block in table.blocks]
    cells = [cell for _, rows in blocks for row in rows if not row.only for cell in row.cells[soft:]]
    names = LETTER * (3 + max(len(row.name.label) for _, rows in blocks for row in rows))
    widest = LETTER * max((len(cell.value + cell.spread) for cell in cells), default=1)
    most = max(2, int((TEXT_WIDTH - names) / (widest + SEPARATION)))
    lines = [f"% {title}; needs \\usepackage{{booktabs}}", r"\begin{table}", r"  \centering", r"  \footnotesize"]
    lines += [r"  \setlength{\tabcolsep}{4pt}", f"  \\caption{{{escaped(table.title)}. {_with_m(notes)}}}"]
    lines.append(f"  \\label{{tab:{label}}}")
    for start in range(soft, len(table.columns), most):
        heads = [_with_m(escaped(column.name.label)) for column in table.columns[start : start + most]]
        lines += [r"  \par\medskip"] if start > soft else []
        lines += [rf"  \begin{{tabular}}{{@{{}}l{'r' * len(heads)}@{{}}}}", r"    \toprule"]
        lines.append(f"    {' & '.join(['', *heads])} \\\\")
        for block, rows in blocks:
            lines.append(r"    \midrule")
            if block.title.label:
                lines.append(rf"    \multicolumn{{{len(heads) + 1}}}{{@{{}}l}}{{{escaped(block.heading)}}} \\")
            for row in rows:
                name = ("\\quad " if block.title.label else "") + escaped(row.name.label)
                if not row.only:
                    lines.append(f"    {' & '.join([name, *map(_latex_cell, row.cells[start : start + most])])} \\\\")
                elif start == soft:
                    cell = f"{_latex_cell(row.cells[-1])} at {row.only.replace(' ', '~')}"
                    lines.append(rf"    {name} & \multicolumn{{{len(heads)}}}{{l@{{}}}}{{{cell}}} \\")
        lines += [r"    \bottomrule", r"  \end{tabular}"]
    return "\n".join([*lines, r"\end{table}", ""])


def escaped(text: str) -> str:
    """Any text, so that LaTeX prints it; letters that pdfLaTeX cannot print are named by their number."""
    letters = []
    for letter in text:
        plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
        latin = "\u00c0" <= letter <= "\u017f" and letter.isalpha()  # with marks, which every LaTeX knows
        kept = latin or (letter.isascii() and letter.isprintable())
        other = letter if kept else plain if plain.isalnum() else f"[U+{ord(letter):04X}]"
        letters.append(SPECIAL.get(letter, other))
    return "".join(letters)


def _with_m(text: str) -> str:
    return re.sub(r"\bM( = \d+)?\b", r"$\g<0>$", text)


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
    text = re.sub(r"e(-?\d+)", r" \\times 10^{\1}", plain_powers(text))
    return text.replace("−", "-").replace("±", r"{\pm}").replace(",", "{,}").replace("<", "{<}")
