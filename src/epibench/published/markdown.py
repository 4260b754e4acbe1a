"""The comparison as a Markdown table."""

from __future__ import annotations

from collections.abc import Iterable

from epibench.published.comparison import Cell, is_kl

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
    # The panels of the toy problems are problems, those of the others are metrics with their unit.
    what = row.panel.lower() if is_kl(cell) else row.metric
    columns = [what, row.series.replace("*", ""), str(row.members), _measured(row.mean, row.std)]
    columns.append(str(cell.num_published))
    if cell.mean is None or cell.difference is None:
        columns += [NOT_RUN, "", "", "", ""]
    else:
        columns += [_measured(cell.mean, cell.std), str(cell.num_ours), _signed(cell.difference)]
        columns.append(_multiple(cell.difference, row.std, cell.within_std))
        columns.append(_multiple(cell.difference, cell.error, cell.within_error))
    return f"| {' | '.join(columns)} |\n"


def _measured(mean: float, std: float | None) -> str:
    return _digits(mean, 3) if std is None else f"{_digits(mean, 3)} ± {_digits(std, 2)}"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else ''}{_digits(value, 3)}".replace("-", "−")


def _digits(value: float, digits: int) -> str:
    """A number to some significant digits; large ones in full, as no one writes 2.24e+03 mm."""
    return f"{value:.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def _multiple(difference: float, unit: float | None, agrees: bool | None) -> str:
    """A difference in multiples of a unit; bold where it does not agree, empty where there is no unit."""
    if not unit or agrees is None:
        return ""
    text = f"{abs(difference) / unit:.2f}"
    return text if agrees else f"**{text}**"
