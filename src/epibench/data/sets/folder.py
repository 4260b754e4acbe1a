"""Two folders of one's own, images and label images, with a class table: a data set without code."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from epibench.data.class_files import find_classes
from epibench.data.images import Listing, check_partners
from epibench.data.label_images import LabelledFrame, LabelledImages
from epibench.data.labels import ClassTable
from epibench.errors import InputError

IMAGES = (".png", ".jpg", ".jpeg")
LABELS = (".png",)


class Folder(LabelledImages):
    """Images and the label images with the same names, also in folders below.

    classes: a table, the name of a built-in one, a CSV file, or names. image_suffix, label_suffix: what names end in
    before `.png`, as `_L` in `0001_L.png`.
    """

    def __init__(
        self,
        images: Path | str,
        labels: Path | str,
        classes: ClassTable | str | Path | Sequence[str],
        image_suffix: str = "",
        label_suffix: str = "",
        crop: tuple[int, int] | None = None,
    ):
        table = classes if isinstance(classes, ClassTable) else find_classes(classes)
        frames = matched(Path(images), Path(labels), image_suffix, label_suffix)
        super().__init__(str(images), frames, table, crop)


def matched(
    images: Path, labels: Path, image_suffix: str = "", label_suffix: str = "", remedy: str | None = None
) -> list[LabelledFrame]:
    """Every image with its label image, in the order of their names. remedy: if a folder has none."""
    together = images.resolve() == labels.resolve()
    if together and image_suffix == label_suffix:
        raise InputError(
            f"{images}: holds images and label images; give label_suffix, as _L for 0001_L.png, or two folders"
        )
    kinds = [remedy or f"give the folder of the {kind}" for kind in ("images", "label images")]
    image_files = named(images, IMAGES, image_suffix, kinds[0])
    label_files = named(labels, LABELS, label_suffix, kinds[1])
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
            raise InputError(f"{folder}: no {names} is there; {kinds[files is label_files]}")
    check_partners(image_files, label_files, labels, _remedy(image_files, label_files, "label"))
    check_partners(label_files, image_files, images, _remedy(label_files, image_files, "image"))
    return [LabelledFrame(key[0], image_files[key], label_files[key]) for key in sorted(image_files)]


def named(folder: Path, endings: Sequence[str], suffix: str, remedy: str) -> Listing:
    """Files by their paths below the folder, without suffix and ending; hidden ones are left out."""
    if not folder.is_dir():
        raise InputError(f"{folder}: folder is missing; {remedy}")
    found: Listing = {}
    for path in _files(folder):
        stem, ending = os.path.splitext(path)
        if ending.lower() not in endings or not stem.endswith(suffix):
            continue
        key = (os.path.relpath(stem, folder).replace(os.sep, "/").removesuffix(suffix),)
        if key in found:
            raise InputError(f"{path}: {found[key]} has the same name; remove one of them, or give suffixes")
        found[key] = path
    return found


def _without(files: Listing, others: Listing) -> Listing:
    paths = set(others.values())
    return {key: path for key, path in files.items() if path not in paths}


def _files(folder: Path) -> Iterator[str]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (os.path.join(place, name) for name in sorted(names) if not name.startswith("."))


def _remedy(files: Listing, partners: Listing, kind: str) -> str:
    """What to do about a missing partner; if names only end otherwise, how to say so."""
    ends = {
        other[0].removeprefix(key[0])
        for key in sorted(files)[:1]
        for other in partners
        if other != key and other[0].startswith(key[0])
    }
    if len(ends) == 1 and not files.keys() & partners.keys():
        return f"{kind}s seem to end in '{ends.pop()}': give that as {kind}_suffix"
    return f"add the {kind}, or remove it; names must be equal up to image_suffix and label_suffix"
