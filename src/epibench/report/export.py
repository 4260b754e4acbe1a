"""Results into a folder: tables as CSV or LaTeX, figures as SVG or PDF, and an index that says what each file is.

`export.json` in the folder lists the files with their checksums: a file that is not listed, or was changed since, is
somebody else's and never written over.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from epibench.errors import InputError
from epibench.files import read_json, write_bytes, write_json
from epibench.progress import Reporter
from epibench.report import tidy
from epibench.report.runs import Run, read_runs
from epibench.results import RESULTS_NAME, RunResults, ScoreResults, load_any_results
from epibench.runs.evaluations import FOLDER, all_results, label_of

Kind = Literal["csv", "latex", "svg", "pdf"]
KINDS: tuple[Kind, ...] = get_args(Kind)
LIST, INDEX = "export.json", "index.md"


@dataclass(frozen=True)
class Exported:
    """One file: its name, what it shows, and what makes its content."""

    name: str
    about: str
    make: Callable[[], bytes]


@dataclass(frozen=True)
class Subjects:
    """What is exported: runs, which are shown together, and the results of scoring."""

    runs: Sequence[Run]
    scores: Sequence[ScoreResults]

    @property
    def parts(self) -> list[Sequence[Run] | ScoreResults]:
        """What has tables and figures of its own."""
        return [*([self.runs] if self.runs else []), *self.scores]


def read_subjects(paths: Sequence[Path]) -> Subjects:
    """Everything that is to be exported, runs with names that differ."""
    read = [(path, load_any_results(path)) for path in paths]
    runs = [(path, results) for path, results in read if isinstance(results, RunResults)]
    folders = [(path if path.is_dir() else path.parent).resolve().name for path, _ in runs]
    named = read_runs([results for _, results in runs], folders) if runs else []
    named = [_with_evaluation(run, path) for run, (path, _) in zip(named, runs, strict=True)]
    return Subjects(named, [results for _, results in read if isinstance(results, ScoreResults)])


def _with_evaluation(run: Run, path: Path) -> Run:
    """The run, named with its evaluation where its folder has several: as `street-depth (bf16-mixed)`."""
    beside = path.parent.parent if path.parent.name == FOLDER else path.parent
    folder = path if path.is_dir() else beside
    if not (folder / FOLDER).is_dir() or not (folder / RESULTS_NAME).is_file():
        return run
    evaluations, names = all_results(folder)
    if not names:
        return run
    evaluation = label_of(run.results, evaluations[0])
    return replace(run, name=f"{run.name} ({evaluation})", short=f"{run.short} ({evaluation})", evaluation=evaluation)


def export(kind: Kind, subjects: Subjects, folder: Path, only: str | None, reporter: Reporter) -> list[Path]:
    """Write one kind of files into a folder; only: those whose names, without their endings, match a pattern."""
    if kind == "pdf":
        from epibench.report.pdf import check_pdf

        check_pdf()
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


def _files(kind: Kind, subjects: Subjects, only: str | None) -> Iterator[Exported]:
    """The files of a kind, one by one."""

    def wanted(name: str) -> bool:
        return only is None or fnmatch.fnmatch(name, only)

    if kind == "csv":
        for table in filter(wanted, tidy.COLUMNS):
            sources: list[tuple[RunResults | ScoreResults, str | None]] = [
                *((run.results, run.name) for run in subjects.runs),
                *((results, None) for results in subjects.scores),
            ]
            rows = [row for results, name in sources for row in tidy.rows_of(table, results, name)]
            if rows:
                yield Exported(f"{table}.csv", tidy.ABOUT[table], _constant(tidy.csv_text(table, rows)))
        return
    several = len(subjects.parts) > 1
    names: list[str] = []
    for number, part in enumerate(subjects.parts, start=1):
        prefix = f"scores-{number}-" if several and isinstance(part, ScoreResults) else ""
        if kind == "latex":
            from epibench.report.table_files import tables_of

            for one in tables_of(part):
                if wanted(name := prefix + one.name):
                    names.append(name)
                    yield Exported(f"{name}.tex", one.about, _constant(one.latex))
            continue
        from epibench.report.figure_files import figures_of
        from epibench.report.pdf import pdf_bytes

        for figure in figures_of(part):
            if wanted(name := prefix + figure.name):
                make = partial(pdf_bytes, figure.drawing) if kind == "pdf" else _constant(f"{figure.drawing.svg}\n")
                yield Exported(f"{name}.{kind}", figure.about, make)
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
