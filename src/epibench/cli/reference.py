"""Diagnostics of a reference for the terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.table import Table

from epibench.console import output, show

if TYPE_CHECKING:
    from epibench.reference.predictions import Reference


def print_diagnostics(reference: Reference) -> None:
    """The verdict, the floor, R-hat and effective sizes, then one row for each batch."""

    def digits(value: float | None, form: str) -> str:
        return "unknown" if value is None else "infinite" if math.isinf(value) else f"{value:{form}}"

    console, about, diagnostics = output(), reference.about, reference.about["diagnostics"]
    show(f"{about['problem']}: {about['members']:,} members", style="bold")
    show(reference.convergence, style="green" if reference.converged else "bold red")
    floor = Table("KL between the halves", "direction", "grid", "train", box=None, pad_edge=False)
    for convention, directions in reference.floor().items():
        for direction, regions in directions.items():
            values = (regions[region] for region in ("grid", "train"))
            floor.add_row(convention, direction, *(digits(value, ".3g") for value in values))
    console.print(floor)
    chains = Table("predictions", "region", "R-hat 50 %", "95 %", "max", "≤ 1.05", "ESS 50 %", "min", box=None)
    for name in (key for key in diagnostics if isinstance(diagnostics[key], dict)):
        for region, numbers in diagnostics[name].items():
            share = f"{100 * numbers['r_hat_within_limit']:.0f} %"
            r_hat = (digits(numbers[key], ".3f") for key in ("r_hat_median", "r_hat_95", "r_hat_max"))
            chains.add_row(
                name, region, *r_hat, share, *(digits(numbers[key], ".0f") for key in ("ess_median", "ess_min"))
            )
    console.print(chains)
    heads = ("batch", "start", "energy (5 … 95 %)", "first, last third", "divergent", "full trees", "s")
    table = Table(*heads, box=None, pad_edge=False)
    for number, batch in enumerate(diagnostics["batches"]):
        table.add_row(
            str(number),
            batch["start"],
            f"{batch['energy_median']:.0f} ({batch['energy_5']:.0f} … {batch['energy_95']:.0f})",
            f"{batch['energy_first_third']:.1f}, {batch['energy_last_third']:.1f}",
            f"{100 * batch['divergences']:.1f} %",
            f"{100 * batch['full_trees']:.0f} %",
            f"{batch['seconds']:.0f}",
        )
    console.print(table)
