"""The command line: a command for each public function, and one exit status for each end.

A command imports its needs when it runs: help and complaints come at once.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import typer

from epibench import __version__, api, mirror, preparing, reading, stopping
from epibench.cli.adapter import add_command
from epibench.cli.data import print_check
from epibench.cli.recipes import print_recipes
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
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Show the version."),
) -> None:
    """How far can the uncertainty of a model be trusted, and what does each further sample add?"""


def _show_runs(*results: Any) -> None:
    from epibench.cli.report import print_run_tables

    print_run_tables(*results)


def _show_scores(results: Any) -> None:
    from epibench.cli.tables import print_tables

    print_tables(results)


def _show_reference(found: Any) -> None:
    from epibench.cli.reference import print_diagnostics

    print_diagnostics(found)


add_command(app, api.score, _show_scores)
add_command(app, api.run, _show_runs)
add_command(app, api.train)
add_command(
    app,
    api.evaluate,
    _show_runs,
    positional="run",
    names={"models": "model", "data": "on", "views": "tta"},
    without=("classes", "ignore_index", "unit", "depth"),  # data sets that have a name have these
    out=api.EVALUATED,
)
add_command(app, api.merge, _show_runs, names={"data": "on"})
add_command(app, preparing.recipes, print_recipes)
add_command(app, preparing.reference, _show_reference)
add_command(app, reading.export)
add_command(app, reading.video, names={"methods": "method", "largest": "max"})
add_command(app, reading.report, _show_runs)
data_sets = typer.Typer(help="Data sets: preview, export, check.", rich_markup_mode=None)
add_command(data_sets, preparing.preview)
add_command(data_sets, preparing.export_scenes, name="export")
add_command(data_sets, preparing.check, print_check, names={"every": "all"})
app.add_typer(data_sets, name="data")


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
        # The reader is gone, e.g. `head`. Python would print the rest at its end, and complain.
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
    """Show our own warnings as one line, warnings of libraries as Python does."""
    if Path(__file__).parents[1] in Path(filename).parents:
        return f"epibench: {message}\n"
    return _format_warning(message, category, filename, *place, **more)


def _complain(text: str, status: int) -> int:
    print(f"epibench: {printable(text)}", file=sys.stderr)
    return status
