"""`epibench data`: look at scenes that are drawn here, write them out, and check any data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from epibench.cli.options import Command, Settings, at_least
from epibench.console import NO_WIDTH, ConsoleReporter, output, say, show
from epibench.errors import InputError
from epibench.files import replacing
from epibench.plans import evenly_spaced

if TYPE_CHECKING:
    from epibench.data.source import LabelledFrames, Source, SplitReport
    from epibench.street import StreetDataset

commands = typer.Typer(help="Data sets: look at them, write them out, check them.", rich_markup_mode=None)
MAX_SHEET = 100
MAX_NAMED = 3

Name = Annotated[str, typer.Argument(metavar="NAME", help="The data set: street.")]
Domain = Annotated[
    str,
    typer.Option(
        metavar="DOMAIN", help="clean, wild, or factors of the shift, as haze or night+noise (see docs/street.md)."
    ),
]
Severity = Annotated[float | None, typer.Option(metavar="LEVEL", help="From 0 (clean) to 5. Default: 5; clean has 0.")]
Size = Annotated[str, typer.Option(metavar="HxW", help="Height and width, as 256x512.")]
Seed = Annotated[int, typer.Option(metavar="N", callback=at_least(0), help="Seed of the scenes.")]
Count = Annotated[int, typer.Option(metavar="N", callback=at_least(1), help="Number of scenes.")]


@commands.command("preview", cls=Command, short_help="Draw a sheet of scenes.")
def run_preview(
    name: Name,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture (.png).")],
    domain: Domain = "clean",
    severity: Severity = None,
    size: Size = "256x512",
    seed: Seed = 0,
    count: Count = 6,
) -> None:
    """Draw a sheet of scenes: image, classes, depth, sparse depth, target."""
    from epibench.street.export import make_sheet, writing_to

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
    say(f"{out}: {_scenes(count)} of {name} ({domain})")


@commands.command("export", cls=Command, short_help="Write scenes as a data set's folder.")
def run_export(
    name: Name,
    layout: Annotated[str, typer.Option(metavar="LAYOUT", help="cityscapes, kitti, synscapes or virtual_kitti.")],
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="A new or empty folder, or one to go on with.")],
    domain: Domain = "clean",
    severity: Severity = None,
    count: Count = 100,
    size: Size = "256x512",
    seed: Seed = 0,
) -> None:
    """Write scenes as a folder in the official layout of a data set for classes or for depth completion."""
    from epibench.street.export import export

    dataset = make_dataset(name, domain, severity, size, seed, count)
    written = export(dataset, layout, out)
    for _ in ConsoleReporter().counted(written, f"writing {layout}", count):
        pass
    say(f"{out}: {_scenes(count)} in the layout of {layout}")


@commands.command(cls=Command, short_help="Say whether a data set can be used, or a recipe be run.")
def check(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="The data set, as kitti, cityscapes, or folder for your own; or a recipe (see epibench recipes), a "
            "recipe file (.json) or the folder of a run. An unknown name lists all data sets.",
        ),
    ],
    root: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="The folder that it was unpacked into (see docs/data.md).")
    ] = None,
    raw_root: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="kitti: where the images of KITTI raw are. Default: ROOT, or ROOT/raw."),
    ] = None,
    images: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder: where the images are.")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="FOLDER", help="folder: where the label images are.")] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="TABLE", help="folder: a class table (.csv), or one that is built in.")
    ] = None,
    image_suffix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="folder: what names of images end in.")
    ] = None,
    label_suffix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="folder: what names of labels end in, as _L.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Open all images with their labels, not only some.")] = False,
    settings: Settings = None,
    out: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="A recipe: the folder of the run, or its URL. Default: runs/RECIPE."),
    ] = None,
) -> None:
    """Say whether a data set can be used, what is in it, and where to get what is missing.

    Of a recipe: whether everything that it needs is there, before hours are spent on it.
    """
    from epibench.data.sets import DATA_SETS

    options = {"root": root, "raw_root": raw_root, "images": images, "labels": labels, "classes": classes}
    options |= {"image_suffix": image_suffix, "label_suffix": label_suffix}
    if name not in DATA_SETS and is_recipe(name):
        for option, value in options.items():
            if value is not None:
                remedy = "--set data.root=FOLDER" if option == "root" else "--set, as for epibench run"
                raise InputError(f"{_flag(option)} {value}: {name} is a recipe; give {remedy}")
        from epibench.cli.recipe_check import run_recipe_check

        run_recipe_check(name, settings or [], out, every)
        return
    for flag, given in (("--set", settings), ("--out", out)):
        if given:
            raise InputError(f"{flag}: belongs to a recipe, and {name} is none; leave it out")
    run_check(name, options, every)


def is_recipe(name: str) -> bool:
    """Whether a recipe is called so, or may be in a file or the folder of a run of that name."""
    from epibench.recipes import RECIPE_NAME, RECIPES

    return name in RECIPES or name.endswith(".json") or (Path(name) / RECIPE_NAME).is_file()


def run_check(name: str, options: Mapping[str, Path | str | None], every: bool = False) -> None:
    """Say what is in a data set; options: those of its source, None where they are not given."""
    from epibench.data.sets import DATA_SETS
    from epibench.data.source import check_split

    known = {each: source for each, source in DATA_SETS.items() if source.checked}
    if name not in known:
        raise InputError(
            f"data set '{name}' is unknown; there are {', '.join(known)}; nor is it a recipe (see epibench recipes)"
        )
    source = known[name]
    given = {option: str(value) for option, value in options.items() if value is not None}
    check_options(name, source, given)
    reporter = ConsoleReporter()
    reports = []
    for split in source.splits(**given):
        reports.append(
            check_split(split, every, lambda frames, part: reporter.counted(frames, f"opening {part}", len(frames)))
        )
        print_report(name, reports[-1])
    if source.where is not None and any(report.problems for report in reports):
        show(f"Where to get it: {source.where}")
    if not any(report.content for report in reports):
        folder = given.get("root", given.get("images", name))
        raise InputError(f"{folder}: nothing of {name} can be used; see above for what is missing")


def check_options(name: str, source: type[Source], given: Mapping[str, str]) -> None:
    """Refuse options that a data set does not have, and name those that are missing."""
    from pydantic import ValidationError

    for option, value in given.items():
        if option not in source.model_fields:
            raise InputError(f"{_flag(option)} {value}: {name} has no such option; leave it out")
    root = given.get("root")
    if source.where is not None and root is None:
        raise InputError(f"--root is missing; give the folder that {name} was unpacked into ({source.where})")
    if root is not None and not Path(root).is_dir():
        hint = "" if source.where is None else f"; give the one that {name} was unpacked into ({source.where})"
        raise InputError(f"{root}: folder is missing{hint}")
    try:
        source.model_validate(given)
    except ValidationError as error:
        option = _flag(str(error.errors()[0]["loc"][0]))
        raise InputError(f"{option} is missing; {name} needs it (see epibench data check --help)") from None


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


def _flag(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _scenes(count: int) -> str:
    return f"{count} scene{'' if count == 1 else 's'}"


def make_dataset(name: str, domain: str, severity: float | None, size: str, seed: int, count: int) -> StreetDataset:
    """The data set of that name."""
    from epibench.street import StreetDataset, make_domain

    if name != "street":
        raise InputError(f"data set '{name}' is not made here; there are street")
    return StreetDataset("depth", make_domain(domain, severity), length=count, seed=seed, size=parse_size(size))


def parse_size(text: str) -> tuple[int, int]:
    """`256x512` as height and width."""
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise InputError(f"--size '{text}': give height and width, as 256x512")
    return int(parts[0]), int(parts[1])
