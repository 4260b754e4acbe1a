"""`epibench data preview`, `export` and `check`: look at a data set that is made here, write it out, try any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from epibench.data.check import SOURCES, SplitReport, check_root
from epibench.data.street import StreetDataset, make_domain
from epibench.data.street.export import export
from epibench.data.street.files import replacing, writing_to
from epibench.data.street.preview import make_sheet
from epibench.errors import InputError

T = TypeVar("T")
NAMES = ("street",)
MAX_SHEET = 100
MAX_PROBLEMS = 3


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


def run_check(name: str, root: Path | None = None, raw_root: Path | None = None) -> None:
    """Say what is in a data set: in a folder, or in a scene of each domain of one that is made here."""
    if name not in (*NAMES, *SOURCES):
        raise InputError(f"data set '{name}' is unknown; there are {', '.join((*NAMES, *SOURCES))}")
    if raw_root is not None and name != "kitti":
        raise InputError(f"--raw-root {raw_root}: {name} has no raw images; leave it out")
    if name in NAMES:
        if root is not None:
            raise InputError(f"--root {root}: {name} is made here and needs no folder; leave it out")
        check_street(name)
        return
    if root is None:
        raise InputError(f"--root is missing; give the folder that {name} was unpacked into ({SOURCES[name]})")
    reports = check_root(name, root, raw_root)
    for line in check_lines(name, reports):
        Console().print(line, highlight=False, markup=False, soft_wrap=True)
    if not any(report.samples for report in reports):
        raise InputError(f"{root}: nothing of {name} can be used; see above for what is missing")


def check_street(name: str) -> None:
    """Draw a scene of each domain and say what is in it; there is nothing to download."""
    console = Console()
    for domain in ("clean", "wild"):
        frame = make_dataset(name, domain, None, "128x256", 0, 1).frame(0)
        shares = [np.count_nonzero(depth) / depth.size for depth in (frame.sparse_depth, frame.target_depth)]
        classes = len(np.unique(frame.labels[frame.labels < 255]))
        text = f"{classes} classes; sparse depth in {shares[0]:.1%}, target in {shares[1]:.1%} of the pixels"
        console.print(f"{name} {domain}: {text}", highlight=False)


def check_lines(name: str, reports: Sequence[SplitReport]) -> Iterator[str]:
    """The splits with their samples, what is wrong, and if anything is missing, where to get it."""
    for report in reports:
        published = "" if report.published in (None, report.frames) else f" of {report.published:,}"
        yield f"{name} {report.name}: {report.frames:,}{published} frames"
        for sample in report.samples:
            yield (
                f"  {sample.frame_id}: {sample.size[0]}×{sample.size[1]}, sparse depth in {sample.sparse_share:.1%}, "
                f"target in {sample.target_share:.1%} of the pixels, {sample.nearest:.2f} to {sample.farthest:.2f} m"
            )
        yield from (f"  {problem}" for problem in report.problems[:MAX_PROBLEMS])
        if len(report.problems) > MAX_PROBLEMS:
            yield f"  … and {len(report.problems) - MAX_PROBLEMS} more"
    if any(report.problems for report in reports):
        yield f"Where to get it: {SOURCES[name]}"


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
