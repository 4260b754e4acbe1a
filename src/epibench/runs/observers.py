"""Observers of members' outputs during an evaluation: a gallery of pictures, and a store of all outputs.

Pictures are kept as numbers: some images, and the predictions of one draw for them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import zarr
from torch import Tensor

from epibench.data.batch import Batch, Samples
from epibench.data.loading import InOrder, batches
from epibench.errors import InputError
from epibench.evaluation.pictures import PICTURES, made_picture, step_of
from epibench.members.maps import Maps, WindowMaps
from epibench.members.networks import ImagePool
from epibench.members.on_images import Observer
from epibench.progress import Reporter
from epibench.results import Picture, PredictedPicture
from epibench.runs.domains import DomainData
from epibench.store.formats import KINDS, OUTPUTS
from epibench.store.writer import StoreWriter
from epibench.street import StreetDataset


@dataclass
class Gallery(Observer):
    """Keeps the predictions of one draw's members for some images."""

    images: Sequence[int]
    members: Sequence[int]
    kind: str = "gaussian"
    kept: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = sorted(self.members)  # in the order of their outputs
        if self.kind not in PICTURES:  # a ranking has no pictures
            self.images = ()

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Keep the images, and the outputs of the draw's members."""
        for image in self.images:
            for number, member in enumerate(self.members):
                if image in images and members.start <= member < members.stop:
                    self._see_member(batch, image, image - images.start, number, member - members.start, maps)

    def _see_member(self, batch: Batch, image: int, row: int, number: int, member: int, maps: Maps) -> None:
        """Keep the outputs of one member for one image.

        Args:
            batch: Batch of images.
            image: Index of the image in the domain.
            row: Index of the image in the batch.
            number: Index of the member in the draw.
            member: Index of the member in the maps.
            maps: Outputs for the batch.
        """
        of_kind, (height, width) = PICTURES[self.kind], batch.target.shape[-2:]
        step = step_of(width)
        full = maps.rows(row, slice(0, height), slice(member, member + 1))
        outputs = {name: values[0, ::step, ::step] for name, values in full.items()}
        if number == 0:
            kept = of_kind.show(batch, row, step) | of_kind.begin(outputs, len(self.members))
            self.kept |= {f"{image}.{name}": values for name, values in kept.items()}
        of_kind.add(self._of_image(image), outputs, number)
        self.kept[f"{image}.seen"] = torch.tensor(number + 1)

    def _of_image(self, image: int) -> dict[str, Tensor]:
        start = f"{image}."
        return {name.removeprefix(start): values for name, values in self.kept.items() if name.startswith(start)}

    def state(self) -> dict[str, Tensor]:
        """Return the kept images and outputs."""
        return self.kept

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Resume from a copy of a saved state."""
        self.kept = {name: values.clone() for name, values in saved.items()}

    def pictures(self) -> list[tuple[Picture, PredictedPicture]]:
        """Return the images that all members have predicted, with the draw's prediction."""
        pictures = []
        for image in self.images:
            kept = self._of_image(image)
            if int(kept.get("seen", 0)) == len(self.members):
                pictures.append(made_picture(self.kind, image, kept, len(self.members)))
        return pictures


def largest_size(samples: Samples, workers: int, reporter: Reporter) -> tuple[int, ...]:
    """Return the largest height and the largest width of a domain's images."""
    if isinstance(samples, StreetDataset):
        return samples.size
    sizes = []
    with reporter.step("measure images", len(samples)) as advance:
        for batch in batches(InOrder(samples), range(len(samples)), 1, workers):
            sizes.append(tuple(batch.target.shape[1:]))
            advance(1)
    return tuple(max(sides) for sides in zip(*sizes, strict=True))


def is_whole(path: Path) -> bool:
    """Return whether a store is complete and no file of its outputs is missing."""
    try:
        root = zarr.open_group(path, mode="r")
        arrays = dict(root.arrays())
        outputs = [array for name, array in arrays.items() if name in OUTPUTS]
        number = len(KINDS[cast("Any", root.attrs["kind"])])
        # Zarr writes no chunks of targets and masks that hold only their fill value.
        written = all(array.nchunks_initialized == array.nchunks for array in outputs)
        return bool(root.attrs["complete"]) and "target" in arrays and len(outputs) == number and written
    except Exception:  # zarr fails in many ways on a damaged store
        return False


