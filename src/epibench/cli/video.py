"""`epibench video`: what the members of a run predict for a sequence of images, as frames and one animated file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from epibench.cli.options import Device, Settings, at_least, make_folder, resolve_device
from epibench.cli.steps import local_folder
from epibench.console import ConsoleReporter
from epibench.errors import InputError

if TYPE_CHECKING:
    from epibench.recipes import DenseRecipe
    from epibench.results import Results


def video(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The folder of a finished run on images, or its URL.")],
    on: Annotated[str, typer.Option(metavar="DOMAIN", help="The domain whose images are shown, in their order.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where frames are written. Default: RUN/video/DOMAIN.")
    ] = None,
    frames: Annotated[
        str | None, typer.Option(metavar="N", help="The first N images, or FIRST:LAST of them, from 0. Default: all.")
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A method; may be given several times. Default: all of the run."),
    ] = None,
    members: Annotated[
        int | None, typer.Option(metavar="M", callback=at_least(1), help="Members. Default: the largest M of the run.")
    ] = None,
    fps: Annotated[int, typer.Option(metavar="N", callback=at_least(1, 60), help="Frames per second.")] = 5,
    largest: Annotated[
        float | None,
        typer.Option("--max", metavar="X", help="Where colours of error and uncertainty end. Default: by the data."),
    ] = None,
    settings: Settings = None,
    device: Device = "auto",
) -> None:
    """Show image, prediction, error and uncertainty side by side, frame by frame; frames that are there are kept."""
    if largest is not None and not 0 < largest < float("inf"):
        raise InputError(f"--max {largest:g}: give a number greater than 0")
    span = parse_frames(frames)
    from epibench.report.video import write_animation, write_frames
    from epibench.results import RESULTS_NAME, load_results
    from epibench.runs.folder import RunFolder
    from epibench.runs.frames import FrameSequence
    from epibench.runs.image_experiment import ImageExperiment
    from epibench.runs.machine import Machine, Run

    path = local_folder(run)
    folder = RunFolder(path.parent if path.name == RESULTS_NAME else path)
    results = load_results(folder.results_file)
    recipe = read_dense_recipe(folder.path, settings or [], members)
    names = chosen_methods(method or [], results)
    if on not in recipe.data.domains:
        raise InputError(f"--on {on}: the run has no such domain; there are {', '.join(recipe.data.domains)}")
    import torch

    reporter = ConsoleReporter()
    machine = Machine.of(torch.device(resolve_device(device)), None)
    sequence = FrameSequence(ImageExperiment(Run(recipe, folder, machine, reporter)), names, on)
    images = chosen_images(span, len(sequence.data.samples), on)
    target = out if out is not None else folder.path / "video" / on
    make_folder(target)
    files = write_frames(sequence, images, target, largest, reporter)
    animated = target / "video.webp"
    with reporter.step("write the animated file", 1):
        write_animation(files, animated, fps)
    reporter.say(f"frames:   {files[0]} to {files[-1].name}, {len(files)} of them")
    reporter.say(f"animated: {animated}")


def parse_frames(text: str | None) -> tuple[int, int | None]:
    """`8` as the first 8, `4:20` as 4 to 20: the first, and the one behind the last."""
    match = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,9})", text or "")
    if text is not None and match is None:
        raise InputError(f"--frames {text}: give a number of images, as 50, or the first and the last, as 20:69")
    if match is None:
        return 0, None
    first, end = int(match[1] or 0), int(match[2]) + (match[1] is not None)
    if first >= end:
        raise InputError(f"--frames {text}: no image is between; give the first and the last, as 20:69")
    return first, end


def read_dense_recipe(path: Path, settings: Sequence[str], members: int | None) -> DenseRecipe:
    """The recipe of the run, with other settings if they are given."""
    from epibench.recipes import DenseRecipe, apply_settings, read_recipe

    recipe = read_recipe(path)
    if not isinstance(recipe, DenseRecipe):
        raise InputError(f"{path}: is a run of {recipe.problem}, which has no images to show")
    return apply_settings(recipe, [*settings, *([] if members is None else [f"members=[{members}]"])])


def chosen_methods(given: Sequence[str], results: Results) -> list[str]:
    """The methods that are asked for, or all that the run has evaluated."""
    for name in given:
        if name not in results.methods:
            raise InputError(f"--method {name}: the run has no such method; there are {', '.join(results.methods)}")
    if not results.methods:
        raise InputError("the run has evaluated no method: there is nothing to show")
    return list(dict.fromkeys(given)) or list(results.methods)


def chosen_images(span: tuple[int, int | None], number: int, domain: str) -> range:
    """The images that are asked for."""
    first, end = span
    if max(first + 1, end or 0) > number:
        raise InputError(f"--frames: '{domain}' has images 0 to {number - 1}; give fewer")
    return range(first, number if end is None else end)
