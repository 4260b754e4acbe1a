"""The command line: `epibench run`, `train`, `evaluate`, `score`, `report`, `export` and more, one file each.

What a command needs is imported when it runs: help and complaints come at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from epibench import __version__, mirror, stopping
from epibench.cli import data, evaluate, export, recipes, reference, run, score, train, video
from epibench.cli.options import Command
from epibench.console import printable
from epibench.errors import InputError, lacks_memory
from epibench.files import in_words

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
app.command(cls=Command, short_help="Train the networks of a recipe.")(train.train)
app.command(cls=Command, short_help="Evaluate what is trained.")(evaluate.evaluate)
app.command(cls=Command, short_help="Merge the shards of an evaluation.")(evaluate.merge)
app.command(cls=Command, short_help="List recipes, or write one in full.")(recipes.recipes)
app.command(cls=Command, short_help="Sample the posterior of a toy problem.")(reference.reference)
app.command(cls=Command, short_help="Write tables and figures for a paper.")(export.export)
app.command(cls=Command, short_help="Show what a run predicts for a sequence of images.")(video.video)
app.add_typer(data.commands, name="data")


@app.command(cls=Command, short_help="Make the page of one run or several.")
def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Folders of runs, or their URLs, their results.json, or what score --json wrote."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page. Default: RUN/report.html, or report.html of several.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all tables to this file as Markdown, too.")
    ] = None,
) -> None:
    """Make the page of a run anew, or one page of several runs and scored files; with what was published beside it."""
    from epibench.cli.report import run_report
    from epibench.cli.steps import local_folder

    run_report([local_folder(run, report=True) for run in runs], out, markdown)


def main() -> None:
    """Run; what the user can mend becomes one line and exit status 2, Ctrl-C 130, SIGTERM 143, other failures 1."""
    if sys.stdout is not None:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a plain terminal has no ±
    warnings.formatwarning = _warning
    try:
        with stopping.obeyed():
            status = _run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except stopping.Stopped:
        text = "stopped by SIGTERM; where it stands is saved, the same command goes on from there"
        status = _complain(text, stopping.STATUS)
    except BrokenPipeError:
        # Nobody reads on, as `head` after its lines. Python would try to print the rest when it ends, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = FAILED
    except OSError as error:
        status = _complain(in_words(error), FAILED)
    sys.exit(status)


def _run() -> int:
    """The exit status of a command."""
    try:
        status = _command()
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
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        said = " ".join(str(error).split())
        return _complain(f"not enough memory{f': {said}' if said else ''}", FAILED)
    finally:
        mirror.forget_mirror()
    return int(status)


def _command() -> int:
    """Carry a command out, and push what could not be pushed before, also where it fails; its error comes last."""
    try:
        status = app(standalone_mode=False, prog_name="epibench") or DONE
    except (Exception, stopping.Stopped):
        try:
            mirror.push_unpushed()
        except (OSError, InputError) as error:
            _complain(str(error), FAILED)
        raise
    mirror.close_mirror()
    return int(status)


def _warning(message: Warning | str, category: type[Warning], filename: str, *place: Any, **more: Any) -> str:
    """Our own warnings as one line; those of libraries as Python shows them."""
    if Path(__file__).parents[1] in Path(filename).parents:
        return f"epibench: {message}\n"
    return _format_warning(message, category, filename, *place, **more)


def _complain(text: str, status: int) -> int:
    print(f"epibench: {printable(text)}", file=sys.stderr)
    return status
