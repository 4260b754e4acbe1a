"""`epibench export`: the numbers and figures of runs and scored files, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from epibench.cli.options import make_folder
from epibench.errors import InputError


def export(
    results: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS...",
            help="Folders of runs, or their URLs, their results.json, or files of epibench score --json.",
        ),
    ],
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="DIR", help="Tidy tables: draws, summary, curves, cost.")
    ] = None,
    latex: Annotated[
        Path | None, typer.Option("--latex", metavar="DIR", help="Booktabs tables, one for each domain.")
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option("--svg", metavar="DIR", help="Every figure of the page as SVG (needs matplotlib)."),
    ] = None,
    pdf: Annotated[
        Path | None,
        typer.Option("--pdf", metavar="DIR", help="Every figure of the page as PDF (needs matplotlib)."),
    ] = None,
    png: Annotated[
        Path | None,
        typer.Option("--png", metavar="DIR", help="Every figure of the page as PNG (needs matplotlib)."),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="Only files whose names match, as '*ause*'; without their endings."),
    ] = None,
) -> None:
    """Write tables and figures into folders; what is there and not from this command is never written over."""
    folders = {"csv": csv, "latex": latex, "svg": svg, "pdf": pdf, "png": png}
    if all(folder is None for folder in folders.values()):
        raise InputError("say what to write and where: --csv DIR, --latex DIR, --svg DIR, --pdf DIR or --png DIR")
    from epibench.cli.steps import local_folder
    from epibench.console import ConsoleReporter
    from epibench.report.export import KINDS, read_subjects
    from epibench.report.export import export as write_files

    subjects = read_subjects([local_folder(each, report=True) for each in results])
    reporter = ConsoleReporter()
    for kind in KINDS:
        if (folder := folders[kind]) is not None:
            make_folder(folder)
            files = write_files(kind, subjects, folder, only, reporter)
            reporter.say(f"{kind}: {len(files)} files in {folder}; index.md says what each is")
