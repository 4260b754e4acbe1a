"""`epibench reference`: sample the posterior of a toy problem, and say how well that has converged."""

from __future__ import annotations

import os
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from epibench.data.sets.toy import ToyName, make_toy
from epibench.errors import InputError
from epibench.reference.make import check_installed, make_reference, work_folder
from epibench.reference.predictions import Reference
from epibench.reference.settings import DEFAULTS, QUICK, ReferenceSettings

SAY_EVERY = 30.0  # seconds, where there is no terminal for a bar


def resolve_settings(
    name: str,
    quick: bool,
    seed: int,
    prior_scale: float,
    batches: int | None,
    chains: int | None,
    samples: int | None,
) -> ReferenceSettings:
    """The settings of a problem with what the user has changed."""
    if name not in DEFAULTS:
        raise InputError(f"'{name}' has no reference; there are {', '.join(DEFAULTS)}")
    settings = (QUICK if quick else DEFAULTS)[name]
    nuts = settings.nuts if samples is None else replace(settings.nuts, samples=samples)
    return replace(
        settings,
        seed=seed,
        prior_scale=prior_scale,
        batches=settings.batches if batches is None else batches,
        chains=settings.chains if chains is None else chains,
        nuts=nuts,
    )


def run_reference(
    name: str,
    out: Path,
    settings: ReferenceSettings,
    data: Path | None,
    data_seed: int,
    device: str,
    arguments: list[str],
) -> Reference:
    """Check everything, sample with progress, write the file, show how well the batches agree."""
    errors = Console(stderr=True)
    check_installed()
    check_out(out)
    problem = make_toy(cast(ToyName, name), data_seed, data)
    kind = jax_device(device)
    command = shlex.join(["epibench", "reference", *arguments])
    if work_folder(out).exists():
        errors.print(f"going on with the batches in {work_folder(out)}", highlight=False, markup=False, soft_wrap=True)
    with Shown(errors, settings) as shown:
        reference = make_reference(problem, settings, out, command, kind, shown.update)
    print_diagnostics(reference, Console())
    errors.print(f"reference: {out}", highlight=False, markup=False, soft_wrap=True)
    return reference


def check_out(out: Path) -> None:
    """Refuse a place that cannot be written to before an hour is spent on sampling."""
    if out.suffix != ".npz" or out.is_dir():
        raise InputError(f"--out {out}: give the name of a file that ends in .npz")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out.parent}: cannot make this folder ({error.strerror})") from None
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"{out.parent}: this folder cannot be written to")


def jax_device(name: str) -> str:
    """`cpu` or `cuda`, as JAX sees it; `auto` takes a GPU if JAX has one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device '{name}' is unknown: give auto, cpu or cuda")
    if name == "cpu":
        return name
    import jax

    found = "cuda" if jax.default_backend() == "gpu" else "cpu"
    if name == "cuda" and found == "cpu":
        raise InputError(f"--device cuda: jax {jax.__version__} sees no GPU; give cpu, or install jax[cuda]")
    return found


class Shown:
    """A bar for each batch; without a terminal, a line now and then."""

    def __init__(self, console: Console, settings: ReferenceSettings) -> None:
        self.console, self.settings = console, settings
        columns = (TextColumn("batch {task.fields[number]}"), BarColumn(), TextColumn("{task.description}"))
        self.bars = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self.tasks: dict[int, Any] = {}
        self.said = 0.0

    def __enter__(self) -> Shown:
        if self.console.is_terminal:
            self.bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.bars.stop()

    def update(self, batch: int, words: str) -> None:
        """One more step of a batch. How many steps cooling takes shows only as it goes: the bar counts the rest."""
        if not self.console.is_terminal:
            if time.monotonic() - self.said > SAY_EVERY:
                self.said = time.monotonic()
                self.console.print(f"batch {batch}: {words}", highlight=False, markup=False)
            return
        if batch not in self.tasks:
            nuts = self.settings.nuts
            total = nuts.rounds * nuts.warmup + nuts.samples
            self.tasks[batch] = self.bars.add_task(words, total=total, number=batch)
        counted = words in ("warm-up", "samples")
        self.bars.update(self.tasks[batch], advance=1 if counted else 0, description=words)


def print_diagnostics(reference: Reference, console: Console) -> None:
    """The floor, R-hat and effective sizes, then one row for each batch."""
    about, found = reference.about, reference.about["diagnostics"]
    console.print(f"{about['problem']}: {about['members']:,} members", style="bold", highlight=False)
    floor = Table("KL between the halves", "direction", "grid", "train", box=None, pad_edge=False)
    for convention, directions in reference.floor().items():
        for direction, regions in directions.items():
            floor.add_row(convention, direction, *(shown(regions[region]) for region in ("grid", "train")))
    console.print(floor)
    chains = Table("predictions", "region", "R-hat 50 %", "95 %", "max", "≤ 1.05", "ESS 50 %", "min", box=None)
    for output in (key for key in found if isinstance(found[key], dict)):
        for region, numbers in found[output].items():
            share = f"{100 * numbers['r_hat_within_limit']:.0f} %"
            r_hat = (f"{numbers[key]:.3f}" for key in ("r_hat_median", "r_hat_95", "r_hat_max"))
            chains.add_row(output, region, *r_hat, share, *(f"{numbers[key]:.0f}" for key in ("ess_median", "ess_min")))
    console.print(chains)
    console.print(batch_table(found["batches"]))


def batch_table(batches: list[dict[str, Any]]) -> Table:
    """Energies and trees, one row for each batch."""
    heads = ("batch", "start", "energy (5 … 95 %)", "first, last third", "divergent", "full trees", "s")
    table = Table(*heads, box=None, pad_edge=False)
    for number, batch in enumerate(batches):
        table.add_row(
            str(number),
            batch["start"],
            f"{batch['energy_median']:.0f} ({batch['energy_5']:.0f} … {batch['energy_95']:.0f})",
            f"{batch['energy_first_third']:.1f}, {batch['energy_last_third']:.1f}",
            f"{100 * batch['divergences']:.1f} %",
            f"{100 * batch['full_trees']:.0f} %",
            f"{batch['seconds']:.0f}",
        )
    return table


def shown(value: float | None) -> str:
    """A divergence with three digits."""
    return "unknown" if value is None else f"{value:.3g}"
