"""Scores as tables for the terminal."""

from __future__ import annotations

from epibench.console import output
from epibench.report.dense_section import shift_table
from epibench.report.numbers import plain_powers
from epibench.report.runs import problem_of, read_runs, stored_entries
from epibench.report.table import terminal_text
from epibench.report.tables import score_table
from epibench.results import Results

# The JSON and the page have all metrics.
COLUMNS = {
    "gaussian": ("ause", "auce", "rmse", "nll", "crps", "ence"),
    "categorical": ("ause", "ece", "miou", "brier", "nll", "accuracy"),
    "ranking": ("ause", "ause_inverted", "rmse", "mae", "miou", "accuracy"),
}


def print_tables(results: Results) -> None:
    """Print a table for each kind of prediction, the effect of the hardest shift, and notes."""
    runs, console = read_runs([results]), output()
    entries = stored_entries(runs)
    for kind, names in COLUMNS.items():
        if of_kind := [entry for entry in entries if entry.kind == kind]:
            title = f"{kind} predictions, convention {results.convention}: mean ± std over draws"
            table = score_table(title, of_kind, names)
            console.print(title, style="bold", soft_wrap=True)
            console.print(terminal_text(table, console.width), soft_wrap=True)
            more = ", ".join(name for name in of_kind[0].metrics if name not in names)
            also = f"also computed: {more} (--json FILE, --report FOLDER)\n" if more else ""
            console.print(also, style="dim", soft_wrap=True)
    for shift in filter(None, (shift_table(problem_of([run])) for run in runs)):
        console.print(f"{shift['title']}, the hardest shift: its effect", style="bold", soft_wrap=True)
        for row in shift["table"].blocks[0].rows:
            costs = [
                (column.name.label, c) for column, c in zip(shift["table"].columns, row.cells, strict=True) if c.word
            ]
            parts = [f"{title} {plain_powers(cost.value)} ({cost.spread}, {cost.word})" for title, cost in costs]
            console.print(f"{row.name.label}, {row.remark}: {'; '.join(parts)}", soft_wrap=True)
        console.print()
    for entry in entries:
        shared = ", ".join(str(m) for m in entry.members if entry.overlaps_much(m))
        note = f"at M = {shared} draws share more than half of their members: their std says little."
        for text in (*entry.score.notes, *([note] if shared else [])):
            console.print(f"{entry.label}: {text}", soft_wrap=True)
