"""The published numbers as they are in the paper's plots: 269 rows, 203 of them of the toy problems."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Row:
    """One published cell: where it is shown, and its mean and population std."""

    figure: str
    panel: str
    metric: str
    series: str
    members: int
    mean: float
    std: float

    @property
    def identity(self) -> tuple[str, str, int, float, float]:
        """What two rows have in common if they show the same result in two figures."""
        return self.panel, self.metric, self.members, self.mean, self.std


@cache
def published_rows() -> tuple[Row, ...]:
    """Every published cell, in the order of the paper's figures."""
    text = resources.files("epibench.published").joinpath("results.csv").read_text(encoding="utf-8")
    return tuple(
        Row(
            found["figure"],
            found["panel"],
            found["metric"],
            found["series"],
            int(found["M"]),
            float(found["mean"]),
            float(found["std"]),
        )
        for found in csv.DictReader(text.splitlines())
    )


def distinct_rows(rows: Iterable[Row]) -> list[Row]:
    """Rows without those that repeat an earlier one: some series are shown in several figures."""
    return list({row.identity: row for row in reversed(list(rows))}.values())[::-1]
