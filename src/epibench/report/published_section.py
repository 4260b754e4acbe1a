"""The comparison of runs with what was published, in words and cell by cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from epibench.published import Cell, base_recipe, compare, dense_figure, is_kl, is_quick, totals
from epibench.report.kl_figures import published_figure
from epibench.report.numbers import MISSING, change, fixed, measured, significant
from epibench.report.page import listed
from epibench.report.runs import Method, Run

CONVENTION_NOTES = {  # by domain: what differs most from pooled metrics
    "kitti": "RMSE as the mean over groups of 4 images, of targets beyond 0.1 m",
    "cityscapes": "a confidence of exactly 1 in no bin of the ECE, mIoU over all classes, a missing one as 0",
}


def published_section(runs: Sequence[Run], methods: Sequence[Method]) -> dict[str, Any] | None:
    """Counts, caveats and every cell; None where the paper shows nothing like these runs."""
    compared = {run.name: compare(run.results) for run in runs}
    cells = [cell for found in compared.values() for cell in found]
    if not any(cell.mean is not None for cell in cells):
        return None
    series = [one for method in methods for one in _series(method, compared[method.run.name])]
    if not series:
        return None
    having = [run for run in runs if compared[run.name]]
    return {
        "totals": totals(cells),
        "warnings": _of_runs(warnings_of, having),
        "grounds": _of_runs(grounds_of, having),
        "figures": [published_figure(one.method, one.cells, one.metric) for one in series],
        "blocks": [
            {
                "entry": one.method,
                "metric": one.metric,
                "series": ", ".join(dict.fromkeys(cell.row.series.strip("*") for cell in one.cells)),
                "rows": [_row(cell) for cell in one.cells if cell.mean is not None],
            }
            for one in series
        ],
    }


@dataclass(frozen=True)
class Compared:
    """One method's cells of one metric; KLs, which are all there is of toy problems, go without its name."""

    method: Method
    metric: str
    cells: list[Cell]


def _series(method: Method, cells: Sequence[Cell]) -> list[Compared]:
    """A method's cells by metric, where ours has any value."""
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.method == method.name:
            found.setdefault("" if is_kl(cell) else cell.row.metric, []).append(cell)
    return [
        Compared(method, metric, listed_cells)
        for metric, listed_cells in found.items()
        if any(cell.mean is not None for cell in listed_cells)
    ]


def _of_runs(say: Callable[[Run], list[str]], runs: Sequence[Run]) -> list[str]:
    """What there is to say on runs; each is named where there are several and they do not all share it."""
    said: dict[str, list[str]] = {}
    for run in runs:
        for text in say(run):
            said.setdefault(text, []).append(run.name)
    return [text if len(names) == len(runs) else f"{listed(names)}: {text}" for text, names in said.items()]


def warnings_of(run: Run) -> list[str]:
    """What keeps our numbers from being comparable cell by cell."""
    found = []
    if is_quick(run.recipe_name):
        base = base_recipe(run.recipe_name)
        found.append(f"This is the quick variant of {base}: smaller, and trained less, than what was published.")
    # Where data and reference come from is said by itself.
    changed = [text for text in run.results.get("changes") or [] if not text.startswith(("data.", "reference."))]
    if changed:
        found.append(f"Settings that differ from the recipe's: {', '.join(changed)}.")
    figure = dense_figure(base_recipe(run.recipe_name))
    if figure is not None:
        if run.results.get("convention") != "gustafsson2020":
            found.append(
                "The two are measured by different conventions: the published numbers as in gustafsson2020 "
                f"({CONVENTION_NOTES[figure.domain]}), ours over all valid pixels together (pooled)."
            )
        return found
    data = run.part("recipe").get("data") or {}
    if not data.get("path"):
        found.append(
            f"Ours was trained on data that epibench generated itself (seed {data.get('seed', 'unknown')}), not on the "
            "published data: the numbers are comparable in kind only, not cell by cell."
        )
    return found


def grounds_of(run: Run) -> list[str]:
    """On what data, against which reference and by which measure ours were obtained."""
    figure = dense_figure(base_recipe(run.recipe_name))
    if figure is not None:
        about = run.part("domains").get(figure.domain)
        label = about.get("label") if isinstance(about, dict) else None
        return [f"Ours are those on {label or figure.domain}, in the published unit."]
    path, reference = (run.part("recipe").get("data") or {}).get("path"), run.part("reference").get("path")
    found = [f"Ours was trained on the data in {path}."] if path else []
    name = "the one that ships with epibench" if reference == "shipped" else reference
    if name:
        found.append(f"Our reference is {name}; the published numbers were measured against one HMC chain.")
    return [*found, "KL(reference ‖ method) over the grid under the published convention."]


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
