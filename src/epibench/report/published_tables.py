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
from epibench.report.numbers import MISSING, change, fixed, measured, signed_percent, significant, value_text
from epibench.report.runs import Run
from epibench.report.table import Block, Cell, Column, Name, Row, Table, markdown_text


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
            texts = [Cell(measured(row.mean, row.std)), Cell(str(cell.num_published))]
            if cell.mean is None or cell.difference is None:
                rows.append(Row(name, [*texts, Cell("no finite value")]))
                continue
            difference = f"{'+' if cell.difference > 0 else ''}{significant(cell.difference, 3)}"
            relative = change(row.mean, cell.mean) if cell.mean > 0 else MISSING
            ours = (measured(cell.mean, cell.std), value_text(cell.median, cell.std), str(cell.num_ours))
            texts += [Cell(text) for text in (*ours, difference, relative)]
            stds = fixed(abs(cell.difference) / row.std, 2) if row.std else ""
            for text, agrees in ((stds, cell.within_std), ("" if cell.p is None else _p_text(cell.p), cell.agrees)):
                good, bad = Cell(spread=text, tone="good", word="agrees"), Cell(spread=text, tone="bad", word="differs")
                texts.append(Cell(MISSING) if agrees is None else good if agrees else bad)
            low, high = cell.detectable or (None, None)
            apart = f"{MISSING if low is None or low <= -1 else signed_percent(low)}, {signed_percent(high or 0.0)}"
            rows.append(Row(name, [*texts, Cell(MISSING if high is None else apart)]))
        made.append(replace(block, rows=rows))
    names = ("Published", "n", "Ours", "Median", "n", "Ours − published", "Relative", "In published stds", "p")
    soft = [Column(Name(name), soft=name in ("n", "Told apart")) for name in (*names, "Told apart")]
    return Table("ours beside published", soft, made, "M", "published")


def published_blocks(cells: Iterable[PublishedCell]) -> list[tuple[Block, list[PublishedCell]]]:
    """Cells by series, each with its problem, or with its metric and unit."""
    blocks: dict[str, list[PublishedCell]] = {}
    for cell in cells:
        blocks.setdefault(_series(cell), []).append(cell)
    return [(Block(Name(name)), of_series) for name, of_series in blocks.items()]


def _series(cell: PublishedCell) -> str:
    return f"{cell.row.panel.lower() if cell.row.is_kl else cell.row.metric}, {cell.row.series.replace('*', '')}"


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def series_table(series: Iterable[SeriesComparison]) -> Table:
    """A row for each series: differences of its cells, the number of small p, and p of the series."""
    rows = []
    for one in series:
        shares = [(cell.difference or 0.0) / cell.row.mean for cell in one.cells]
        ends = " … ".join(dict.fromkeys((signed_percent(min(shares)), signed_percent(max(shares)))))
        p = Cell(_p_text(one.together.p), best=one.together.p < LEVEL)
        rows.append(Row(Name(_series(one.cells[0])), [Cell(str(len(one.cells))), Cell(ends), Cell(str(one.unlike)), p]))
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
