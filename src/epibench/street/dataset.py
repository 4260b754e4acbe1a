"""Street scenes as a data set: depth completion and segmentation."""

from __future__ import annotations

import operator
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from epibench.data.batch import Batch
from epibench.data.cityscapes_classes import CITYSCAPES_TRAIN_IDS
from epibench.data.classes import IGNORE
from epibench.errors import InputError
from epibench.street.arrays import check_whole
from epibench.street.camera import check_size
from epibench.street.domains import Domain, make_domain
from epibench.street.frames import Frame, FrameCache, render_frame

Task = Literal["depth", "segmentation"]


class StreetDataset:
    """Scenes `first` … `first + length − 1` of a seed, rendered on request.

    depth: image and sparse depth → depth in metres, valid where it is known. segmentation: image → train ids, valid
    where there is one (255 elsewhere). `cache`: a folder that keeps the scenes.
    """

    classes = CITYSCAPES_TRAIN_IDS

    def __init__(
        self,
        task: Task,
        domain: Domain | str = "clean",
        length: int = 1000,
        seed: int = 0,
        size: tuple[int, int] = (256, 512),
        first: int = 0,
        cache: Path | str | None = None,
    ):
        if task not in get_args(Task):
            raise InputError(f"street task '{task}' is unknown; there are {', '.join(get_args(Task))}")
        self.task: Task = task
        self.domain = make_domain(domain) if isinstance(domain, str) else domain
        self.length, self.seed = check_whole("length", length, 1), check_whole("seed", seed)
        self.size, self.first = check_size(size), check_whole("first", first)
        self.cache = None if cache is None else FrameCache(Path(cache), self.domain, self.seed, self.size)
        # Checked here: worker processes receive the result, and do not warn again.
        self.keeps = self.cache is not None and self.cache.can_keep

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        return as_sample(self.frame(index), self.task)

    def frame_id(self, index: int) -> str:
        """`SEED/NUMBER` of a scene."""
        return f"{self.seed}/{self.first + self.check_index(index):06d}"

    def check_index(self, index: int) -> int:
        """Return the index as a Python int."""
        index = operator.index(index)
        if not 0 <= index < self.length:  # ends a for loop over the data set
            raise IndexError(f"street has scenes 0 to {self.length - 1}, not {index}")
        return index

    def missing(self) -> list[int]:
        """Return the scenes that are not in the cache; empty without a cache."""
        if self.cache is None or not self.keeps:
            return []
        return [index for index in range(self.length) if not self.cache.path(self.first + index).exists()]

    def frame(self, index: int) -> Frame:
        """Return the frame of a scene."""
        index = self.check_index(index)
        if self.cache is not None:
            return self.cache.frame(self.first + index)
        return render_frame(self.domain, self.seed, self.first + index, self.size)


def as_sample(frame: Frame, task: Task) -> Batch:
    """Return the sample of a frame for a task."""
    import torch

    image = torch.from_numpy(np.array(frame.image.transpose(2, 0, 1)))
    if task == "segmentation":
        target = torch.from_numpy(frame.labels.astype(np.int64))
        return Batch({"image": image}, target, target != IGNORE)
    sparse, depth = (torch.from_numpy(np.array(part)) for part in (frame.sparse_depth, frame.target_depth))
    return Batch({"image": image, "sparse_depth": sparse[None]}, depth, depth > 0)
