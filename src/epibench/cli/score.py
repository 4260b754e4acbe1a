"""`epibench score`: score stored predictions, compare several files side by side."""

from __future__ import annotations

import gc
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import cast

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from epibench import __version__
from epibench.cli.tables import print_tables
from epibench.errors import InputError
from epibench.evaluation.scoring import Scorer, ScoreSettings, prepare
from epibench.files import write_text
from epibench.members.draws import Plan
from epibench.metrics.conventions import Convention, check_convention
from epibench.report import write_score_page
from epibench.results import FileResults, ScoreResults
from epibench.store.structure import open_store


def run_score(
    files: list[str], plans: list[str] | None, settings: ScoreSettings, json: Path | None, report: Path | None
) -> None:
    """Check everything, score every file, show and write what came out."""
    errors = Console(stderr=True)
    check_outputs(json, report, files)
    scorers = prepare_all(files, plans_for(plans, len(files)), settings)
    if settings.ignore_index is not None and all(scorer.store.kind == "gaussian" for scorer in scorers):
        raise InputError("--ignore-index is for classes; mask the targets of Gaussian predictions with 'valid'")
    scored: list[FileResults] = []
    try:
        for scorer in scorers:
            scored.append(run_with_progress(scorer, errors))
            gc.collect()  # metrics refer to themselves: their memory comes back only so
    finally:
        # What is finished is shown and written even if a later file turns out to be broken.
        if scored:
            publish(document(scored, settings), json, report, errors)


def parse_sizes(text: str | None) -> tuple[int, ...] | None:
    """`1,2,4` as numbers."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--members '{text}': give whole numbers with commas between, as 1,2,4,8") from None


def known_convention(name: str) -> Convention:
    """The convention of that name."""
    try:
        return check_convention(name)
    except ValueError as error:
        raise InputError(str(error)) from None


def plans_for(plans: list[str] | None, num_files: int) -> list[Plan]:
    """One plan per file: the only one given for all, or one each."""
    given = plans or ["random"]
    if len(given) not in (1, num_files):
        raise InputError(f"--plan was given {len(given)} times for {num_files} files: give it once, or once per file")
    return cast(list[Plan], given * num_files if len(given) == 1 else given)


def resolve_device(name: str) -> str:
    """The device to compute on; `auto` takes a GPU if there is one."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        kind = ""
    if kind not in ("cpu", "cuda"):
        raise InputError(f"--device '{name}' is unknown: give auto, cpu or cuda")
    if kind == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device {name}: torch {torch.__version__} sees no CUDA device; give cpu or auto")
    return name


def check_outputs(json: Path | None, report: Path | None, files: list[str]) -> None:
    """Refuse places that cannot be written to before hours are spent on scoring, and those that hold predictions."""
    for place in (path.resolve() for path in (json, report) if path is not None):
        for file in files:
            if place == Path(file).resolve() or Path(file).resolve() in place.parents:
                raise InputError(f"{place}: would be written into the predictions {file}; give another place")
    if json is not None and json.is_dir():
        raise InputError(f"--json {json} is a folder: give the name of a file in it")
    if report is not None and report.exists() and not report.is_dir():
        raise InputError(f"--report {report} is a file: give a folder")
    for folder in {path for path in (json and json.parent, report) if path}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{folder}: cannot make this folder ({error.strerror})") from None
        if not os.access(folder, os.W_OK):
            raise InputError(f"{folder}: this folder cannot be written to")


def prepare_all(files: list[str], plans: list[Plan], settings: ScoreSettings) -> list[Scorer]:
    """Open and check every file before any is scored, so that a typing error costs seconds."""
    scorers = []
    for file, plan in zip(files, plans, strict=True):
        store = open_store(file)
        try:
            scorers.append(prepare(store, replace(settings, plan=plan)))
        except InputError as error:
            raise InputError(f"{file}: {error}") from None
    return scorers


def run_with_progress(scorer: Scorer, console: Console) -> FileResults:
    """Score one file with a bar that counts pixels; without a terminal, with a line before and after."""
    store = scorer.store
    if not console.is_terminal:
        start = time.perf_counter()
        console.print(
            f"scoring {store.path}: {store.num_pixels:,} pixels", soft_wrap=True, highlight=False, markup=False
        )
        result = scorer.run()
        console.print(
            f"scored {store.path} in {time.perf_counter() - start:.1f} s", soft_wrap=True, highlight=False, markup=False
        )
        return result
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[speed]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(escape(store.path.name), total=store.num_pixels, speed="")

        def advance(pixels: int) -> None:
            progress.advance(task, pixels)
            speed = progress.tasks[task].speed
            progress.update(task, speed=f"{speed / 1e6:.2f} Mpixel/s" if speed else "")

        return scorer.run(advance)


def document(files: list[FileResults], settings: ScoreSettings) -> ScoreResults:
    """The JSON of a score."""
    return ScoreResults(
        epibench=__version__,
        torch=torch.__version__,
        convention=settings.convention,
        settings={
            "members": None if settings.sizes is None else list(settings.sizes),
            "draws": settings.max_draws,
            "seed": settings.seed,
            "uncertainty": settings.uncertainty,
            "ignore_index": settings.ignore_index,
            "skip_invalid": settings.skip_invalid,
            "device": settings.device,
        },
        files=files,
    )


def publish(content: ScoreResults, json: Path | None, report: Path | None, errors: Console) -> None:
    """Write what was asked for, show the tables, then say where everything is."""
    page = None
    if json is not None:
        write_text(json, content.model_dump_json(indent=1) + "\n")
    if report is not None:
        page = write_score_page(content, report)
    print_tables(content, Console())
    for word, path in (("results:", json), ("report: ", page)):
        if path is not None:
            errors.print(f"{word} {path}", highlight=False, markup=False, soft_wrap=True)
