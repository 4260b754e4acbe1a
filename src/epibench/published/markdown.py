"""The comparison as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable

from epibench.published.comparison import Cell

HEAD = (
    "| problem | series | M | published | n | ours | n | ours − published | in std | in errors |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|:-:|:-:|\n"
)
NOT_RUN = "no finite value"


def published_table(cells: Iterable[Cell]) -> str:
    """A row per cell: both means ± std and their independent draws, the difference, and both judgements.

    `in std` is the difference in published stds (agrees up to 1), `in errors` in standard errors of the difference
    (agrees up to 2); what does not agree is bold.
    """
    return HEAD + "".join(_row(cell) for cell in cells)


def _row(cell: Cell) -> str:
    row = cell.row
    columns = [row.panel.lower(), row.series.replace("*", ""), str(row.members), _measured(row.mean, row.std)]
    columns.append(str(cell.num_published))
    if cell.mean is None or cell.difference is None:
        columns += [NOT_RUN, "", "", "", ""]
    else:
        columns += [_measured(cell.mean, cell.std), str(cell.num_ours), f"{cell.difference:+.3g}".replace("-", "−")]
        columns.append(_multiple(cell.difference, row.std, cell.within_std))
        columns.append(_multiple(cell.difference, cell.error, cell.within_error))
    return f"| {' | '.join(columns)} |\n"


def _measured(mean: float, std: float | None) -> str:
    return f"{mean:.3g}" if std is None else f"{mean:.3g} ± {std:.2g}"


def _multiple(difference: float, unit: float | None, agrees: bool | None) -> str:
    """A difference in multiples of a unit; bold where it does not agree, empty where there is no unit."""
    if not unit or agrees is None:
        return ""
    text = f"{abs(difference) / unit:.2f}"
    return text if agrees else f"**{text}**"
