"""Files from results: tables as CSV or LaTeX, figures as SVG, PDF or PNG, and an index.

`export.json` in the folder lists the files with their checksums. A file that is not listed, or was changed since, is
never overwritten.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from epibench.errors import InputError
from epibench.files import read_json, write_bytes, write_json
from epibench.progress import Reporter
from epibench.report import tidy
from epibench.report.charts.matplotlib import check_matplotlib
from epibench.report.runs import Run, older_runs, read_runs
from epibench.results import load_results

Kind = Literal["csv", "latex", "svg", "pdf", "png"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LIST, INDEX = "export.json", "index.md"
File = tuple[str, str, Callable[[], bytes]]  # the name of a file, a line on its content, and a function for the content


def read_subjects(paths: Sequence[Path]) -> list[Run]:
    """Every evaluation of the results, under names that differ."""
    folders = [(path if path.is_dir() else path.parent).resolve().name for path in paths]
    runs = read_runs([load_results(path) for path in paths], folders)
    return [*runs, *older_runs(runs)]


def export(kind: Kind, subjects: Sequence[Run], folder: Path, only: str | None, reporter: Reporter) -> list[Path]:
    """Write one kind of files into a folder. only: a pattern of names without their endings."""
    if kind in ("svg", "pdf", "png"):
        check_matplotlib()
    files = list(_files(kind, subjects, "*" if only is None else only))
    known: dict[str, Any] | None = read_json(folder / LIST)
    if known is None and (folder / LIST).exists():
        raise InputError(f"{folder / LIST}: cannot be read; remove it with the files beside it, or give another folder")
    known = known or {}
    if not files:
        what = "there is nothing to export" if only is None else f"nothing matches --only {only}"
        raise InputError(f"--{kind} {folder}: {what}")
    for path in (folder / name for name in (*(name for name, *_ in files), INDEX)):
        listed = known.get(path.name, {}).get("sha256")
        try:
            there = hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else listed
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror}); give another folder") from None
        if there != listed:
            why = "was changed since epibench wrote it" if listed else "is there, and not from epibench export"
            raise InputError(f"{path}: {why}; move it away, or give another folder")
    try:
        with reporter.step(f"export {kind}", len(files)) as advance:
            for file in files:
                _write(folder, file, known)
                advance(1)
        _write(folder, (INDEX, "what each file is", partial(_index, known)), known)
    finally:
        write_json(folder / LIST, known)
    return [folder / name for name, *_ in files]


def _files(kind: Kind, subjects: Sequence[Run], only: str) -> Iterator[File]:
    """The files of a kind with names that match a pattern."""
    if kind == "csv":
        for table in fnmatch.filter(tidy.COLUMNS, only):
            if rows := list(tidy.rows_of(table, subjects)):
                yield f"{table}.csv", tidy.ABOUT[table], tidy.csv_text(table, rows).encode
    elif kind == "latex":
        from epibench.report.table_files import preview, tables_of

        names = []
        for one in tables_of(subjects):
            if fnmatch.fnmatch(one.name, only):
                names.append(one.name)
                yield f"{one.name}.tex", one.about, one.latex.encode
        if names:
            yield "preview.tex", "a document that shows all tables", preview(names).encode
    else:
        from epibench.report.figure_files import figures_of

        for figure in figures_of(subjects):
            if fnmatch.fnmatch(figure.name, only):
                yield f"{figure.name}.{kind}", figure.about, partial(figure.content, kind)


def _write(folder: Path, file: File, known: dict[str, Any]) -> None:
    name, about, make = file
    content = make()
    try:
        write_bytes(folder / name, content)
    except OSError as error:
        raise InputError(f"{folder / name}: cannot be written ({error.strerror}); give another folder") from None
    known[name] = {"about": about, "sha256": hashlib.sha256(content).hexdigest()}


def _index(known: dict[str, Any]) -> bytes:
    """All files of the folder and their contents, as Markdown."""
    escapes = str.maketrans({"|": "\\|", "<": "&lt;"})
    names = sorted(name for name in known if name != INDEX)
    rows = [f"| [{name}]({name}) | {str(known[name]['about']).translate(escapes)} |" for name in names]
    return "\n".join(["| file | shows |", "|---|---|", *rows, ""]).encode()
