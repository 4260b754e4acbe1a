"""The command line: `epibench score` and what will join it."""

from __future__ import annotations

import sys
from typing import Any

import typer

from epibench import __version__
from epibench.cli.score import score
from epibench.errors import InputError

app = typer.Typer(
    name="epibench",
    help="How far can the uncertainty of a model be trusted, and what does each further sample buy?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
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
    """Options of all commands."""


app.command()(score)


def main() -> None:
    """Run; what the user can mend becomes one line and exit status 2, an interruption 130."""
    try:
        if (status := app(standalone_mode=False)) == INTERRUPTED:
            raise KeyboardInterrupt  # which typer has turned into its status
    except InputError as error:
        sys.exit(_complain(str(error), 2))
    except UsageError as error:
        sys.exit(_complain(f"{error.format_message()} (epibench --help)", 2))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(_complain("interrupted; finished files are kept, the same command starts anew", INTERRUPTED))
    except (OSError, MemoryError) as error:
        sys.exit(_complain(f"{type(error).__name__}: {error}", 1))
    sys.exit(status)


def _complain(text: str, status: int) -> int:
    print(f"epibench: {text}", file=sys.stderr)
    return status
