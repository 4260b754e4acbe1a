"""The comparison of runs with what was published, in words and cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from epibench.published import Cell, base_recipe, compare, is_quick, totals
from epibench.report.kl_figures import published_figures
from epibench.report.numbers import MISSING, change, fixed, measured, significant
from epibench.report.page import listed
from epibench.report.runs import Method, Run


def published_section(runs: Sequence[Run], methods: Sequence[Method]) -> dict[str, Any] | None:
    """Counts, caveats and every cell; None where the paper shows nothing like these runs."""
    compared = {run.name: compare(run.results) for run in runs}
    cells = [cell for found in compared.values() for cell in found]
    if not any(cell.mean is not None for cell in cells):
        return None
    of_method = {
        method.label: [cell for cell in compared[method.run.name] if cell.method == method.name] for method in methods
    }
    having = [run for run in runs if compared[run.name]]
    return {
        "totals": totals(cells),
        "warnings": _of_runs(warnings_of, having),
        "grounds": _of_runs(grounds_of, having),
        "figures": published_figures(methods, of_method),
        "blocks": [
            {
                "entry": method,
                "series": ", ".join(dict.fromkeys(cell.row.series.strip("*") for cell in found)),
                "rows": rows,
            }
            for method in methods
            if (found := of_method[method.label]) and (rows := [_row(cell) for cell in found if cell.mean is not None])
        ],
    }


def _of_runs(say: Callable[[Run], list[str]], runs: Sequence[Run]) -> list[str]:
    """What there is to say on runs; each is named where there are several and they do not all share it."""
    said: dict[str, list[str]] = {}
    for run in runs:
        for text in say(run):
            said.setdefault(text, []).append(run.name)
    return [text if len(names) == len(runs) else f"{listed(names)}: {text}" for text, names in said.items()]


def warnings_of(run: Run) -> list[str]:
    """What keeps our numbers from being comparable cell by cell."""
    data = run.part("recipe").get("data") or {}
    found = []
    if is_quick(run.recipe_name):
        base = base_recipe(run.recipe_name)
        found.append(f"This is the quick variant of {base}: smaller, and trained less, than what was published.")
    # Where data and reference come from is said by itself.
    changed = [text for text in run.results.get("changes") or [] if not text.startswith(("data.", "reference."))]
    if changed:
        found.append(f"Settings that differ from the recipe's: {', '.join(changed)}.")
    if not data.get("path"):
        found.append(
            f"Ours was trained on data that epibench generated itself (seed {data.get('seed', 'unknown')}), not on the "
            "published data: the numbers are comparable in kind only, not cell by cell."
        )
    return found


def grounds_of(run: Run) -> list[str]:
    """On what data and against which reference ours were obtained."""
    path, reference = (run.part("recipe").get("data") or {}).get("path"), run.part("reference").get("path")
    found = [f"Ours was trained on the data in {path}."] if path else []
    name = "the one that ships with epibench" if reference == "shipped" else reference
    if name:
        found.append(f"Our reference is {name}; the published numbers were measured against one HMC chain.")
    return found


def _row(cell: Cell) -> dict[str, Any]:
    difference = cell.difference or 0.0
    return {
        "m": cell.row.members,
        "published": measured(cell.row.mean, cell.row.std),
        "num_published": cell.num_published,
        "ours": measured(cell.mean, cell.std),
        "num_ours": cell.num_ours,
        "difference": f"{'+' if difference > 0 else ''}{significant(difference, 2)}",
        "relative": change(cell.row.mean, cell.mean) if cell.mean is not None and cell.mean > 0 else MISSING,
        "stds": _multiple(difference, cell.row.std),
        "within_std": cell.within_std,
        "errors": _multiple(difference, cell.error),
        "within_error": cell.within_error,
    }


def _multiple(difference: float, unit: float | None) -> str:
    return fixed(abs(difference) / unit, 2) if unit else MISSING
