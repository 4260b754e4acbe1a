"""Scores as tables for the terminal, and what the reader should know of them."""

from __future__ import annotations

from collections.abc import Sequence

from epibench.console import output
from epibench.report.dense_section import shift_rows
from epibench.report.numbers import plain_powers
from epibench.report.runs import Run, read_runs, stored_entries
from epibench.report.table import terminal_text
from epibench.report.tables import score_table
from epibench.results import Results

# The most telling ones first; the JSON and the page have them all.
COLUMNS = {
    "gaussian": ("ause", "auce", "rmse", "nll", "crps", "ence"),
    "categorical": ("ause", "ece", "miou", "brier", "nll", "accuracy"),
    "ranking": ("ause", "ause_inverted", "rmse", "mae", "miou", "accuracy"),
}


def print_tables(results: Results) -> None:
    """Print one table for each kind of prediction, then what the reader should know."""
    runs, console = read_runs([results]), output()
    entries = stored_entries(runs)
    for kind, names in COLUMNS.items():
        of_kind = [entry for entry in entries if entry.kind == kind]
        if of_kind:
            table = score_table(
                f"{kind} predictions, convention {results.convention}: mean ± std over draws", of_kind, names
            )
            console.print(table.title, style="bold", soft_wrap=True)
            console.print(terminal_text(table, console.width), soft_wrap=True)
            more = ", ".join(name for name in of_kind[0].metrics if name not in names)
            also = f"also computed: {more} (--json FILE, --report FOLDER)\n" if more else ""
            console.print(also, style="dim", soft_wrap=True)
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
