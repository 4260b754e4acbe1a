"""`epibench data preview`, `export` and `check`: look at a data set that is made here, write it out, try any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.text import Text

from epibench.cli.console import NO_WIDTH, ConsoleReporter, output, say, show
from epibench.data import class_check
from epibench.data.check import SOURCES, SplitReport, check_root
from epibench.data.class_check import LabelledReport, check_labelled
from epibench.data.labels import ClassTable
from epibench.data.sets.folder import Folder
from epibench.errors import InputError
from epibench.files import replacing
from epibench.street import StreetDataset, make_domain
from epibench.street.export import export, make_sheet, writing_to

NAMES = ("street",)
MAX_SHEET = 100
MAX_PROBLEMS = 3
FOLDER = "folder"
CHECKED = (*NAMES, *SOURCES, *class_check.SOURCES, FOLDER)


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
            make_sheet(ConsoleReporter().counted(frames, "drawing", count)).save(stream, "PNG")
    say(f"{out}: {scenes(count)} of {name} ({domain})")


def run_export(
    name: str, layout: str, out: Path, domain: str, severity: float | None, count: int, size: str, seed: int
) -> None:
    """Write scenes as a folder in an official layout."""
    dataset = make_dataset(name, domain, severity, size, seed, count)
    written = export(dataset, layout, out)
    for _ in ConsoleReporter().counted(written, f"writing {layout}", count):
        pass
    say(f"{out}: {scenes(count)} in the layout of {layout}")


@dataclass(frozen=True)
class FolderOptions:
    """What `data check folder` needs, each with its option."""

    images: Path | None = None
    labels: Path | None = None
    classes: str | None = None
    image_suffix: str | None = None
    label_suffix: str | None = None


def run_check(
    name: str,
    root: Path | None = None,
    raw_root: Path | None = None,
    folder: FolderOptions | None = None,
    every: bool = False,
) -> None:
    """Say what is in a data set: in a folder, or in a scene of each domain of one that is made here."""
    folder = folder or FolderOptions()
    if name not in CHECKED:
        raise InputError(f"data set '{name}' is unknown; there are {', '.join(CHECKED)}")
    if raw_root is not None and name != "kitti":
        raise InputError(f"--raw-root {raw_root}: {name} has no raw images; leave it out")
    if name != FOLDER and folder != FolderOptions():
        raise InputError(f"--images, --labels, --classes and suffixes are for folder; leave them out for {name}")
    if every and name not in (*class_check.SOURCES, FOLDER):
        raise InputError(f"--all is for data sets with label images; leave it out for {name}")
    if name in NAMES:
        if root is not None:
            raise InputError(f"--root {root}: {name} is made here and needs no folder; leave it out")
        check_street(name)
    elif name == FOLDER:
        check_own(root, folder, every)
    elif root is None:
        source = (SOURCES | class_check.SOURCES)[name]
        raise InputError(f"--root is missing; give the folder that {name} was unpacked into ({source})")
    elif name in SOURCES:
        check_depth(name, root, raw_root)
    else:
        check_classes(name, root, every)


def check_depth(name: str, root: Path, raw_root: Path | None) -> None:
    """Say what is in the folder of a data set with depth."""
    reports = check_root(name, root, raw_root)
    for line in check_lines(name, reports):
        show(line)
    if not any(report.samples for report in reports):
        raise InputError(f"{root}: nothing of {name} can be used; see above for what is missing")


def check_classes(name: str, root: Path, every: bool) -> None:
    """Say what is in the folder of a data set with label images."""
    reports = check_labelled(name, root, every, watched)
    for report in reports:
        print_labelled(name, report)
    if any(report.problems for report in reports):
        show(f"Where to get it: {class_check.SOURCES[name]}")
    if not any(report.opened for report in reports):
        raise InputError(f"{root}: nothing of {name} can be used; see above for what is missing")


def check_own(root: Path | None, options: FolderOptions, every: bool) -> None:
    """Say what is in two folders of the user's own."""
    images, labels, classes = options.images, options.labels, options.classes
    if images is None or labels is None or classes is None:
        missing = [name for name in ("images", "labels", "classes") if getattr(options, name) is None]
        raise InputError(
            f"--{' and --'.join(missing)} missing; give --images DIR --labels DIR --classes FILE.csv or a table's name"
        )
    if root is not None:
        images, labels = root / images, root / labels
    dataset = Folder(images, labels, classes, options.image_suffix or "", options.label_suffix or "")
    report = class_check.check_folder(dataset, every, watched)
    print_labelled(FOLDER, report)
    if not report.opened:
        raise InputError(f"{images}: none of the frames that were tried can be used; see above")


