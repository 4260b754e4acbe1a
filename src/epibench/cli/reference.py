"""`epibench reference`: sample the posterior of a toy problem, and say how well that has converged."""

from __future__ import annotations

import math
import shlex
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.table import Table

from epibench.cli.options import Device, at_least, make_folder
from epibench.console import ConsoleReporter, output, say, show
from epibench.errors import InputError

if TYPE_CHECKING:
    from epibench.data.sets.toy import ToyName
    from epibench.progress import Advance
    from epibench.reference.predictions import Reference


def reference(
    name: Annotated[str, typer.Argument(metavar="NAME", help="toy-regression or toy-classification.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="The file to write. Default: NAME.npz.")] = None,
    data: Annotated[Path | None, typer.Option(metavar="FILE", help="Training data (.npz). Default: generated.")] = None,
    data_seed: Annotated[
        int, typer.Option(metavar="N", callback=at_least(0), help="Seed of generated training data.")
    ] = 0,
    seed: Annotated[int, typer.Option(metavar="N", callback=at_least(0, 2**32 - 1), help="Seed of the sampler.")] = 0,
    prior_scale: Annotated[float, typer.Option(metavar="σ", help="σ of the prior N(0, σ²) on every weight.")] = 1.0,
    batches: Annotated[
        int | None, typer.Option(metavar="N", help="Populations that are cooled, each with its chains.")
    ] = None,
    chains: Annotated[int | None, typer.Option(metavar="N", help="Chains of each batch.")] = None,
    samples: Annotated[int | None, typer.Option(metavar="N", help="Draws of each chain.")] = None,
    device: Device = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="About a minute on two cores; it will not converge.")] = False,
) -> None:
    """Sample the posterior of a toy problem with NUTS, and say how well that has converged."""
    from epibench.reference.settings import DEFAULTS, QUICK

    if name not in DEFAULTS:
        raise InputError(f"'{name}' has no reference; there are {', '.join(DEFAULTS)}")
    usual = (QUICK if quick else DEFAULTS)[name]
    settings = replace(
        usual,
        seed=seed,
        prior_scale=prior_scale,
        batches=usual.batches if batches is None else batches,
        chains=usual.chains if chains is None else chains,
        nuts=usual.nuts if samples is None else replace(usual.nuts, samples=samples),
    )
    from epibench.data.sets.toy import make_toy
    from epibench.reference.make import check_installed, make_reference, work_folder

    out = out or Path(f"{name}.npz")
    check_installed()
    check_out(out)
    problem = make_toy(cast("ToyName", name), data_seed, data)
    kind = jax_device(device)
    command = shlex.join(["epibench", "reference", *sys.argv[2:]])
    if work_folder(out).exists():
        say(f"going on with the batches in {work_folder(out)}")
    total = settings.nuts.rounds * settings.nuts.warmup + settings.nuts.samples
    reporter, bars = ConsoleReporter(), dict[int, "Advance"]()
    with ExitStack() as stack:

        def advance(batch: int, words: str) -> None:
            """How many steps cooling takes shows only as it goes: the bar of a batch counts the rest."""
            if batch not in bars:
                bars[batch] = stack.enter_context(reporter.progress(f"batch {batch}", total))
            bars[batch](1 if words in ("warm-up", "samples") else 0, words)

        made = make_reference(problem, settings, out, command, kind, advance)
    print_diagnostics(made)
    say(f"reference: {out}")


def check_out(out: Path) -> None:
    """Refuse a path that cannot be written to before an hour is spent on sampling."""
    if out.suffix != ".npz" or out.is_dir():
        raise InputError(f"--out {out}: give the name of a file that ends in .npz")
    make_folder(out.parent)


def jax_device(name: str) -> str:
    """`cpu` or `cuda`, as JAX sees it; `auto` takes a GPU if JAX has one."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"--device '{name}' is unknown: give auto, cpu or cuda")
    if name == "cpu":
        return name
    import jax

    kind = "cuda" if jax.default_backend() == "gpu" else "cpu"
    if name == "cuda" and kind == "cpu":
        raise InputError(f"--device cuda: jax {jax.__version__} sees no GPU; give cpu, or install jax[cuda]")
    return kind


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
