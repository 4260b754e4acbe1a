"""`epibench report`: the page of a run made anew from its results, or one page that compares several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from epibench.errors import InputError
from epibench.files import write_text
from epibench.published import compare, totals
from epibench.report import write_run_page
from epibench.report.dense_section import headline_names, scored_domains
from epibench.report.domain_verdicts import finding, metric_verdict
from epibench.report.domains import Domain, entries_on, featured
from epibench.report.entries import Stat
from epibench.report.figures import axis_members
from epibench.report.kl_figures import view_name
from epibench.report.kl_verdicts import Place, groups, places_at, verdict
from epibench.report.markdown import render_markdown
from epibench.report.metric_info import BETTER_TEXT, metric_info
from epibench.report.numbers import MAX_DECIMALS, fixed, magnitude, measured, plain_powers, significant
from epibench.report.published_section import warnings_of
from epibench.report.runs import VIEWS, Method, Run, View, all_members, by_problem, load_results, methods_of, read_runs
from epibench.report.tables import best_labels
from epibench.report.verdicts import title_with_unit

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
            write_text(markdown, render_markdown(read))
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
    """The KL of every method at each M beside the noise floor, or its metrics on every domain, and published cells."""
    print_runs(read_runs([results]), console)


def print_runs(runs: Sequence[Run], console: Console) -> None:
    """Tables for each problem of some runs."""
    for group in by_problem(runs):
        methods, view = methods_of(group), VIEWS[0]
        domains = scored_domains(group, methods)
        if domains:
            print_domains(group[0].problem, domains, methods, console)
        elif all_members(methods, view):
            console.print(f"{group[0].problem}: {view_name(view)}", style="bold", highlight=False, soft_wrap=True)
            console.print(kl_table(methods, view, console.width))
            console.print(f"{verdict(methods, view).headline}.\n", highlight=False, markup=False, soft_wrap=True)
        else:
            console.print(f"{group[0].problem}: no KL, as there was no reference", highlight=False, soft_wrap=True)
        for run in group:
            for line in published_lines(run):
                console.print(line, highlight=False, markup=False, soft_wrap=True)


def print_domains(problem: str, domains: Sequence[Domain], methods: Sequence[Method], console: Console) -> None:
    """A table for each headline metric, and what was found on the domain trained for and under the hardest shift."""
    names = headline_names(domains, methods)
    for name in names:
        info = metric_info(name)
        title = title_with_unit(info, entries_on(methods, domains[0].name))
        heading = f"{problem}: {title}, {BETTER_TEXT[info.better][2:]}"
        console.print(heading, style="bold", highlight=False, markup=False, soft_wrap=True)
        console.print(domain_table(name, domains, methods, console.width), no_wrap=True)
    for domain in featured(domains, methods):
        verdicts = [metric_verdict(name, entries_on(methods, domain.name)) for name in names]
        line = f"{domain.label} ({domain.role}): {finding(verdicts)}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    console.print()


def domain_table(name: str, domains: Sequence[Domain], methods: Sequence[Method], width: int) -> Text:
    """Mean ± std over draws, a block of lines for each domain; its best mean at each M is green.

    Where a terminal is too narrow stds have one digit, then they are left out, and then the smallest M.
    """
    entries = {domain: entries_on(methods, domain.name) for domain in domains}
    rows = [entry for found in entries.values() for entry in found]
    columns = sorted({m for entry in rows for m in entry.members})
    indent = 2 + max(len(entry.label) for entry in rows)
    for write in (_full, _short, _bare):
        texts = {(id(entry), m): write(entry.stat(name, m)) for entry in rows for m in entry.members}
        cell = 2 + max(len(text) for text in (*texts.values(), f"M = {columns[-1]}"))
        if indent + cell * len(columns) <= width:
            break
    columns = columns[-max(1, (width - indent) // cell) :]
    table = Text(" " * indent + "".join(f"M = {m}".rjust(cell) for m in columns) + "\n")
    for domain, found in entries.items():
        table.append(f"{domain.label}\n")
        for entry in found:
            table.append(f"  {entry.label}".ljust(indent), style="cyan")
            for m in columns:
                best = entry.label in best_labels(name, found, m)
                table.append(texts.get((id(entry), m), "").rjust(cell), style="bold green" if best else "")
            table.append("\n")
    return table


def _full(stat: Stat) -> str:
    return plain_powers(measured(stat.mean, stat.std))


def _short(stat: Stat) -> str:
    """A mean with a std of one digit."""
    if stat.mean is None or not stat.std or magnitude(stat.std) < -MAX_DECIMALS:
        return _bare(stat)
    decimals = -magnitude(stat.std)
    return f"{fixed(stat.mean, decimals)} ± {fixed(stat.std, decimals)}"


def _bare(stat: Stat) -> str:
    return plain_powers(significant(stat.mean, 3))


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
