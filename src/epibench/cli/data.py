"""Checks of data sets and recipes for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from epibench.console import NO_WIDTH, output, show
from epibench.plans import evenly_spaced

if TYPE_CHECKING:
    from epibench.data.source import LabelledFrames, SplitReport

MAX_NAMED = 3
STYLES = {"ok": "green", "note": "yellow", "problem": "bold red", "waits": "dim"}


def print_check(text: str, found: SplitReport | str | None = None) -> None:
    """A line, in the style of what was found, or what is in a split of a data set."""
    if isinstance(found, str | None):
        show(text, None if found is None else STYLES[found])
    else:
        print_report(text, found)


def print_report(name: str, report: SplitReport) -> None:
    """A split: how many frames, what is in those that were opened, and what is wrong."""
    from epibench.data.source import LabelledFrames

    published = "" if report.published in (None, report.frames) else f" of {report.published:,}"
    frames = "frame" if report.frames == 1 and not published else "frames"
    show(f"{name} {report.name}: {report.frames:,}{published} {frames}")
    if isinstance(report.content, LabelledFrames):
        print_classes(report.content, report.frames)
    elif report.content is not None:
        for index in evenly_spaced(len(report.content), min(len(report.content), MAX_NAMED)):
            frame = report.content[index]
            show(
                f"  {frame.frame_id}: {frame.size[0]}×{frame.size[1]}, sparse depth in {frame.sparse_share:.1%}, "
                f"target in {frame.target_share:.1%} of the pixels, {frame.nearest:.2f} to {frame.farthest:.2f} m"
            )
    for note in report.notes:
        show(f"  {note}")
    for problem in report.problems[:MAX_NAMED]:
        show(f"  {problem}")
    if len(report.problems) > MAX_NAMED:
        show(f"  … and {len(report.problems) - MAX_NAMED} more")


def print_classes(content: LabelledFrames, frames: int) -> None:
    """`12 of them opened: 360×480, a class in 97.1% of the pixels`; which classes, and which were not seen."""
    sizes = ", ".join(f"{height}×{width}" for height, width in content.sizes[:MAX_NAMED])
    more = f" and {len(content.sizes) - MAX_NAMED} more sizes" if len(content.sizes) > MAX_NAMED else ""
    counted = sum(content.pixels)
    share = counted / (counted + content.not_counted)
    number = "all" if content.opened == frames else f"{content.opened:,} of them"
    show(f"  {number} opened: {sizes}{more}, a class in {share:.1%} of the pixels")
    console = output()
    width = console.width if console.width < NO_WIDTH else 0  # without a terminal, a line for each class
    console.print(class_grid(content, width), end="", soft_wrap=True)
    never = [each for each, pixels in zip(content.classes.names, content.pixels, strict=True) if not pixels]
    if never:
        show(f"  not seen there: {', '.join(never)}")


def class_grid(content: LabelledFrames, width: int) -> Text:
    """The classes that were seen, each with its colour and share of the pixels that have one, in columns."""
    classes = content.classes
    total, longest = sum(content.pixels), max(len(name) for name in classes.names)
    seen = [each for each in zip(classes.names, classes.colours, content.pixels, strict=True) if each[2]]
    columns = max(1, (width - 2) // (longest + 12))
    text = Text()
    for number, (name, (red, green, blue), pixels) in enumerate(seen, 1):
        share = "<0.1%" if pixels / total < 0.0005 else f"{pixels / total:.1%}"
        text.append("  " if number % columns == 1 % columns else "   ").append("■", style=f"rgb({red},{green},{blue})")
        text.append(f" {name:<{longest}} {share:>6}" + ("\n" if number % columns == 0 or number == len(seen) else ""))
    return text
