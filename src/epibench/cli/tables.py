"""Results as tables for the terminal: as many columns as fit, never a number that is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from epibench.cli.console import NO_WIDTH, output
from epibench.report.dense_section import shift_rows
from epibench.report.entries import Entry, all_members, comparable, several_members, title_with_unit
from epibench.report.judge import judge_at
from epibench.report.metric_info import metric_info
from epibench.report.numbers import listed, plain_powers, significant
from epibench.report.runs import Run, read_runs, stored_entries
from epibench.results import Results

# The most telling ones first; the JSON and the page have them all.
COLUMNS = {
    "gaussian": ("ause", "auce", "rmse", "nll", "crps", "ence"),
    "categorical": ("ause", "ece", "miou", "brier", "nll", "accuracy"),
    "ranking": ("ause", "ause_inverted", "rmse", "mae", "miou", "accuracy"),
}
ARROWS = {"lower": " ↓", "higher": " ↑"}
BEST, ASIDE, NAME = "bold green", "dim", "cyan"
BETWEEN = 2  # spaces between columns
TIE = " ≈"

Cell = tuple[str, str]  # text and style


@dataclass(frozen=True)
class Column:
    """A column of a table, a cell for each line; one that is wanted stays, however narrow the terminal."""

    title: str
    cells: Sequence[Cell]
    wanted: bool = False

    @property
    def texts(self) -> list[str]:
        """The texts; where some are marked, others have room for the mark, so that numbers line up."""
        marked = any(text.endswith(TIE) for text, _ in self.cells)
        return [f"{text}{'  ' if marked and text and not text.endswith(TIE) else ''}" for text, _ in self.cells]

    @property
    def width(self) -> int:
        """As wide as the widest text in it."""
        return max(len(text) for text in (self.title, *self.texts))


def text_table(left: Sequence[Cell], columns: Sequence[Column], width: int, first_goes: bool) -> Text:
    """Lines of a table; left: what stands at the start of each. A last line says which columns were left out.

    width: where columns would go beyond it, some are left out: the first ones or the last ones, down to one.
    """
    alone = [not any(column.cells[number][0] for column in columns) for number in range(len(left))]  # titles of blocks
    indent = max((len(text) for (text, _), title in zip(left, alone, strict=True) if not title), default=0)
    kept = list(columns)
    while indent + sum(BETWEEN + column.width for column in kept) > width:
        spare = [column for column in kept if not column.wanted]
        if len(spare) < 2:
            break
        kept.remove(spare[0] if first_goes else spare[-1])
    lines = [Text(" " * indent + "".join(column.title.rjust(column.width + BETWEEN) for column in kept))]
    for number, (start, style) in enumerate(left):
        line = Text(start if alone[number] else start.ljust(indent), style=style)
        for column in () if alone[number] else kept:
            line.append(Text(column.texts[number].rjust(column.width + BETWEEN), style=column.cells[number][1]))
        line.rstrip()
        lines.append(line)
    if out := [column.title for column in columns if column not in kept]:
        lines.append(Text(f"left out, as the terminal is narrow: {listed(out)}", style=ASIDE))
    return Text("\n").join(lines)


def metric_column(name: str, m: int, entries: Sequence[Entry]) -> dict[str, Cell]:
    """A metric of entries at an M, by label: the leader is green, ≈ marks leaders that cannot be told apart."""
    rankings = [judge_at(name, group, m) for group in comparable(entries)]
    best = {label for ranking in rankings for label in ranking.best}
    tied = {label for ranking in rankings for label in ranking.tied}
    cells = {}
    for entry in entries:
        if m in entry.members:
            infinite = entry.mean(name, m) is None and entry.mean(f"{name}_infinite", m)
            text = "infinite" if infinite else plain_powers(entry.text(name, m))
            cells[entry.label] = f"{text}{TIE if entry.label in tied else ''}", BEST if entry.label in best else ""
    return cells


def over_members(name: str, blocks: Sequence[tuple[str, Sequence[Entry]]], width: int = NO_WIDTH) -> Text:
    """A metric over M; a block of lines for each domain, under its name, beside chance or the noise floor.

    A point estimate, for which there is no column, is in the last one.
    """
    members = several_members([entry for _, entries in blocks for entry in entries])
    left: list[Cell] = []
    asides: list[Cell] = []
    cells: dict[int, list[Cell]] = {m: [] for m in members}
    for title, entries in blocks:
        if title:
            left.append((title, ""))
            for column in (asides, *cells.values()):
                column.append(("", ""))
        by_m = {m: metric_column(name, m, entries) for m in members}
        for entry in entries:
            last, outside = entry.members[-1], not set(entry.members) & set(members)
            left.append((f"{'  ' if title else ''}{entry.label}{f' (M = {last})' if outside else ''}", NAME))
            aside = entry.floor if name == "kl" else entry.chance(name, last)
            asides.append(("" if aside is None else plain_powers(significant(aside, 2)), ASIDE))
            for m, column in cells.items():
                column.append(by_m[m].get(entry.label, ("", "")))
            if outside:
                cells[members[-1]][-1] = metric_column(name, last, [entry])[entry.label]
    columns = [Column(f"M = {m}", column) for m, column in cells.items()]
    if any(text for text, _ in asides):
        columns.insert(0, Column("floor" if name == "kl" else "chance", asides, wanted=True))
    return text_table(left, columns, width, first_goes=True)


def print_tables(results: Results) -> None:
    """Print one table for each kind of prediction, then what the reader should know."""
    runs, console = read_runs([results]), output()
    entries = stored_entries(runs)
    for kind, names in COLUMNS.items():
        of_kind = [entry for entry in entries if entry.kind == kind]
        if of_kind:
            title = f"{kind} predictions, convention {results.convention}: mean ± std over draws"
            console.print(title, style="bold", soft_wrap=True)
            console.print(score_table(of_kind, names, console.width), soft_wrap=True)
            more = ", ".join(name for name in of_kind[0].metrics if name not in names)
            also = f"also computed: {more} (--json FILE, --report FOLDER)\n" if more else ""
            console.print(also, style=ASIDE, soft_wrap=True)
    print_shift(runs)
    for entry in entries:
        shared = ", ".join(str(m) for m in entry.members if entry.overlaps_much(m))
        note = f"at M = {shared} draws share more than half of their members: their std says little."
        for text in (*(entry.score.notes if entry.score else ()), *([note] if shared else [])):
            console.print(f"{entry.label}: {text}", soft_wrap=True)


def print_shift(runs: Sequence[Run]) -> None:
    """What the shift from the in-domain to the hardest domain costs each method, a line for each."""
    console = output()
    for run in runs:
        if (shift := shift_rows([run])) is None:
            continue
        console.print(f"{shift['title']}, the hardest shift: what it costs", style="bold", soft_wrap=True)
        for row in shift["rows"]:
            parts = [
                f"{title} {plain_powers(cost['from_to'])} ({cost['change']}, {cost['judgement']})"
                for title, cost in zip(shift["headlines"], row["gains"], strict=True)
                if cost is not None
            ]
            console.print(f"{row['entry'].label}, {row['step']}: {'; '.join(parts)}", soft_wrap=True)
        console.print()


def score_table(entries: Sequence[Entry], names: Sequence[str], width: int = NO_WIDTH) -> Text:
    """A block per file, a row per M, a column per metric, and chance beside the AUSE."""
    names = [name for name in names if any(name in entry.metrics for entry in entries)]
    left: list[Cell] = []
    lines: list[tuple[Entry, int] | None] = []
    for entry in entries:
        left.append((entry.label, NAME))
        lines.append(None)
        for m in entry.members:
            draws = entry.num_draws(m)
            left.append((f"M = {m:<4} {draws} draw{'s' if draws > 1 else ''}", ""))
            lines.append((entry, m))
    columns = []
    for name in names:
        by_m = {m: metric_column(name, m, entries) for m in all_members(entries)}
        cells = [("", "") if line is None else by_m[line[1]].get(line[0].label, ("", "")) for line in lines]
        title = title_with_unit(name, entries) + ARROWS.get(metric_info(name).better, "")
        columns.append(Column(title, cells))
        chances = [None if line is None else line[0].chance(name, line[1]) for line in lines]
        if any(chance is not None for chance in chances):
            texts = ["" if chance is None else plain_powers(significant(chance, 2)) for chance in chances]
            columns.append(Column("chance", [(text, ASIDE) for text in texts]))
    return text_table(left, columns, width, first_goes=False)
