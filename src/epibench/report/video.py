"""A sequence of images with what members predict for each, as PNG files and one animated file.

Images are predicted, drawn and written one after another: a long sequence takes no more memory than a short one.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from epibench.files import fingerprint, read_json, replacing, write_json
from epibench.plans import centres
from epibench.progress import Reporter
from epibench.report.entries import ClassStyles
from epibench.report.pictures.dense import scale_ends
from epibench.report.pictures.frames import FrameStyle

if TYPE_CHECKING:
    from epibench.runs.frames import FrameSequence

SCALE_FRAMES = 8  # that decide the scales, spread over the sequence
SCALES_NAME = "scales.json"
STYLE_VERSION = 2  # another one when the same predictions give other frames


def write_frames(
    sequence: FrameSequence, images: range, folder: Path, largest: float | None, reporter: Reporter
) -> list[Path]:
    """A PNG file for each image; one that is there already, of the same predictions and style, is kept.

    largest: where the colours of error and uncertainty end, None: by the data.
    """
    style = make_style(sequence, images, folder, largest, reporter)
    look = [style.title, dict(style.methods), style.size, style.ends, style.frame, len(images), STYLE_VERSION]
    predicted = sequence.fingerprint
    keys = {image: fingerprint(predicted, look, image) for image in images}
    files = {image: folder / f"frame-{image:06d}.png" for image in images}
    missing = [image for image in images if written_key(files[image]) != keys[image]]
    with reporter.step(f"draw frames of {sequence.domain}", len(images), len(images) - len(missing)) as advance:
        for image, picture in zip(missing, sequence.pictures(missing), strict=True):
            notes = PngInfo()
            notes.add_text("fingerprint", keys[image])
            with replacing(files[image]) as stream:
                style.draw(picture, images.index(image) + 1, len(images)).save(stream, "PNG", pnginfo=notes)
            advance(1)
    return list(files.values())


def written_key(path: Path) -> str | None:
    """The fingerprint of a frame; None where there is none that can be read."""
    try:
        with Image.open(path, formats=("PNG",)) as frame:
            frame.load()
            key = frame.info.get("fingerprint")
    except (OSError, SyntaxError, ValueError):
        return None
    return key if isinstance(key, str) else None


def make_style(
    sequence: FrameSequence, images: range, folder: Path, largest: float | None, reporter: Reporter
) -> FrameStyle:
    """Labels, and scales that all frames share: measured once, on some images that are spread over the sequence."""
    recipe, classes = sequence.experiment.recipe, sequence.data.classes
    some = [images[place] for place in centres(len(images), SCALE_FRAMES)]
    key = fingerprint(sequence.fingerprint, some, largest)
    kept: dict[str, Any] = read_json(folder / SCALES_NAME) or {}
    if kept.get("fingerprint") != key:
        pictures = []
        with reporter.step("measure the scales", len(some)) as advance:
            for picture in sequence.pictures(some):
                pictures.append(picture)
                advance(1)
        _, depth, amount = scale_ends(pictures)
        size = [pictures[0].height, pictures[0].width]
        kept = {"fingerprint": key, "size": size, "depth": depth, "amount": amount if largest is None else largest}
        write_json(folder / SCALES_NAME, kept)
    return FrameStyle(
        title=f"{recipe.name}: {recipe.data.domains[sequence.domain].label}",
        methods={each.name: f"{recipe.label(each.name)}, M = {len(each.shown)}" for each in sequence.methods},
        size=(kept["size"][0], kept["size"][1]),
        ends=(kept["depth"], kept["amount"]),
        unit="nats" if classes is not None else recipe.unit or "",
        classes=None if classes is None else ClassStyles(classes.names, classes.colours),
    )


class LaterFrames:
    """Frames in files for Pillow's animations, each opened when its turn comes."""

    mode = "L"  # one that WebP does not have, so that Pillow asks for each frame to be converted
    has_transparency_data = False

    def __init__(self, files: Sequence[Path]):
        self.files, self.n_frames, self.place = files, len(files), 0

    def seek(self, place: int) -> None:
        """Go to a frame."""
        self.place = place

    def convert(self, mode: str) -> Image.Image:
        """The frame as Pillow wants it."""
        with Image.open(self.files[self.place]) as frame:
            return frame.convert(mode)


def write_animation(files: Sequence[Path], path: Path, fps: int) -> None:
    """Frames as one animated WebP file, which browsers show over and over.

    Without loss: every frame is its PNG file. A lossy one blurs maps of classes and text and is at best half as large.
    """
    options: dict[str, Any] = {"lossless": True, "method": 2, "loop": 0, "duration": round(1000 / fps)}
    with Image.open(files[0]) as first, replacing(path) as stream:
        first.convert("RGB").save(stream, "WEBP", save_all=True, append_images=[LaterFrames(files[1:])], **options)
