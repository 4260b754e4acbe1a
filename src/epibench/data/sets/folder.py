"""Your own folders of images and label images with a class table: a data set without code."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from epibench.data.cityscapes_classes import CITYSCAPES_LABEL_IDS, CITYSCAPES_TRAIN_IDS
from epibench.data.classes import ClassTable, read_classes, table_of_names
from epibench.data.images import LabelledImages, matched
from epibench.data.sets.camvid import CAMVID_COLOURS, CAMVID_IDS
from epibench.data.source import CheckedSplit, LabelledSource
from epibench.errors import InputError

# By their names in recipes and commands.
CLASS_TABLES = {
    "cityscapes": CITYSCAPES_LABEL_IDS,
    "cityscapes-train-ids": CITYSCAPES_TRAIN_IDS,
    "camvid": CAMVID_IDS,
    "camvid-colours": CAMVID_COLOURS,
}
# Words in a path that do not describe the origin of images.
SPLIT_WORDS = frozenset(
    {"train", "training", "val", "valid", "validation", "test", "testing", "image", "images", "img", "rgb"}
)


class FolderSource(LabelledSource):
    """Your own images and label images, in two folders below the root.

    Args:
        classes: Name of a built-in table, a CSV file, or names of classes 0, 1, ….
        image_suffix: End of names before `.png`.
        label_suffix: End of names before `.png`, e.g. `_L` in `0001_L.png`.
        title: Name on pages.
        distribution: A word for the origin of the images: a domain with the training data's word is not shifted. By
            default it is their path without words like `train`, `val` and `images`.
    """

    kind: Literal["folder"] = "folder"
    root: str = "."
    images: str = "images"
    labels: str = "labels"
    classes: str | tuple[str, ...]
    image_suffix: str = ""
    label_suffix: str = ""
    title: str | None = None
    distribution: str | None = None

    @property
    def label(self) -> str:
        """The name on pages."""
        path = origin_path(self.root, self.images)
        return self.title or self.distribution or path.rpartition("/")[2] or "folder"

    @property
    def origin(self) -> object:
        """A value that data of one distribution share."""
        return "folder", self.distribution or origin_path(self.root, self.images)

    @property
    def class_table(self) -> ClassTable | None:
        """The given classes."""
        return find_classes(self.classes)

    @property
    def version(self) -> str:
        """A version that changes with the class table."""
        return f"1-{find_classes(self.classes).digest}"

    def read(self) -> LabelledImages:
        """Return images and label images with the same names, including subfolders."""
        images, labels = (Path(self.root) / Path(each).expanduser() for each in (self.images, self.labels))
        classes = find_classes(self.classes)
        frames = matched(images, labels, self.image_suffix, self.label_suffix)
        return LabelledImages(str(images), frames, classes, self.crop)

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """Yield the two folders as one split."""
        images = cls(**options).read()
        yield CheckedSplit(images.name, cls.task, None, [lambda: images])


def find_classes(given: str | Path | Sequence[str]) -> ClassTable:
    """Return the built-in table of a name, the table of a CSV file, or a table of these names."""
    if not isinstance(given, str | Path):
        return table_of_names(given)
    if str(given) in CLASS_TABLES:
        return CLASS_TABLES[str(given)]
    path = Path(given).expanduser()
    if path.suffix.lower() != ".csv" and not path.is_file():
        nearest = difflib.get_close_matches(str(given), CLASS_TABLES, 1, 0.0)[0]
        known = ", ".join(CLASS_TABLES)
        raise InputError(
            f"classes '{given}': no class table is called so, the nearest is {nearest} (there are {known}); or give a "
            f".csv file"
        )
    return read_classes(path)


def origin_path(root: str, images: str) -> str:
    """Return the path of images without words for splits and kinds of files."""
    parts = Path(os.path.normpath(Path(root).expanduser() / Path(images).expanduser())).parts
    return "/".join(part for part in parts if part.lower() not in SPLIT_WORDS and part != "/")
