"""Results as tables for the terminal: a block per file, a row per M, as many metrics as fit side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from epibench.report.entries import Entry, read_entries
from epibench.report.metric_info import metric_info
from epibench.report.numbers import measured, plain_powers
from epibench.report.tables import best_labels
from epibench.report.verdicts import title_with_unit

# The most telling ones first; the JSON and the page have them all.
COLUMNS = {
    "gaussian": ("ause", "auce", "rmse", "nll", "crps", "ence"),
    "categorical": ("ause", "ece", "miou", "brier", "nll", "accuracy"),
}
COLUMN_WIDTH = 19
LEFT_WIDTH = 17


def print_tables(content: dict[str, Any], console: Console) -> None:
    """Print one table for each kind of prediction, then what the reader should know."""
    entries = read_entries(content)
    for kind in COLUMNS:
        of_kind = [entry for entry in entries if entry.kind == kind]
        if not of_kind:
            continue
        shown = COLUMNS[kind][: max(1, (console.width - LEFT_WIDTH) // COLUMN_WIDTH)]
        title = f"{kind} predictions, convention {content['convention']}: mean ± std over draws"
        console.print(title, style="bold", highlight=False, soft_wrap=True)
        console.print(table_of(of_kind, shown))
        more = [name for name in of_kind[0].metrics if name not in shown]
        console.print(
            f"also computed: {', '.join(more)} (--json FILE, --report FOLDER)\n", style="dim", highlight=False
        )
    for entry in entries:
        for note in notes_of(entry):
            console.print(f"{entry.label}: {note}", highlight=False, markup=False, soft_wrap=True)


def table_of(entries: list[Entry], names: Sequence[str]) -> Table:
    """Mean ± std over draws; the best of the files that can be compared is bold at each M."""
    table = Table(box=None, pad_edge=False)
    table.add_column("", no_wrap=True, min_width=LEFT_WIDTH)
    for name in names:
        arrow = {"lower": " ↓", "higher": " ↑"}.get(metric_info(name).better, "")
        table.add_column(Text(title_with_unit(metric_info(name), entries) + arrow), justify="right", no_wrap=True)
    for entry in entries:
        table.add_row(Text(entry.label, style="cyan"))
        for size in entry.members:
            draws = entry.stat(names[0], size).n
            left = Text(f"M = {size:<4}").append(f"{draws} draw{'s' if draws > 1 else ''}", style="dim")
            table.add_row(left, *(cell(name, entry, size, entries) for name in names))
    return table


def cell(name: str, entry: Entry, size: int, entries: list[Entry]) -> Text:
    """One metric of one file at one M."""
    stat = entry.stat(name, size)
    text = Text(plain_powers(measured(stat.mean, stat.std)))
    rivals = [other for other in entries if (other.domain, other.unit) == (entry.domain, entry.unit)]
    if entry.label in best_labels(name, rivals, size):
        text.stylize("bold green")
    return text


def notes_of(entry: Entry) -> list[str]:
    """Notes of the file, and a warning where its draws share most of their members."""
    notes = list(entry.raw.get("notes", []))
    shared = [str(size) for size in entry.members if entry.overlaps_much(size)]
    if shared:
        notes.append(f"at M = {', '.join(shared)} draws share more than half of their members: their std says little.")
    return notes
