"""Who sees all outputs of members as an evaluation goes by: a gallery that keeps pictures, and a store that keeps all.

Pictures are kept as numbers: some images, and what one draw of a method predicts for them.
"""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr
from PIL import Image
from torch import Tensor

from epibench.data.batch import Batch, Samples
from epibench.data.classes import IGNORE
from epibench.data.loading import InOrder, batches
from epibench.errors import InputError
from epibench.likelihoods import categorical, gaussian
from epibench.members.maps import Maps
from epibench.members.networks import NetworkPool, Observer
from epibench.progress import Reporter
from epibench.recipes.dense import DenseRecipe
from epibench.results import Grid, Picture, PredictedPicture
from epibench.runs.domains import DomainData
from epibench.store.formats import KINDS, OUTPUTS
from epibench.store.writer import StoreWriter
from epibench.street import StreetDataset

MAX_WIDTH = 512
COUNTS = 2**16 - 1
DEPTH_SCALE = 1 / 64  # metres per count: finer steps are noise that no picture shows
ENTROPY_SCALE = 1 / 256  # nats per count


def thinned(values: Tensor, step: int) -> Tensor:
    """Every so many-th pixel of the last two axes, in the memory of the CPU."""
    return values[..., ::step, ::step].cpu().clone()


def nearest(depth: Tensor, step: int) -> Tensor:
    """A smaller map of sparse depth: the nearest point of each square that has one."""
    if step == 1:
        return depth
    far = torch.where(depth > 0, -depth, -torch.inf)
    least = torch.nn.functional.max_pool2d(far[None, None], step, ceil_mode=True)[0, 0]
    return torch.where(torch.isfinite(least), -least, 0.0)


def photo(image: Tensor) -> str:
    """A colour picture, (channel, height, width) uint8, as text."""
    return _encoded(Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())), "JPEG", quality=88)


def grid(values: Tensor, scale: float) -> Grid:
    """Numbers as a 16-bit grey picture, and what one count stands for; a finer scale than they have room for grows."""
    scale = max(scale, float(values.max()) / COUNTS)
    counts = (values.double() / scale).round().clamp(0, COUNTS).numpy().astype(np.uint16)
    return Grid(scale=scale, png=_encoded(Image.fromarray(counts), "PNG"))


def class_map(classes: Tensor) -> str:
    """Classes of pixels as an 8-bit grey picture."""
    return _encoded(Image.fromarray(classes.numpy().astype(np.uint8)), "PNG", optimize=True)


def _encoded(picture: Image.Image, layout: str, **options: Any) -> str:
    stream = io.BytesIO()
    picture.save(stream, layout, **options)
    return base64.b64encode(stream.getvalue()).decode("ascii")


class DepthPictures:
    """Keeps mean and variance of every member that is drawn."""

    def show(self, batch: Batch, number: int, step: int) -> dict[str, Tensor]:
        """What went in, and the truth: 0 where it is not known."""
        target = torch.where(batch.valid[number], batch.target[number], 0.0)
        return {
            "image": thinned(batch.inputs["image"][number], step),
            "sparse_depth": nearest(batch.inputs["sparse_depth"][number, 0], step).cpu().clone(),
            "target": nearest(target, step).cpu().clone(),
        }

    def begin(self, outputs: Mapping[str, Tensor], num_members: int) -> dict[str, Tensor]:
        """Room for all members. outputs: of the first, (row, column)."""
        return {name: torch.zeros(num_members, *values.shape) for name, values in outputs.items()}

    def add(self, kept: Mapping[str, Tensor], outputs: Mapping[str, Tensor], number: int) -> None:
        """Keep what a member predicts, (row, column); number: of the member within the draw."""
        for name, values in outputs.items():
            kept[name][number] = values.cpu().float()

    def picture(self, kept: Mapping[str, Tensor], num_members: int) -> tuple[dict[str, Any], PredictedPicture]:
        """What is known of the image, and mean and standard deviation of the draw."""
        size = kept["mean"].shape[1:]
        flat = {name: kept[name].flatten(1) for name in ("mean", "variance")}
        predictive = gaussian.combine(flat, torch.full((1, num_members), 1 / num_members))
        known = {"sparse_depth": grid(kept["sparse_depth"], DEPTH_SCALE), "target": grid(kept["target"], DEPTH_SCALE)}
        return known, PredictedPicture(
            M=num_members,
            mean=grid(predictive.mean.view(size), DEPTH_SCALE),
            std=grid(predictive.variance.sqrt().view(size), DEPTH_SCALE),
        )


class ClassPictures:
    """Keeps the sum of the members' probabilities: all logits of a pool would take gigabytes."""

    def show(self, batch: Batch, number: int, step: int) -> dict[str, Tensor]:
        """The image and the true classes, IGNORE where there are none."""
        target = torch.where(batch.valid[number], batch.target[number], IGNORE)
        image = batch.inputs["image"][number]
        return {"image": thinned(image, step), "target": thinned(target, step).to(torch.uint8)}

    def begin(self, outputs: Mapping[str, Tensor], num_members: int) -> dict[str, Tensor]:
        """No probability yet. outputs: of the first member, logits (row, column, class)."""
        return {"sum": torch.zeros(outputs["logits"].shape)}

    def add(self, kept: Mapping[str, Tensor], outputs: Mapping[str, Tensor], number: int) -> None:
        """Add the probabilities of a member; number: of the member within the draw."""
        kept["sum"].add_(torch.softmax(outputs["logits"].float(), -1).cpu())

    def picture(self, kept: Mapping[str, Tensor], num_members: int) -> tuple[dict[str, Any], PredictedPicture]:
        """What is known of the image, and the most probable class of the draw with its predictive entropy."""
        probs = kept["sum"].double() / num_members
        return {"target": class_map(kept["target"])}, PredictedPicture(
            M=num_members,
            predicted=class_map(probs.argmax(-1)),
            uncertainty=grid(categorical.entropy(probs), ENTROPY_SCALE),
        )


