"""Our numbers beside published ones: cell by cell, series by series, and as a part of a Markdown document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from epibench.published import (
    PublishedCell,
    SeriesComparison,
    by_series,
    compare,
    distinct,
    grounds_of,
    totals,
    unlike_by_chance,
    warnings_of,
)
from epibench.published.resampling import LEVEL
from epibench.report.numbers import (
    MISSING,
    change,
    fixed,
    measured,
    probability_text,
    signed_percent,
    significant,
    told_apart,
    value_text,
)
from epibench.report.runs import Run
from epibench.report.table import Block, Cell, Column, Name, Row, Table, Tone, markdown_text

TONES: dict[bool, tuple[Tone, str]] = {True: ("good", "agrees"), False: ("bad", "differs")}


def published_table(blocks: Sequence[tuple[Block, Sequence[PublishedCell]]]) -> Table:
    """A row for each published cell, with our values and both judgements.

    Means have their std and their number of independent draws. A difference agrees up to 1 published std, and from
    p = 0.05. The last column has the smallest differences, below and above, that give p < 0.05 in 80 of 100 cases.
    """
    made = []
    for block, cells in blocks:
        rows = []
        for cell in cells:
            row, name = cell.row, Name(str(cell.row.members))
            theirs = [Cell(measured(row.mean, row.std)), Cell(str(cell.num_published))]
            if cell.mean is None or cell.difference is None:
                rows.append(Row(name, [*theirs, Cell("no finite value")]))
                continue
            stds = fixed(abs(cell.difference) / row.std, 2) if row.std else ""
            ours = [measured(cell.mean, cell.std), value_text(cell.median, cell.std), str(cell.num_ours)]
            ours.append(f"{'+' if cell.difference > 0 else ''}{significant(cell.difference, 3)}")
            ours.append(change(row.mean, cell.mean) if cell.mean > 0 else MISSING)
            p = "" if cell.p is None else probability_text(cell.p)
            judged = [
                Cell(MISSING) if agrees is None else Cell(spread=text, tone=TONES[agrees][0], word=TONES[agrees][1])
                for text, agrees in ((stds, cell.within_std), (p, cell.agrees))
            ]
            rows.append(Row(name, [*theirs, *map(Cell, ours), *judged, Cell(told_apart(cell.detectable))]))
        made.append(replace(block, rows=rows))
    names = ("Published", "n", "Ours", "Median", "n", "Ours − published", "Relative", "In published stds", "p")
    soft = [Column(Name(name), soft=name == "n") for name in names]
    return Table("ours beside published", [*soft, Column(Name("Told apart"), soft=True)], made, "M", "published")


def published_blocks(cells: Iterable[PublishedCell]) -> list[tuple[Block, list[PublishedCell]]]:
    """Cells by series, each with its problem, or with its metric and unit."""
    blocks: dict[str, list[PublishedCell]] = {}
    for cell in cells:
        blocks.setdefault(_series(cell), []).append(cell)
    return [(Block(Name(name)), of_series) for name, of_series in blocks.items()]


def _series(cell: PublishedCell) -> str:
    return f"{cell.row.panel.lower() if cell.row.is_kl else cell.row.metric}, {cell.row.series.replace('*', '')}"


def series_table(series: Iterable[SeriesComparison]) -> Table:
    """A row for each series: differences of its cells, the number of small p, and p of the series."""
    rows = []
    for one in series:
        shares = [(cell.difference or 0.0) / cell.row.mean for cell in one.cells]
        ends = " … ".join(dict.fromkeys((signed_percent(min(shares)), signed_percent(max(shares)))))
        together = Cell(probability_text(one.together.p), best=one.together.p < LEVEL)
        texts = [Cell(str(len(one.cells))), Cell(ends), Cell(str(one.unlike)), together]
        rows.append(Row(Name(_series(one.cells[0])), texts))
    names = ("cells", "ours − published", f"cells with p < {LEVEL:g}", "p of the series")
    return Table("series", [Column(Name(name)) for name in names], [Block(rows=rows)], "series")


def published_part(runs: Sequence[Run]) -> Iterator[str]:
    """Markdown: counts over distinct cells, series by series, then each run's cells with their grounds."""
    compared = [(run, compare(run.results)) for run in runs]
    cells = [cell for _, of_run in compared for cell in of_run]
    if all(cell.mean is None for cell in cells):
        return
    counts, series = totals(distinct(cells)), by_series(cells)
    yield (
        f"### Beside what was published\n\nOf {counts.published} distinct published cells {counts.compared} have a "
        f"value of ours; {counts.within_std} lie within one published std.\n"
    )
    if series:
        low, high = unlike_by_chance(series)
        yield (
            f"{counts.unlike} of {counts.judged} have p < {LEVEL:g}, where chance alone gives {counts.expected:.1f} on "
            f"average and {low} to {high} in 90 of 100 cases.\n\n{markdown_text(series_table(series))}"
        )
    for run, of_run in compared:
        if any(cell.mean is not None for cell in of_run):
            said = " ".join((*warnings_of(run.results), *grounds_of(run.results)))
            yield f"#### {run.name}\n\n{said}\n\n{markdown_text(published_table(published_blocks(of_run)))}"
