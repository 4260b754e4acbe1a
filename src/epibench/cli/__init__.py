"""The command line: `epibench run`, `recipes`, `report`, `reference`, `score` and `data`.

What a command needs is imported when it runs: help and complaints come at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from epibench import __version__
from epibench.cli import recipes, reference, run, score
from epibench.cli.options import Command, at_least
from epibench.data.sets import DATA_SETS
from epibench.errors import InputError

# Plain help reads well in any log; rich would colour and frame it wherever it takes itself to be on a terminal.
app = typer.Typer(name="epibench", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
# The base of all of typer's complaints; some versions take it from click, others have their own.
UsageError: Any = typer.BadParameter.__bases__[0]
_format_warning = warnings.formatwarning
DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"epibench {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Say the version."),
) -> None:
    """How far can the uncertainty of a model be trusted, and what does each further sample buy?"""


app.command(cls=Command, short_help="Score predictions that any framework has saved.")(score.score)
app.command(cls=Command, short_help="Train, evaluate, report.")(run.run)
app.command(cls=Command, short_help="List recipes, or write one in full.")(recipes.recipes)
app.command(cls=Command, short_help="Sample the posterior of a toy problem.")(reference.reference)


@app.command(cls=Command, short_help="Make the page of one run or several.")
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or their results.json.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page. Default: RUN/report.html, or report.html of several.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all tables to this file as Markdown, too.")
    ] = None,
) -> None:
    """Make the page of a run anew, or one page of several; with what was published beside it."""
    from epibench.cli.report import run_report

    run_report(runs, out, markdown)


data_commands = typer.Typer(help="Data sets: look at them, write them out, check them.", rich_markup_mode=None)
app.add_typer(data_commands, name="data")

NAME = typer.Argument(metavar="NAME", help="The data set: street.")
DOMAIN = typer.Option(
    metavar="DOMAIN", help="clean, wild, or factors of the shift, as haze or night+noise (see docs/street.md)."
)
SEVERITY = typer.Option(metavar="LEVEL", help="From 0 (clean) to 5. Default: 5; clean has 0.")
SIZE = typer.Option(metavar="HxW", help="Height and width, as 256x512.")


@data_commands.command(cls=Command, short_help="Draw a sheet of scenes.")
def preview(
    name: Annotated[str, NAME],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture (.png).")],
    domain: Annotated[str, DOMAIN] = "clean",
    severity: Annotated[float | None, SEVERITY] = None,
    size: Annotated[str, SIZE] = "256x512",
    seed: Annotated[int, typer.Option(metavar="N", callback=at_least(0), help="Seed of the scenes.")] = 0,
    count: Annotated[int, typer.Option(metavar="N", callback=at_least(1), help="Number of scenes.")] = 6,
) -> None:
    """Draw a sheet of scenes: image, classes, depth, sparse depth, target."""
    from epibench.cli.data import run_preview

    run_preview(name, out, domain, severity, size, seed, count)


@data_commands.command(cls=Command, short_help="Write scenes as a data set's folder.")
def export(
    name: Annotated[str, NAME],
    layout: Annotated[str, typer.Option(metavar="LAYOUT", help="cityscapes or kitti.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new or empty folder, or one to go on with.")],
    domain: Annotated[str, DOMAIN] = "clean",
    severity: Annotated[float | None, SEVERITY] = None,
    count: Annotated[int, typer.Option(metavar="N", callback=at_least(1), help="Number of scenes.")] = 100,
    size: Annotated[str, SIZE] = "256x512",
    seed: Annotated[int, typer.Option(metavar="N", callback=at_least(0), help="Seed of the scenes.")] = 0,
) -> None:
    """Write scenes as a folder in the official layout of Cityscapes or KITTI depth completion."""
    from epibench.cli.data import run_export

    run_export(name, layout, out, domain, severity, count, size, seed)


@data_commands.command(cls=Command, short_help="Say whether a data set can be used.")
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help=f"The data set: {', '.join(each for each in DATA_SETS if DATA_SETS[each].checked)}.",
        ),
    ],
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder that it was unpacked into (see docs/data.md).")
    ] = None,
    raw_root: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="kitti: where the images of KITTI raw are. Default: ROOT, or ROOT/raw."),
    ] = None,
    images: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder: where the images are.")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder: where the label images are.")] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="TABLE", help="folder: a class table (.csv), or one that is built in.")
    ] = None,
    image_suffix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="folder: what names of images end in.")
    ] = None,
    label_suffix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="folder: what names of labels end in, as _L.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Open all images with their labels, not only some.")] = False,
) -> None:
    """Say whether a data set can be used, what is in it, and where to get what is missing."""
    from epibench.cli.data import run_check

    options = {"root": root, "raw_root": raw_root, "images": images, "labels": labels, "classes": classes}
    run_check(name, {**options, "image_suffix": image_suffix, "label_suffix": label_suffix}, every)


def main() -> None:
    """Run; what the user can mend becomes one line and exit status 2, an interruption 130, other failures 1."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a plain terminal has no ±
    warnings.formatwarning = _warning
    try:
        status = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Nobody reads on, as `head` after its lines. Python would try to print the rest when it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = FAILED
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        status = _complain(f"{where}{error.strerror or error}", FAILED)
    sys.exit(status)


def _run() -> int:
    """The exit status of a command."""
    try:
        status = app(standalone_mode=False, prog_name="epibench") or DONE
        if status == INTERRUPTED:
            raise KeyboardInterrupt  # which typer has turned into its status
    except InputError as error:
        return _complain(str(error), WRONG_USE)
    except UsageError as error:
        command = error.ctx.command_path if getattr(error, "ctx", None) else "epibench"
        return _complain(f"{error.format_message() or 'no command given'} (see {command} --help)", WRONG_USE)
    except RecursionError:
        return _complain("nested too deeply: a recipe, a setting or a file that was given", WRONG_USE)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted; what is finished is kept, the same command goes on from there", INTERRUPTED)
    except MemoryError as error:
        return _complain(f"not enough memory{f': {error}' if str(error) else ''}", FAILED)
    return int(status)


def _warning(message: Warning | str, category: type[Warning], filename: str, *place: Any, **more: Any) -> str:
    """Our own warnings as one line; those of libraries as Python shows them."""
    if Path(__file__).parents[1] in Path(filename).parents:
        return f"epibench: {message}\n"
    return _format_warning(message, category, filename, *place, **more)


def _complain(text: str, status: int) -> int:
    from epibench.cli.console import printable

    print(f"epibench: {printable(text)}", file=sys.stderr)
    return status
