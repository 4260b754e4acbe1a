"""Pictures of predictions, kept as numbers: an image, its targets, and the prediction of one draw."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from epibench.data.batch import Batch
from epibench.data.classes import IGNORE
from epibench.likelihoods import categorical, gaussian
from epibench.members.stored import StoredPredictions
from epibench.picture_files import PictureFile
from epibench.plans import centres
from epibench.results import Grid, Picture, PredictedPicture

MAX_WIDTH = 512
MOST_NUMBERS = 2**26  # of all members, or classes, of a picture of a store: more are not held in memory
AT_ONCE = 2**24  # numbers of members, or classes, that are averaged at once
COUNTS = 2**16 - 1
DEPTH_SCALE = 1 / 64  # metres per count: finer steps are invisible noise
ENTROPY_SCALE = 1 / 256  # nats per count
LEVELS = 1000  # levels of values with an unknown unit
TINY = 1e-30  # the scale of values that are all zero
Pair = tuple[Picture, PredictedPicture]


def thinned(values: Tensor, step: int) -> Tensor:
    """Return every `step`-th pixel of the last two axes, in CPU memory."""
    return values[..., ::step, ::step].cpu().clone()


def can_be_shown(sample: Batch) -> bool:
    """Return whether a sample has a picture.

    A picture is an image in colour or grey, of the size of its target.
    """
    image = sample.inputs.get("image")
    return (
        image is not None
        and image.dim() == 3
        and image.shape[0] in (1, 3)
        and image.shape[1:] == sample.target.shape
        and min(sample.target.shape) > 1
    )


def shown_image(batch: Batch, number: int) -> Tensor:
    """Return an image as 8-bit RGB. Other types are scaled from their smallest to their largest value."""
    image = batch.inputs["image"][number]
    if image.dtype != torch.uint8:
        low, high = image.aminmax()
        image = ((image - low) / (high - low).clamp(min=1e-12) * 255).to(torch.uint8)
    return image.expand(3, -1, -1)


def nearest(depth: Tensor, step: int) -> Tensor:
    """Return a smaller map of sparse depth: the nearest point of each square, if it has one."""
    if step == 1:
        return depth
    far = torch.where(depth > 0, -depth, -torch.inf)
    least = torch.nn.functional.max_pool2d(far[None, None], step, ceil_mode=True)[0, 0]
    return torch.where(torch.isfinite(least), -least, 0.0)


def photo(image: Tensor) -> PictureFile:
    """A photo as a JPEG; image: (channel, height, width) uint8."""
    return _encoded(Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())), "JPEG", quality=88)


def grid(values: Tensor, scale: float, offset: float = 0.0) -> Grid:
    """Return numbers as a 16-bit grey picture with the scale of a count. A scale that is too fine grows.

    `offset` is the value of zero counts.
    """
    scale = max(scale, (float(values.max()) - offset) / COUNTS)
    counts = ((values.double() - offset) / scale).round().clamp(0, COUNTS).numpy().astype(np.uint16)
    return Grid(scale=scale, png=_encoded(Image.fromarray(counts), "PNG"), offset=offset)


def value_grid(values: Tensor) -> Grid:
    """Return values of any sign and unit as a grey picture; NaN becomes count 0."""
    known = values[torch.isfinite(values)]
    low, high = (float(known.min()), float(known.max())) if known.numel() else (0.0, 0.0)
    scale = max((high - low) / LEVELS, TINY, abs(high) * 1e-6)
    return grid(torch.nan_to_num(values.double(), nan=low - scale), scale, low - scale)


def class_map(classes: Tensor) -> PictureFile:
    """Classes of pixels as an 8-bit grey picture."""
    return _encoded(Image.fromarray(classes.numpy().astype(np.uint8)), "PNG", optimize=True)


def _encoded(picture: Image.Image, layout: str, **options: Any) -> PictureFile:
    stream = io.BytesIO()
    picture.save(stream, layout, **options)
    return PictureFile.of(stream.getvalue())


class DepthPictures:
    """Keeps mean and variance of every member of a draw. Without `sparse_depth` as input, values have any unit."""

    def show(self, batch: Batch, number: int, step: int) -> dict[str, Tensor]:
        """Return inputs and targets: unknown depth is 0, other unknown values are NaN."""
        image = {"image": thinned(shown_image(batch, number), step)}
        if "sparse_depth" not in batch.inputs:
            return {**image, "target": thinned(torch.where(batch.valid[number], batch.target[number], torch.nan), step)}
        target = torch.where(batch.valid[number], batch.target[number], 0.0)
        return {
            **image,
            "sparse_depth": nearest(batch.inputs["sparse_depth"][number, 0], step).cpu().clone(),
            "target": nearest(target, step).cpu().clone(),
        }

    def begin(self, outputs: Mapping[str, Tensor], num_members: int) -> dict[str, Tensor]:
        """Return empty tensors for all members. `outputs`: of the first, (row, column)."""
        return {name: torch.zeros(num_members, *values.shape) for name, values in outputs.items()}

    def add(self, kept: Mapping[str, Tensor], outputs: Mapping[str, Tensor], number: int) -> None:
        """Keep a member's prediction, (row, column). `number`: index of the member in the draw."""
        for name, values in outputs.items():
            kept[name][number] = values.cpu().float()

    def picture(self, kept: Mapping[str, Tensor], num_members: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return pictures of the targets, and of mean and standard deviation of the draw."""
        size = kept["mean"].shape[1:]
        weights, length = torch.full((1, num_members), 1 / num_members), max(1, AT_ONCE // num_members)
        blocks = zip(*(torch.split(kept[name].flatten(1), length, 1) for name in ("mean", "variance")), strict=True)
        combined = (gaussian.combine({"mean": mean, "variance": variance}, weights) for mean, variance in blocks)
        moments = [torch.stack([each.mean, each.variance]) for each in combined]
        mean, variance = torch.cat(moments, -1).view(2, *size)
        std = variance.sqrt()
        if "sparse_depth" not in kept:
            target = kept["target"]
            scale = max(float(std.max()) / LEVELS, TINY)
            return {"target": value_grid(target)}, {"mean": value_grid(mean), "std": grid(std, scale)}
        known = {"sparse_depth": grid(kept["sparse_depth"], DEPTH_SCALE), "target": grid(kept["target"], DEPTH_SCALE)}
        return known, {"mean": grid(mean, DEPTH_SCALE), "std": grid(std, DEPTH_SCALE)}


class ClassPictures:
    """Keeps the sum of the members' probabilities: all logits of a pool would take gigabytes."""

    def show(self, batch: Batch, number: int, step: int) -> dict[str, Tensor]:
        """Return the image and the true classes; unknown classes are IGNORE."""
        target = torch.where(batch.valid[number], batch.target[number], IGNORE)
        return {"image": thinned(shown_image(batch, number), step), "target": thinned(target, step).to(torch.uint8)}

    def begin(self, outputs: Mapping[str, Tensor], num_members: int) -> dict[str, Tensor]:
        """Return an empty sum. `outputs`: of the first member, logits or probs (row, column, class)."""
        return {"sum": torch.zeros(next(iter(outputs.values())).shape)}

    def add(self, kept: Mapping[str, Tensor], outputs: Mapping[str, Tensor], number: int) -> None:
        """Add the probabilities of a member. `number`: index of the member in the draw."""
        probs = outputs["probs"].float() if "probs" in outputs else torch.softmax(outputs["logits"].float(), -1)
        kept["sum"].add_(probs.cpu())

    def picture(self, kept: Mapping[str, Tensor], num_members: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """What is known of the image, and the most probable class of the draw with its predictive entropy."""
        bands = torch.split(kept["sum"], max(1, AT_ONCE // kept["sum"][0].numel()))
        averages = (band.double() / num_members for band in bands)
        classes, entropies = zip(*((probs.argmax(-1), categorical.entropy(probs)) for probs in averages), strict=True)
        predicted, uncertainty = class_map(torch.cat(classes)), grid(torch.cat(entropies), ENTROPY_SCALE)
        return {"target": class_map(kept["target"])}, {"predicted": predicted, "uncertainty": uncertainty}


PICTURES: dict[str, DepthPictures | ClassPictures] = {"gaussian": DepthPictures(), "categorical": ClassPictures()}


def step_of(width: int) -> int:
    """Return the step between kept pixels of an image."""
    return -(-width // MAX_WIDTH)


def made_picture(kind: str, image: int, kept: Mapping[str, Tensor], num_members: int) -> Pair:
    """Return an image, and the prediction of a draw, from the kept numbers."""
    height, width = kept["image"].shape[-2:]
    known, predicted = PICTURES[kind].picture(kept, num_members)
    shown = Picture(image=image, height=height, width=width, photo=photo(kept["image"]), **known)
    return shown, PredictedPicture(image=image, M=num_members, **predicted)


def stored_pictures(predictions: StoredPredictions, members: Sequence[int], number: int) -> list[Pair]:
    """Return evenly spaced images of a store with photos, and the prediction of one draw for them."""
    store = predictions.store
    if "image" not in store.arrays or store.kind not in PICTURES or (store.num_classes or 0) > IGNORE:
        return []
    step, of_pixel = step_of(store.shape[2]), store.num_classes or len(members)
    if math.prod(-(-length // step) for length in store.shape[1:]) * of_pixel > MOST_NUMBERS:
        return []
    return [_stored_picture(predictions, image, members) for image in centres(store.shape[0], number)]


def _stored_picture(predictions: StoredPredictions, image: int, members: Sequence[int]) -> Pair:
    kind, step = predictions.store.kind, step_of(predictions.store.shape[2])
    target, valid = predictions.thinned_target(image, step)
    photo = torch.from_numpy(predictions.thinned("image", image, step)).movedim(-1, 0)
    batch, of_kind = Batch({"image": photo[None]}, target[None], valid[None]), PICTURES[kind]
    kept: dict[str, Tensor] = {}
    for position, member in enumerate(members):  # one after the other: all of them may not fit into memory
        thin = {name: predictions.thinned(name, image, step, member) for name in predictions.store.output_names}
        numbers = {name: torch.from_numpy(values) for name, values in thin.items()}
        outputs = {name: torch.nan_to_num(values, posinf=0.0, neginf=0.0) for name, values in numbers.items()}
        if not kept:
            kept = of_kind.show(batch, 0, 1) | of_kind.begin(outputs, len(members))
        of_kind.add(kept, outputs, position)
    return made_picture(kind, image, kept, len(members))