@dataclass(frozen=True)
class CoarseGrid:
    """The grid of members' predictions for an image of some size."""

    image: tuple[int, int]
    points: tuple[int, int]
    align_corners: bool

    def largest(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """Return an upper bound for the grid's points on an image of this size."""
        sides = zip(size, self.image, self.points, strict=True)
        return tuple(points + (full != side) * (-(-(full - side) * points // side) + 1) for full, side, points in sides)


def coarse_grid(maps: Maps) -> CoarseGrid | None:
    """Return the grid of logits that are coarser than the image; None with several windows or merged classes."""
    if not isinstance(maps, WindowMaps) or len(maps.windows) > 1 or set(maps.values) != {"logits"}:
        return None
    height, width = maps.values["logits"].shape[-2:]
    return None if (height, width) == maps.size else CoarseGrid(maps.size, (height, width), maps.align_corners)


class StoreObserver(Observer):
    """Writes every output of every member into a prediction store.

    Args:
        path: Folder of the store.
        labels: Labels of the method and the domain, and the unit.
        pool: Members.
        data: Domain.
        size: Height and width that every image fits into.
        begun: Whether to resume an interrupted store; otherwise an existing store is removed.
    """

    def __init__(
        self,
        path: Path,
        labels: tuple[str, str, str | None],
        pool: ImagePool,
        data: DomainData,
        size: tuple[int, ...],
        begun: bool,
    ):
        if not begun and path.exists():
            if not (path / "zarr.json").is_file():
                raise InputError(f"{path}: not a prediction store; remove it, and it is made anew")
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.size = path, size
        method, domain, unit = labels
        self.settings: dict[str, Any] = {
            "kind": pool.kind,
            "method": method,
            "domain": domain,
            "unit": unit,
            "quantity": "depth" if unit == "m" and pool.kind == "gaussian" else None,
            "num_members": pool.num_members,
            "num_images": len(data.samples),
            "size": size,
            "class_names": None if data.classes is None else data.classes.names,
            "group": pool.group,
        }
        self.writer: StoreWriter | None = None

    def opened(self, maps: Maps) -> StoreWriter:
        """Return the writer. The first outputs decide its grid: coarse logits are stored on their own grid."""
        if self.writer is None:
            if (grid := coarse_grid(maps)) is not None:
                self.settings["align_corners"] = grid.align_corners
                self.settings["coarse_size"] = grid.largest(self.size)
            try:
                self.writer = StoreWriter(self.path, **self.settings, resume=True)
            except InputError as error:
                raise InputError(f"{error}, or remove it, and it is made anew") from None
        return self.writer

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Write the outputs of these members, and the targets with the first member."""
        writer, coarse = self.opened(maps), "align_corners" in self.settings
        for row, image in enumerate(images):
            if members.start == 0:
                shown = self.photo(batch, row)
                writer.write_target(image, batch.target[row].cpu(), batch.valid[row].cpu(), image=shown)
            rows = slice(0, len(batch.target[row]))
            for number, member in enumerate(range(members.start, members.stop)):
                if coarse and isinstance(maps, WindowMaps):
                    outputs = {"logits": maps.values["logits"][number, row, 0].movedim(0, -1)[None]}
                else:
                    outputs = maps.rows(row, rows, slice(number, number + 1))
                writer.write(member, image, **{name: values[0].cpu() for name, values in outputs.items()})

    @staticmethod
    def photo(batch: Batch, row: int) -> Tensor | None:
        """Return the photo of an image, (height, width, 3).

        None unless the image is uint8 RGB of the target's size.
        """
        image = batch.inputs.get("image")
        if image is None or image.dtype != torch.uint8 or image.shape[1:] != (3, *batch.target.shape[1:]):
            return None
        return image[row].cpu().movedim(0, -1)

    def close(self) -> None:
        """Mark the store as complete."""
        if self.writer is not None:
            self.writer.close()

    def stop(self) -> None:
        """Stop writing, and leave the store to be resumed."""
        if self.writer is not None:
            self.writer.stop()