PICTURES: dict[str, DepthPictures | ClassPictures] = {"gaussian": DepthPictures(), "categorical": ClassPictures()}


@dataclass
class Gallery(Observer):
    """Keeps what the members of one draw predict for some images, while a pass over a domain goes by."""

    images: Sequence[int]
    members: Sequence[int]
    kind: str = "gaussian"
    kept: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = sorted(self.members)  # as they come by

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Keep outputs of the members that are drawn, and the images themselves."""
        for image in self.images:
            for number, member in enumerate(self.members):
                if image in images and members.start <= member < members.stop:
                    self._see_member(batch, image, image - images.start, number, member - members.start, maps)

    def _see_member(self, batch: Batch, image: int, row: int, number: int, member: int, maps: Maps) -> None:
        """row: of the image in the batch; number: of the member within the draw; member: its number in the maps."""
        of_kind, (height, width) = PICTURES[self.kind], batch.target.shape[-2:]
        step = -(-width // MAX_WIDTH)
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
        """What it has kept."""
        return self.kept

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from what was kept; what was saved stays as it is."""
        self.kept = {name: values.clone() for name, values in saved.items()}

    def pictures(self, method: str) -> list[Picture]:
        """The images that all members have seen, with what the draw of a method predicts."""
        pictures = []
        for image in self.images:
            kept = self._of_image(image)
            if int(kept.get("seen", 0)) == len(self.members):
                height, width = kept["image"].shape[-2:]
                known, predicted = PICTURES[self.kind].picture(kept, len(self.members))
                shown = {"image": image, "height": height, "width": width, "photo": photo(kept["image"])}
                pictures.append(Picture(**shown, **known, methods={method: predicted}))
        return pictures


def largest_size(samples: Samples, workers: int, reporter: Reporter) -> tuple[int, ...]:
    """The height and width that every image of a domain fits into."""
    if isinstance(samples, StreetDataset):
        return samples.size
    sizes = []
    with reporter.step("measure images", len(samples)) as advance:
        for batch in batches(InOrder(samples), range(len(samples)), 1, workers):
            sizes.append(tuple(batch.target.shape[1:]))
            advance(1)
    return tuple(max(sides) for sides in zip(*sizes, strict=True))


def is_whole(path: Path) -> bool:
    """Whether a store is complete, with all its files."""
    try:
        root = zarr.open_group(path, mode="r")
        arrays = dict(root.arrays())
        outputs = [array for name, array in arrays.items() if name in OUTPUTS]
        number = len(KINDS["gaussian"]) if root.attrs["kind"] == "gaussian" else 1
        # Chunks of targets and masks may be left out where they hold nothing but what is read there anyway.
        written = all(array.nchunks_initialized == array.nchunks for array in outputs)
        return bool(root.attrs["complete"]) and "target" in arrays and len(outputs) == number and written
    except Exception:  # whatever zarr makes of what is there, it is not whole
        return False


class StoreObserver(Observer):
    """Writes every output of every member. begun: after an interruption it goes on in the same store."""

    def __init__(
        self,
        path: Path,
        recipe: DenseRecipe,
        method: str,
        domain: str,
        pool: NetworkPool,
        data: DomainData,
        size: tuple[int, ...],
        begun: bool,
    ):
        if not begun and path.exists():
            if not (path / "zarr.json").is_file():
                raise InputError(f"{path}: not a prediction store; remove it, and it is made anew")
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        kind: Any = recipe.likelihood
        try:
            self.writer = StoreWriter(
                path,
                kind=kind,
                method=recipe.label(method),
                domain=recipe.data.domains[domain].label,
                unit=recipe.unit,
                quantity="depth" if recipe.task == "depth" else None,
                num_members=pool.num_members,
                num_images=len(data.samples),
                size=size,
                class_names=None if data.classes is None else data.classes.names,
                group=pool.group,
                resume=True,
            )
        except InputError as error:
            raise InputError(f"{error}, or remove it, and it is made anew") from None

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Write what these members predict, and the targets with the first of them."""
        for row, image in enumerate(images):
            if members.start == 0:
                self.writer.write_target(image, batch.target[row].cpu(), batch.valid[row].cpu())
            rows = slice(0, len(batch.target[row]))
            for number, member in enumerate(range(members.start, members.stop)):
                outputs = maps.rows(row, rows, slice(number, number + 1))
                self.writer.write(member, image, **{name: values[0].cpu() for name, values in outputs.items()})

    def close(self) -> None:
        """Say that the store is complete."""
        self.writer.close()

    def stop(self) -> None:
        """Leave the store to be gone on with."""
        self.writer.stop()
