"""The command line: `epibench run`, `recipes`, `report`, `reference`, `score` and `data`.

What a command needs is imported when it runs: help and complaints come at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from epibench import __version__
from epibench.data.sets import DATA_SETS
from epibench.errors import InputError

app = typer.Typer(
    name="epibench",
    help="How far can the uncertainty of a model be trusted, and what does each further sample buy?",
    add_completion=False,
    pretty_exceptions_enable=False,
)
# The base of all of typer's complaints; some versions take it from click, others have their own.
UsageError: Any = typer.BadParameter.__bases__[0]
INTERRUPTED = 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"epibench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say the version."),
) -> None:
    """How far can the uncertainty of a model be trusted, and what does each further sample buy?"""


@app.command()
def score(
    files: Annotated[
        list[str], typer.Argument(help="Stores (.zarr, .zip, .npz, or a folder of .npz), one per method.")
    ],
    members: Annotated[
        str | None, typer.Option(help="Values of M, as 1,2,4,8. Default: powers of two up to the pool.")
    ] = None,
    draws: Annotated[int, typer.Option(help="At most so many draws for each M.")] = 16,
    plan: Annotated[
        list[str] | None,
        typer.Option(help="random, disjoint, prefix or spread; give it once, or once per file. Default: random."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the draws.", min=0)] = 0,
    convention: Annotated[str, typer.Option(help="pooled or gustafsson2020.")] = "pooled",
    uncertainty: Annotated[
        str | None,
        typer.Option(
            help="What pixels are sorted by: total, aleatoric, epistemic; "
            "for classes entropy, mutual_information, confidence. Default: the first."
        ),
    ] = None,
    ignore_index: Annotated[
        int | None,
        typer.Option(
            min=-(2**31), max=2**31 - 1, help="Target that means 'no label'. Default: 255, unless it is a class."
        ),
    ] = None,
    skip_invalid: Annotated[
        bool, typer.Option("--skip-invalid", help="Skip pixels with NaN or infinite values, and say how many.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Write all results to this file.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with all curves into this folder.")] = None,
) -> None:
    """Score predictions that any framework has saved, as a function of the number of members M."""
    from epibench.cli.score import known_convention, parse_sizes, resolve_device, run_score
    from epibench.evaluation.scoring import ScoreSettings

    settings = ScoreSettings(
        sizes=parse_sizes(members),
        max_draws=draws,
        seed=seed,
        convention=known_convention(convention),
        uncertainty=uncertainty,
        ignore_index=ignore_index,
        skip_invalid=skip_invalid,
        device=resolve_device(device),
    )
    run_score(files, plan, settings, json, report)


@app.command()
def run(
    recipe: Annotated[str, typer.Argument(help="A recipe (see epibench recipes), or a recipe file (.json).")],
    out: Annotated[Path | None, typer.Option(help="The folder of the run. Default: runs/RECIPE.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, as seed=3 or sgld.num_epochs=9600; may be given several times."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    executor: Annotated[str, typer.Option(help="Where it runs: local.")] = "local",
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Large networks trained at once. Default: one per core, or one on a GPU."),
    ] = None,
) -> None:
    """Train, evaluate, report. A run that was stopped goes on where it stopped."""
    from epibench.cli.run import run_recipe

    run_recipe(recipe, out, settings or [], device, executor, jobs)


@app.command()
def recipes(
    name: Annotated[str | None, typer.Argument(help="Write this recipe as JSON, to be edited and run.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="key=value, as for run.")] = None,
) -> None:
    """All recipes, with what they do and cost; or one of them in full: recipes NAME > mine.json."""
    from rich.console import Console

    from epibench.cli.run import print_recipes, recipe_text

    if name is None:
        print_recipes(Console())
    else:
        typer.echo(recipe_text(name, settings or []))


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or their results.json.")],
    out: Annotated[
        Path | None, typer.Option(help="The page. Default: RUN/report.html, or report.html of several.")
    ] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write all tables to this file as Markdown, too.")] = None,
) -> None:
    """Make the page of a run anew, or one page of several; with what was published beside it."""
    from epibench.cli.report import run_report

    run_report(runs, out, markdown)


@app.command()
def reference(
    name: Annotated[str, typer.Argument(help="toy-regression or toy-classification.")],
    out: Annotated[Path | None, typer.Option(help="The file to write. Default: NAME.npz.")] = None,
    data: Annotated[Path | None, typer.Option(help="Training data (.npz). Default: generated.")] = None,
    data_seed: Annotated[int, typer.Option(min=0, help="Seed of generated training data.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the sampler.")] = 0,
    prior_scale: Annotated[float, typer.Option(help="σ of the prior N(0, σ²) on every weight.")] = 1.0,
    batches: Annotated[int | None, typer.Option(help="Populations that are cooled, each with its chains.")] = None,
    chains: Annotated[int | None, typer.Option(help="Chains of each batch.")] = None,
    samples: Annotated[int | None, typer.Option(help="Draws of each chain.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    quick: Annotated[bool, typer.Option("--quick", help="About a minute on two cores; it will not converge.")] = False,
) -> None:
    """Sample the posterior of a toy problem with NUTS, and say how well that has converged."""
    from epibench.cli.reference import resolve_settings, run_reference

    settings = resolve_settings(name, quick, seed, prior_scale, batches, chains, samples)
    run_reference(name, out or Path(f"{name}.npz"), settings, data, data_seed, device, sys.argv[2:])


data_commands = typer.Typer(help="Data sets: look at them, write them out, check them.", no_args_is_help=True)
app.add_typer(data_commands, name="data")

NAME = typer.Argument(help="The data set: street.")
DOMAIN = typer.Option(help="clean, wild, or factors of the shift, as haze or night+noise (see docs/street.md).")
SEVERITY = typer.Option(help="From 0 (clean) to 5. Default: 5; clean has 0.")
SIZE = typer.Option(help="Height and width, as 256x512.")


@data_commands.command()
def preview(
    name: Annotated[str, NAME],
    out: Annotated[Path, typer.Option(help="The picture (.png).")],
    domain: Annotated[str, DOMAIN] = "clean",
    severity: Annotated[float | None, SEVERITY] = None,
    size: Annotated[str, SIZE] = "256x512",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scenes.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Number of scenes.")] = 6,
) -> None:
    """Draw a sheet of scenes: image, classes, depth, sparse depth, target."""
    from epibench.cli.data import run_preview

    run_preview(name, out, domain, severity, size, seed, count)


@data_commands.command()
def export(
    name: Annotated[str, NAME],
    layout: Annotated[str, typer.Option(help="cityscapes or kitti.")],
    out: Annotated[Path, typer.Option(help="A new or empty folder, or one to go on with.")],
    domain: Annotated[str, DOMAIN] = "clean",
    severity: Annotated[float | None, SEVERITY] = None,
    count: Annotated[int, typer.Option(min=1, help="Number of scenes.")] = 100,
    size: Annotated[str, SIZE] = "256x512",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the scenes.")] = 0,
) -> None:
    """Write scenes as a folder in the official layout of Cityscapes or KITTI depth completion."""
    from epibench.cli.data import run_export

    run_export(name, layout, out, domain, severity, count, size, seed)


@data_commands.command()
def check(
    name: Annotated[
        str,
        typer.Argument(help=f"The data set: {', '.join(each for each in DATA_SETS if DATA_SETS[each].checked)}."),
    ],
    root: Annotated[Path | None, typer.Option(help="The folder that it was unpacked into (see docs/data.md).")] = None,
    raw_root: Annotated[
        Path | None, typer.Option(help="kitti: where the images of KITTI raw are. Default: ROOT, or ROOT/raw.")
    ] = None,
    images: Annotated[Path | None, typer.Option(help="folder: where the images are.")] = None,
    labels: Annotated[Path | None, typer.Option(help="folder: where the label images are.")] = None,
    classes: Annotated[str | None, typer.Option(help="folder: a class table (.csv), or one that is built in.")] = None,
    image_suffix: Annotated[str | None, typer.Option(help="folder: what names of images end in.")] = None,
    label_suffix: Annotated[str | None, typer.Option(help="folder: what names of labels end in, as _L.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Open all frames, not only some.")] = False,
) -> None:
    """Say whether a data set can be used, what is in it, and where to get what is missing."""
    from epibench.cli.check import run_check

    options = {"root": root, "raw_root": raw_root, "images": images, "labels": labels, "classes": classes}
    run_check(name, {**options, "image_suffix": image_suffix, "label_suffix": label_suffix}, every)


def main() -> None:
    """Run; what the user can mend becomes one line and exit status 2, an interruption 130."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a plain terminal has no ±
    try:
        if (status := app(standalone_mode=False)) == INTERRUPTED:
            raise KeyboardInterrupt  # which typer has turned into its status
    except InputError as error:
        sys.exit(_complain(str(error), 2))
    except UsageError as error:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "epibench"
        sys.exit(_complain(f"{error.format_message() or 'no command given'} (see {command} --help)", 2))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(_complain("interrupted; what is finished is kept, the same command goes on from there", INTERRUPTED))
    except (OSError, MemoryError) as error:
        sys.exit(_complain(f"{type(error).__name__}: {error}", 1))
    sys.exit(status)


def _complain(text: str, status: int) -> int:
    printable = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    print(f"epibench: {printable}", file=sys.stderr)
    return status
