"""`epibench data preview` and `export`: look at scenes that are drawn here, and write them out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from epibench.errors import InputError
from epibench.street import StreetDataset, make_domain
from epibench.street.export import export
from epibench.street.files import replacing, writing_to
from epibench.street.preview import make_sheet

T = TypeVar("T")
NAMES = ("street",)
MAX_SHEET = 100


def run_preview(name: str, out: Path, domain: str, severity: float | None, size: str, seed: int, count: int) -> None:
    """Draw a sheet of scenes with classes and depth."""
    if count > MAX_SHEET:
        raise InputError(f"--count {count}: a sheet has at most {MAX_SHEET} scenes; `epibench data export` writes more")
    dataset = make_dataset(name, domain, severity, size, seed, count)
    frames = (dataset.frame(index) for index in range(count))
    with writing_to(f"--out {out}"):
        if out.suffix.lower() != ".png" or out.is_dir():
            raise InputError(f"--out {out}: give the name of a .png file")
        # Opened before the scenes are drawn, so that nobody waits for a sheet that cannot be kept.
        with replacing(out) as stream:
            make_sheet(with_progress(frames, "drawing", count)).save(stream, "PNG")
    say(f"{out}: {scenes(count)} of {name} ({domain})")


def run_export(
    name: str, layout: str, out: Path, domain: str, severity: float | None, count: int, size: str, seed: int
) -> None:
    """Write scenes as a folder in an official layout."""
    dataset = make_dataset(name, domain, severity, size, seed, count)
    written = export(dataset, layout, out)
    for _ in with_progress(written, f"writing {layout}", count):
        pass
    say(f"{out}: {scenes(count)} in the layout of {layout}")


def scenes(count: int) -> str:
    """`1 scene`, `2 scenes`."""
    return f"{count} scene{'' if count == 1 else 's'}"


def say(text: str) -> None:
    """A line for the user, apart from the output."""
    Console(stderr=True).print(text, highlight=False, markup=False)


def make_dataset(name: str, domain: str, severity: float | None, size: str, seed: int, count: int) -> StreetDataset:
    """The data set of that name."""
    if name not in NAMES:
        raise InputError(f"data set '{name}' is not made here; there are {', '.join(NAMES)}")
    return StreetDataset("depth", make_domain(domain, severity), length=count, seed=seed, size=parse_size(size))


def parse_size(text: str) -> tuple[int, int]:
    """`256x512` as height and width."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--size '{text}': give height and width, as 256x512")
    return int(parts[0]), int(parts[1])


def with_progress(items: Iterable[T], text: str, total: int) -> Iterator[T]:
    """The same items, counted by a bar."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        yield from progress.track(items, total=total, description=text)
