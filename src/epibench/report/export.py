"""Results into a folder: tables as CSV or LaTeX, figures as SVG, PDF or PNG, and an index of the files.

`export.json` in the folder lists the files with their checksums: a file that is not listed, or was changed since, is
somebody else's and never written over.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Exported:
    """One file: its name, what it shows, and what makes its content."""

    name: str
    about: str
    make: Callable[[], bytes]


def read_subjects(paths: Sequence[Path]) -> list[Run]:
    """Every evaluation of the results, under names that differ."""
    results = [load_results(path) for path in paths]
    folders = [(path if path.is_dir() else path.parent).resolve().name for path in paths]
    runs = read_runs(results, folders)
    return [*runs, *older_runs(runs)]


def export(kind: Kind, subjects: Sequence[Run], folder: Path, only: str | None, reporter: Reporter) -> list[Path]:
    """Write one kind of files into a folder; only: those whose names, without their endings, match a pattern."""
    if kind in ("svg", "pdf", "png"):
        check_matplotlib()
    files, known = list(_files(kind, subjects, only)), _known(folder)
    if not files:
        what = "there is nothing to export" if only is None else f"nothing matches --only {only}"
        raise InputError(f"--{kind} {folder}: {what}")
    for name in (*(file.name for file in files), INDEX):
        _check_ours(folder / name, known.get(name, {}).get("sha256"))
    try:
        with reporter.step(f"export {kind}", len(files)) as advance:
            for file in files:
                _write(folder, file, known)
                advance(1)
        _write(folder, Exported(INDEX, "what each file is", lambda: _index(known).encode()), known)
    finally:
        write_json(folder / LIST, known)
    return [folder / file.name for file in files]


def _files(kind: Kind, subjects: Sequence[Run], only: str | None) -> Iterator[Exported]:
    """The files of a kind, one by one."""

    def wanted(name: str) -> bool:
        return only is None or fnmatch.fnmatch(name, only)

    if kind == "csv":
        for table in filter(wanted, tidy.COLUMNS):
            if rows := list(tidy.rows_of(table, subjects)):
                yield Exported(f"{table}.csv", tidy.ABOUT[table], _constant(tidy.csv_text(table, rows)))
        return
    names: list[str] = []
    if kind == "latex":
        from epibench.report.table_files import tables_of

        for one in tables_of(subjects):
            if wanted(one.name):
                names.append(one.name)
                yield Exported(f"{one.name}.tex", one.about, _constant(one.latex))
    else:
        from epibench.report.figure_files import figures_of

        for figure in figures_of(subjects):
            if wanted(figure.name):
                yield Exported(f"{figure.name}.{kind}", figure.about, partial(figure.content, kind))
    if names:
        from epibench.report.table_files import preview

        yield Exported("preview.tex", "a document that shows all tables", _constant(preview(names)))


def _constant(text: str) -> Callable[[], bytes]:
    return text.encode


def _known(folder: Path) -> dict[str, Any]:
    """The files of earlier exports into a folder: what each shows, and its checksum."""
    known = read_json(folder / LIST)
    if known is None and (folder / LIST).exists():
        raise InputError(f"{folder / LIST}: cannot be read; remove it with the files beside it, or give another folder")
    return known or {}


def _check_ours(path: Path, listed: str | None) -> None:
    """Refuse to write over what is somebody else's."""
    try:
        there = path.read_bytes() if path.exists() else None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give another folder") from None
    if there is not None and _sha256(there) != listed:
        why = "was changed since epibench wrote it" if listed else "is there, and not from epibench export"
        raise InputError(f"{path}: {why}; move it away, or give another folder")


def _write(folder: Path, file: Exported, known: dict[str, Any]) -> None:
    """Write a file and list it."""
    content = file.make()
    try:
        write_bytes(folder / file.name, content)
    except OSError as error:
        raise InputError(f"{folder / file.name}: cannot be written ({error.strerror}); give another folder") from None
    known[file.name] = {"about": file.about, "sha256": _sha256(content)}


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _index(known: dict[str, Any]) -> str:
    """All files of the folder and what they show, as Markdown."""
    rows = [
        f"| [{name}]({name}) | {str(entry['about']).replace('|', chr(92) + '|').replace('<', '&lt;')} |"
        for name, entry in sorted(known.items())
        if name != INDEX
    ]
    return "\n".join(["| file | shows |", "|---|---|", *rows, ""])