def check_street(name: str) -> None:
    """Draw a scene of each domain and say what is in it; there is nothing to download."""
    for domain in ("clean", "wild"):
        frame = make_dataset(name, domain, None, "128x256", 0, 1).frame(0)
        shares = [np.count_nonzero(depth) / depth.size for depth in (frame.sparse_depth, frame.target_depth)]
        classes = len(np.unique(frame.labels[frame.labels < 255]))
        text = f"{classes} classes; sparse depth in {shares[0]:.1%}, target in {shares[1]:.1%} of the pixels"
        show(f"{name} {domain}: {text}")


def check_lines(name: str, reports: Sequence[SplitReport]) -> Iterator[str]:
    """The splits with their samples, what is wrong, and if anything is missing, where to get it."""
    for report in reports:
        yield frames_text(name, report)
        for sample in report.samples:
            yield (
                f"  {sample.frame_id}: {sample.size[0]}×{sample.size[1]}, sparse depth in {sample.sparse_share:.1%}, "
                f"target in {sample.target_share:.1%} of the pixels, {sample.nearest:.2f} to {sample.farthest:.2f} m"
            )
        yield from problem_lines(report.problems)
    if any(report.problems for report in reports):
        yield f"Where to get it: {SOURCES[name]}"


def print_labelled(name: str, report: LabelledReport) -> None:
    """A split: how many frames, what sizes and which classes they have, and what is wrong."""
    show(frames_text(name, report))
    if report.opened and report.classes is not None:
        show(f"  {opened_text(report)}")
        console = output()
        console.print(class_grid(report, report.classes, console.width), end="", soft_wrap=True)
        never = [each for each, pixels in zip(report.classes.names, report.pixels, strict=True) if not pixels]
        if never:
            show(f"  not seen there: {', '.join(never)}")
    for line in problem_lines(report.problems):
        show(line)


def frames_text(name: str, report: SplitReport | LabelledReport) -> str:
    """`camvid val: 99 of 101 frames`."""
    published = "" if report.published in (None, report.frames) else f" of {report.published:,}"
    return f"{name} {report.name}: {report.frames:,}{published} frames"


def problem_lines(problems: Sequence[str]) -> Iterator[str]:
    """The first problems, and how many more there are."""
    yield from (f"  {problem}" for problem in problems[:MAX_PROBLEMS])
    if len(problems) > MAX_PROBLEMS:
        yield f"  … and {len(problems) - MAX_PROBLEMS} more"


def opened_text(report: LabelledReport) -> str:
    """`12 of them opened: 360×480, a class in 97.1% of the pixels`."""
    sizes = ", ".join(f"{height}×{width}" for height, width in report.sizes[:MAX_PROBLEMS])
    more = f" and {len(report.sizes) - MAX_PROBLEMS} more sizes" if len(report.sizes) > MAX_PROBLEMS else ""
    counted = sum(report.pixels)
    share = counted / (counted + report.not_counted)
    number = "all" if report.opened == report.frames else f"{report.opened:,} of them"
    return f"{number} opened: {sizes}{more}, a class in {share:.1%} of the pixels"


def class_grid(report: LabelledReport, classes: ClassTable, width: int) -> Text:
    """The classes that were seen, each with its colour and share of the pixels that have one.

    In as many columns as fit; without a terminal, and so without a width, one to a line.
    """
    total, longest = sum(report.pixels), max(len(name) for name in classes.names)
    seen = [each for each in zip(classes.names, classes.colours, report.pixels, strict=True) if each[2]]
    columns = 1 if width == NO_WIDTH else max(1, (width - 2) // (longest + 12))
    text = Text()
    for index, (name, (red, green, blue), pixels) in enumerate(seen):
        ends = (index + 1) % columns == 0 or index + 1 == len(seen)
        text.append("  " if index % columns == 0 else "   ").append("■", style=f"rgb({red},{green},{blue})")
        text.append(f" {name:<{longest}} {share_text(pixels / total):>6}" + ("\n" if ends else ""))
    return text


def share_text(share: float) -> str:
    """`12.3%`, or `<0.1%`."""
    return "<0.1%" if share < 0.0005 else f"{share:.1%}"


def watched(indices: Sequence[int], name: str) -> Iterator[int]:
    """Frames that are opened, with a bar."""
    return ConsoleReporter().counted(indices, f"opening {name}", len(indices))


def scenes(count: int) -> str:
    """`1 scene`, `2 scenes`."""
    return f"{count} scene{'' if count == 1 else 's'}"


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
