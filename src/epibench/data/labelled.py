"""Images with label images: how a label file is read, how both are paired, and data sets of such pairs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from epibench.data.batch import Batch
from epibench.data.classes import IGNORE, ClassTable
from epibench.data.images import Frames, Listing, bottom_centre, check_partners, load_picture, read_image
from epibench.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

IMAGES = (".png", ".jpg", ".jpeg")
LABELS = (".png",)
GREY, RGB = 0, 2
COLOUR_TYPES = {GREY: "grey", RGB: "RGB", 3: "palette colours", 4: "grey with transparency", 6: "RGB with transparency"}


@dataclass(frozen=True, slots=True)
class LabelledFrame:
    """The files of a frame."""

    frame_id: str
    image: str
    label: str


class LabelledImages(Frames[LabelledFrame]):
    """Image → classes, valid where one is counted (255 elsewhere)."""

    def __init__(
        self, name: str, frames: Sequence[LabelledFrame], classes: ClassTable, crop: tuple[int, int] | None = None
    ):
        super().__init__(name, frames, crop)
        self.classes = classes

    def read(self, frame: LabelledFrame) -> Batch:
        """The image and its classes."""
        image, target = read_image(frame.image), self.read_target(frame)
        window = bottom_centre({frame.image: image, frame.label: target}, self.crop)
        image, target = image[window].contiguous(), target[window].contiguous()
        return Batch({"image": image}, target, target != IGNORE)

    def read_target(self, frame: LabelledFrame) -> Tensor:
        """The classes of a frame."""
        return read_labels(frame.label, self.classes)


def read_labels(path: Path | str, classes: ClassTable) -> Tensor:
    """A label image, 8-bit PNG, as classes with IGNORE where none is counted, (height, width) int64.

    Grey for a table of numbers, RGB for one of colours; anything else might hold other numbers than it seems to.
    """
    picture = load_picture(path, ("PNG", "JPEG"))
    wanted = RGB if classes.in_colour else GREY
    remedy = f"save it as 8-bit {COLOUR_TYPES[wanted]} PNG"
    if picture.format != "PNG":
        raise InputError(f"{path}: is JPEG, which changes values; give label images as PNG")
    bits, colour_type = _header(path)
    if colour_type == 3 and wanted == GREY:
        remedy = "save its indices, if they are the values of the class table, as 8-bit grey PNG"
    if {colour_type, wanted} == {GREY, RGB}:
        asks = "colours" if classes.in_colour else "numbers"
        remedy = f"class table '{classes.name}' has {asks}: give the table of these files, or {remedy}"
    if colour_type != wanted or bits != 8:
        depth = f"{bits}-bit " if colour_type in (GREY, RGB) else ""
        kind = COLOUR_TYPES.get(colour_type, "another kind")
        raise InputError(f"{path}: is in {depth}{kind}, not in 8-bit {COLOUR_TYPES[wanted]}; {remedy}")
    return classes.decode(np.asarray(picture), path)


def _header(path: Path | str) -> tuple[int, int]:
    """Bits per channel and colour type of a PNG file: Pillow scales 2 and 4 bits up, and 16 bits of RGB down."""
    with open(path, "rb") as file:
        start = file.read(26)
    return start[24], start[25]


def resized(target: Tensor, size: tuple[int, int]) -> Tensor:
    """Classes at another size: each pixel has that of the nearest one."""
    import torch

    rows, columns = (
        ((torch.arange(new, dtype=torch.float64) + 0.5) * old / new).long()
        for old, new in zip(target.shape, size, strict=True)
    )
    return target[rows][:, columns]


def paired(
    image_files: Listing, label_files: Listing, images: Path, labels: Path, missing_label: str, missing_image: str
) -> list[LabelledFrame]:
    """Every image with its label, in the order of their names; the last two: what to do if one is missing."""
    check_partners(image_files, label_files, labels, missing_label)
    check_partners(label_files, image_files, images, missing_image)
    return [LabelledFrame("/".join(key), image_files[key], label_files[key]) for key in sorted(image_files)]


def matched(
    images: Path, labels: Path, image_suffix: str = "", label_suffix: str = "", remedy: str | None = None
) -> list[LabelledFrame]:
    """Images and label images of two folders by their names, also in folders below. remedy: if a folder has none."""
    together = images.resolve() == labels.resolve()
    if together and image_suffix == label_suffix:
        raise InputError(
            f"{images}: holds images and label images; give label_suffix, as _L for 0001_L.png, or two folders"
        )
    remedies = [remedy or f"give the folder of the {kind}" for kind in ("images", "label images")]
    image_files = named(images, IMAGES, image_suffix, remedies[0])
    label_files = named(labels, LABELS, label_suffix, remedies[1])
    if together and len(label_suffix) > len(image_suffix):  # what is a label is no image
        image_files = _without(image_files, label_files)
    elif together:
        label_files = _without(label_files, image_files)
    for files, folder, endings, suffix in (  # neither may be empty
        (image_files, images, IMAGES, image_suffix),
        (label_files, labels, LABELS, label_suffix),
    ):
        if not files:
            names = " or ".join(f"…{suffix}{ending}" for ending in endings)
            raise InputError(f"{folder}: no {names} is there; {remedies[files is label_files]}")
    missing_label = _partner_remedy(image_files, label_files, "label")
    missing_image = _partner_remedy(label_files, image_files, "image")
    return paired(image_files, label_files, images, labels, missing_label, missing_image)


def named(folder: Path, endings: Sequence[str], suffix: str, remedy: str) -> Listing:
    """Files by their paths below the folder, without suffix and ending; hidden ones are left out."""
    if not folder.is_dir():
        raise InputError(f"{folder}: folder is missing; {remedy}")
    files: Listing = {}
    for path in _walk(folder):
        stem, ending = os.path.splitext(path)
        if ending.lower() not in endings or not stem.endswith(suffix):
            continue
        key = (os.path.relpath(stem, folder).replace(os.sep, "/").removesuffix(suffix),)
        if key in files:
            raise InputError(f"{path}: {files[key]} has the same name; remove one of them, or give suffixes")
        files[key] = path
    return files


def _walk(folder: Path) -> Iterator[str]:
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(parent, name) for name in sorted(names) if not name.startswith("."))


def _without(files: Listing, others: Listing) -> Listing:
    paths = set(others.values())
    return {key: path for key, path in files.items() if path not in paths}


def _partner_remedy(files: Listing, partners: Listing, kind: str) -> str:
    """What to do about a missing partner; if names only end in something else, how to say so."""
    ends = {
        other[0].removeprefix(key[0])
        for key in sorted(files)[:1]
        for other in partners
        if other != key and other[0].startswith(key[0])
    }
    if len(ends) == 1 and not files.keys() & partners.keys():
        return f"{kind}s seem to end in '{ends.pop()}': give that as {kind}_suffix"
    return f"add the {kind}, or remove it; names must be equal up to image_suffix and label_suffix"
