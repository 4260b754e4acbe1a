"""`epibench report`: the page of a run made anew from its results, or one page that compares several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from epibench.errors import InputError
from epibench.published import compare, totals
from epibench.report import write_run_page
from epibench.report.figures import axis_members
from epibench.report.kl_figures import view_name
from epibench.report.kl_verdicts import Place, groups, places_at, verdict
from epibench.report.markdown import render_markdown
from epibench.report.numbers import plain_powers, significant
from epibench.report.published_section import warnings_of
from epibench.report.runs import VIEWS, Method, Run, View, all_members, by_problem, load_results, methods_of, read_runs
from epibench.results import write_atomically

PAGE_NAME = "report.html"
# What results that were edited or cut off can lead to anywhere on the way to a page.
DAMAGED = (TypeError, KeyError, IndexError, ValueError, AttributeError, OverflowError)
FLOOR_WIDTH, WITH_STD, WITHOUT_STD = 9, 18, 9  # of columns, with the space before them


def run_report(runs: list[Path], out: Path | None, markdown: Path | None) -> None:
    """Read every run, write the page and the Markdown, show the tables, and say where everything is."""
    results = [load_results(path) for path in runs]
    folders = [(path if path.is_dir() else path.parent).resolve() for path in runs]
    page = out or (folders[0] / PAGE_NAME if len(runs) == 1 else Path(PAGE_NAME))
    check_places(page, markdown, folders)
    names = [folder.name for folder in folders]
    try:
        write_run_page(results, page, names)
        read = read_runs(results, names)
        if markdown is not None:
            write_atomically(markdown, render_markdown(read))
        print_runs(read, Console())
    except InputError:
        raise
    except OSError as error:
        raise InputError(
            f"{error.filename or page}: cannot be written ({error.strerror}); give another place"
        ) from None
    except DAMAGED as error:
        files = ", ".join(map(str, runs))
        raise InputError(f"{files}: not the results of a run as this version writes them ({error!r})") from None
    for word, path in (("report: ", page), ("markdown:", markdown)):
        if path is not None:
            Console(stderr=True).print(f"{word} {path}", highlight=False, markup=False, soft_wrap=True)


def check_places(page: Path, markdown: Path | None, folders: Sequence[Path]) -> None:
    """Refuse to write over what a run has found out."""
    for place in (page, markdown):
        if place is None:
            continue
        if place.is_dir():
            raise InputError(f"{place} is a folder: give the name of a file in it")
        if place.resolve().parent in folders and place.name in ("results.json", "recipe.json"):
            raise InputError(f"{place}: would be written over a file of the run; give another place")


def print_run_tables(results: dict[str, Any], console: Console) -> None:
    """The KL of every method at each M beside the noise floor, and how many published cells agree."""
    print_runs(read_runs([results]), console)


def print_runs(runs: Sequence[Run], console: Console) -> None:
    """Tables for each problem of some runs."""
    for group in by_problem(runs):
        methods, view = methods_of(group), VIEWS[0]
        if all_members(methods, view):
            console.print(f"{group[0].problem}: {view_name(view)}", style="bold", highlight=False, soft_wrap=True)
            console.print(kl_table(methods, view, console.width))
            console.print(f"{verdict(methods, view).headline}.\n", highlight=False, markup=False, soft_wrap=True)
        else:
            console.print(f"{group[0].problem}: no KL, as there was no reference", highlight=False, soft_wrap=True)
        for run in group:
            for line in published_lines(run):
                console.print(line, highlight=False, markup=False, soft_wrap=True)


def kl_table(methods: Sequence[Method], view: View, width: int) -> Table:
    """Mean ± std over draws; the smallest mean of an M is green, ≈ marks those that cannot be told from it.

    Where a terminal is too narrow, stds are left out, and then the smallest M. A point estimate is in the last column.
    """
    having = [method for method in methods if method.members(view)]
    columns = axis_members([method.members(view) for method in having])
    labels = [_label(method, view, columns) for method in having]
    room = width - max(map(len, labels)) - FLOOR_WIDTH
    with_std = room >= len(columns) * WITH_STD
    if not with_std:
        columns = columns[-max(1, room // WITHOUT_STD) :]
    table = Table(box=None, pad_edge=False)
    for title in ("", "floor", *(f"M = {m}" for m in columns)):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    closest = {m: [place.label for place in (groups(places_at(methods, view, m)) or [[]])[0]] for m in columns}
    for method, label in zip(having, labels, strict=True):
        floor = Text(plain_powers(significant(method.run.floor(view), 2)), style="dim")
        cells = [_cell(Place(method, view, m), closest[m], with_std) for m in columns]
        if label != method.label:
            cells[-1] = _cell(Place(method, view, method.members(view)[0]), [], with_std)
        table.add_row(Text(label, style="cyan"), floor, *cells)
    return table


def _label(method: Method, view: View, columns: Sequence[int]) -> str:
    """The method's label, with the M of a point estimate, for which there is no column."""
    sizes = method.members(view)
    return method.label if set(sizes) & set(columns) else f"{method.label} (M = {sizes[0]})"


def _cell(place: Place, closest: Sequence[str], with_std: bool) -> Text:
    if place.m not in place.method.members(place.view):
        return Text("")
    value = place.text if with_std else significant(place.stat.mean, 3)
    text = Text(plain_powers(value) if place.stat.mean is not None else "infinite")
    if place.label in closest[:1]:
        text.stylize("bold green")
    if place.at_floor:
        text.append(" at floor", style="dim")
    if len(closest) > 1:
        text.append(" ≈" if place.label in closest else "  ")
    return text


def published_lines(run: Run) -> list[str]:
    """How many published cells agree, and what keeps them from being comparable; nothing where none are published."""
    found = totals(compare(run.results))
    if not found.compared:
        return []
    counts = (
        f"{run.name}: of {found.published} published cells {found.compared} have a value of ours; {found.within_std} "
        f"within one published std, {found.within_error} of {found.judged} within the combined Monte Carlo error"
    )
    return [counts, *(f"  {warning}" for warning in warnings_of(run))]
