"""The public functions that read results: pages, exports and videos."""

from __future__ import annotations

import re
from pathlib import Path

from epibench import arguments as arg
from epibench.console import reporter_of
from epibench.devices import resolve_device
from epibench.errors import ArgumentError, InputError
from epibench.files import make_folder, write_text
from epibench.progress import show


@arg.checked
def report(
    results: arg.AnyResults,
    out: arg.File | None = None,
    markdown: arg.File | None = None,
    *,
    progress: arg.Progress = False,
) -> Path:
    """Write the page of one or several runs and scored files.

    Where the paper has numbers of the same experiment, they stand beside the results.

    Args:
        results: Folders or URLs of runs, their results.json, or files of `epibench score --json`. In Python no URLs.
        out: The page. Default: report.html, of one result in its folder, of several in the current folder.
        markdown: Also write all tables to this file, as Markdown.
        progress: True shows messages; a reporter receives them.

    Returns:
        The page.

    Raises:
        InputError: results cannot be read, or the page cannot be written.
    """
    from epibench.report import write_run_page
    from epibench.report.runs import read_runs
    from epibench.report.table_files import render_markdown
    from epibench.results import RESULTS_NAME, load_results

    runs = [Path(path) for path in results]
    loaded = [load_results(path) for path in runs]
    folders = [(path if path.is_dir() else path.parent).resolve() for path in runs]
    # A run is called by its folder, or by its file where that has a name of its own.
    names = [
        path.stem if path.is_file() and path.name != RESULTS_NAME else folder.name
        for path, folder in zip(runs, folders, strict=True)
    ]
    page = Path(out) if out is not None else folders[0] / "report.html" if len(runs) == 1 else Path("report.html")
    written = [page, *([] if markdown is None else [Path(markdown)])]
    for path in written:
        if path.is_dir():
            raise InputError(f"{path} is a folder: give the name of a file in it")
        given = path.resolve() in [run.resolve() for run in runs]
        if given or (path.resolve().parent in folders and path.name in (RESULTS_NAME, "recipe.json")):
            raise InputError(f"{path}: would be written over a file of the run; give another place")
    try:
        write_run_page(loaded, page, names)
        if markdown is not None:
            write_text(Path(markdown), render_markdown(read_runs(loaded, names)))
    except OSError as error:
        raise InputError(
            f"{error.filename or page}: cannot be written ({error.strerror}); give another place"
        ) from None
    reporter = reporter_of(progress)
    show(reporter, loaded, names)
    for word, path in zip(("report: ", "markdown:"), written, strict=False):
        reporter.say(f"{word} {path}")
    return page


@arg.checked
def export(
    results: arg.AnyResults,
    *,
    csv: arg.Folder | None = None,
    latex: arg.Folder | None = None,
    svg: arg.Folder | None = None,
    pdf: arg.Folder | None = None,
    png: arg.Folder | None = None,
    only: arg.Text | None = None,
    progress: arg.Progress = False,
) -> list[Path]:
    """Write tables and figures for a paper.

    Only files of this command are overwritten.

    Args:
        results: Folders or URLs of runs, their results.json, or files of `epibench score --json`. In Python no URLs.
        csv: Tidy tables: draws, summary, curves, cost.
        latex: Booktabs tables, one for each domain.
        svg: Every figure of the page as SVG (needs matplotlib).
        pdf: Every figure of the page as PDF (needs matplotlib).
        png: Every figure of the page as PNG (needs matplotlib).
        only: Write only files whose names, without endings, match this pattern, e.g. '*ause*'.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        The files, without their indexes.

    Raises:
        InputError: results cannot be read, nothing matches, or a file belongs to somebody else.
    """
    folders = {"csv": csv, "latex": latex, "svg": svg, "pdf": pdf, "png": png}
    if all(folder is None for folder in folders.values()):
        options = ", ".join(f"--{kind} FOLDER" for kind in folders)
        raise ArgumentError(
            "nothing to write. Fix: give a folder for csv, latex, svg, pdf or png.",
            f"nothing to write. Fix: give at least one of {options}.",
        )
    from epibench.report.export import KINDS, read_subjects
    from epibench.report.export import export as write_files

    subjects, reporter, written = read_subjects([Path(path) for path in results]), reporter_of(progress), list[Path]()
    for kind in KINDS:
        if (folder := folders[kind]) is not None:
            make_folder(folder)
            files = write_files(kind, subjects, Path(folder), only, reporter)
            reporter.say(f"{kind}: {len(files)} files in {folder}; index.md lists them")
            written += files
    return written


