"""Results as tables for the terminal: a block per file, a row per M, as many metrics as fit side by side."""

from __future__ import annotations

import re
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from epibench.report.entries import Entry, read_entries
from epibench.report.numbers import measured

# The most telling ones first; the JSON and the page have them all.
COLUMNS = {
    "gaussian": ("ause", "auce", "rmse", "nll", "crps", "ence"),
    "categorical": ("ause", "ece", "miou", "brier", "nll", "accuracy"),
}
HIGHER_IS_BETTER = {"miou", "accuracy"}
IN_UNITS = {"rmse", "crps"}
COLUMN_WIDTH = 19
# Powers of ten as 1.2e-5, which is shorter.
_POWER = re.compile("×10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)")
_PLAIN = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
LEFT_WIDTH = 17


def print_tables(content: dict[str, Any], console: Console) -> None:
    """Print one table for each kind of prediction, then what the reader should know."""
    entries = read_entries(content)
    for kind in COLUMNS:
        of_kind = [entry for entry in entries if entry.kind == kind]
        if of_kind:
            console.print(table_of(of_kind, kind, content["convention"], console.width))
            console.print()
    for entry in entries:
        for note in notes_of(entry):
            console.print(f"{entry.label}: {note}", highlight=False, markup=False)


def table_of(entries: list[Entry], kind: str, convention: str, width: int) -> Table:
    """Mean ± std over draws; the best file of a domain at each M is bold."""
    names = COLUMNS[kind][: max(1, (width - LEFT_WIDTH) // COLUMN_WIDTH)]
    title = f"{kind} predictions, convention {convention}: mean ± std over draws"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column(
        "", no_wrap=True, min_width=LEFT_WIDTH, max_width=max(LEFT_WIDTH, width - len(names) * COLUMN_WIDTH)
    )
    for name in names:
        table.add_column(Text(name + unit_of(name, entries)), justify="right", no_wrap=True)
    for entry in entries:
        table.add_row(Text(entry.label, style="cyan"))
        for size in entry.members:
            draws = entry.stat(names[0], size).n
            left = Text(f"M = {size:<4}").append(f"{draws} draw{'s' if draws > 1 else ''}", style="dim")
            table.add_row(left, *(cell(name, entry, size, entries) for name in names))
    return table


def unit_of(name: str, entries: list[Entry]) -> str:
    """The unit of a metric, where all files have the same."""
    units = {entry.unit for entry in entries}
    return f" [{units.pop()}]" if name in IN_UNITS and len(units) == 1 and "" not in units else ""


def cell(name: str, entry: Entry, size: int, entries: list[Entry]) -> Text:
    """One metric of one file at one M."""
    stat = entry.stat(name, size)
    text = Text(_POWER.sub(lambda found: "e" + found[1].translate(_PLAIN), measured(stat.mean, stat.std)))
    rivals = [other.stat(name, size).mean for other in entries if other.domain == entry.domain]
    means = [mean for mean in rivals if mean is not None]
    best = max(means, default=None) if name in HIGHER_IS_BETTER else min(means, default=None)
    if len(means) > 1 and stat.mean == best:
        text.stylize("bold green")
    return text


def notes_of(entry: Entry) -> list[str]:
    """Notes of the file, and a warning where its draws share most of their members."""
    notes = list(entry.raw.get("notes", []))
    shared = [str(size) for size in entry.members if entry.overlaps_much(size)]
    if shared:
        notes.append(f"at M = {', '.join(shared)} draws share more than half of their members: their std says little.")
    return notes