@arg.checked
def video(
    run: arg.FinishedRun,
    on: arg.Text,
    *,
    out: arg.Folder | None = None,
    frames: arg.Span | None = None,
    methods: arg.Texts = (),
    members: arg.Positive | None = None,
    fps: arg.FramesPerSecond = 5,
    largest: arg.PositiveNumber | None = None,
    settings: arg.Settings = (),
    device: arg.Device = "auto",
    progress: arg.Progress = False,
) -> list[Path]:
    """Draw predictions of a run for a sequence of images.

    It writes frames and an animated file. Image, prediction, error and uncertainty stand side by side. Frames that
    exist of the same predictions are kept.

    Args:
        run: The folder of a finished run on images, or its URL. In Python a local folder.
        on: The domain whose images are shown, in their order.
        out: The folder for frames. Default: RUN/video/DOMAIN.
        frames: The first N images, or FIRST:LAST of them, from 0. Default: all.
        methods: Show only this method. Default: all of the run.
        members: Number of members M. Default: the largest of the run.
        fps: Frames per second.
        largest: Error and uncertainty at the end of the colour scale. Default: by the data.
        settings: A setting of the recipe, as `epibench recipes RUN` shows it. In Python also a dict.
        device: cpu, cuda, or auto: a GPU if there is one.
        progress: True shows bars and messages; a reporter receives them.

    Returns:
        The frames, and the animated file.

    Raises:
        InputError: an argument is wrong, or the run is not finished.
    """
    match = re.fullmatch(r"(?:(\d{1,9}):)?(\d{1,9})", frames or "")
    if frames is not None and match is None:
        raise ArgumentError(f"frames {frames}: give a number of images, as 50, or the first and the last, as 20:69")
    first, end = (0, None) if match is None else (int(match[1] or 0), int(match[2]) + (match[1] is not None))
    if end is not None and first >= end:
        raise ArgumentError(f"frames {frames}: no image is between; give the first and the last, as 20:69")
    from epibench.recipes import DenseRecipe, apply_settings, read_recipe
    from epibench.report.video import write_animation, write_frames
    from epibench.results import RESULTS_NAME, load_results
    from epibench.runs.folder import RunFolder
    from epibench.runs.frames import FrameSequence
    from epibench.runs.image_experiment import ImageExperiment
    from epibench.runs.machine import Machine, Run

    path = Path(run)
    folder = RunFolder(path.parent if path.name == RESULTS_NAME else path)
    evaluated = list(load_results(folder.results_file).methods)
    recipe = read_recipe(folder.path)
    if not isinstance(recipe, DenseRecipe):
        raise InputError(f"{folder.path}: is a run of {recipe.problem}, which has no images to show")
    recipe = apply_settings(recipe, [*settings, *([] if members is None else [f"members=[{members}]"])])
    for name in methods:
        if name not in evaluated:
            raise ArgumentError(f"methods {name}: the run has no such method; there are {', '.join(evaluated)}")
    if not evaluated:
        raise InputError("the run has evaluated no method: there is nothing to show")
    if on not in recipe.data.domains:
        raise ArgumentError(f"on {on}: the run has no such domain; there are {', '.join(recipe.data.domains)}")
    import torch

    reporter, machine = reporter_of(progress), Machine.of(torch.device(resolve_device(device)), None)
    experiment = ImageExperiment(Run(recipe, folder, machine, reporter))
    sequence = FrameSequence(experiment, list(dict.fromkeys(methods)) or evaluated, on)
    if max(first + 1, end or 0) > (number := len(sequence.data.samples)):
        raise ArgumentError(f"frames: '{on}' has images 0 to {number - 1}; give fewer")
    target = Path(out) if out is not None else folder.path / "video" / on
    make_folder(target)
    files = write_frames(sequence, range(first, number if end is None else end), target, largest, reporter)
    animated = target / "video.webp"
    with reporter.step("write the animated file", 1):
        write_animation(files, animated, fps)
    reporter.say(f"frames:   {files[0]} to {files[-1].name}, {len(files)} of them")
    reporter.say(f"animated: {animated}")
    return [*files, animated]
