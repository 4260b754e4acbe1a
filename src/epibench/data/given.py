"""The user's data sets and loaders in Python, converted to batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
from torch.utils.data import default_collate as torch_collate

from epibench.data.batch import Batch, Samples
from epibench.data.classes import ClassTable, table_of_names
from epibench.errors import InputError
from epibench.imported import error_in_words

TARGETS = ("target", "label", "labels", "depth", "y")
VALID = ("valid", "mask")
IGNORE_INDEX = 255


def as_batch(item: Any, name: str, ignore_index: int = IGNORE_INDEX, batched: bool = False) -> Batch:
    """Convert an item to a sample, or to several: a Batch, a tuple, or a dict.

    A tuple is (input, target[, valid]). A dict has a target and inputs by name. A target is one number or class,
    several numbers or classes, or a map (height, width). Without `valid`, all pixels count except classes that are
    `ignore_index` or negative, and numbers that are not finite.
    """
    if isinstance(item, Batch):
        return item
    inputs, target, valid = _parts(item, name)
    target = _target(target, name, batched)
    if valid is None:
        valid = torch.isfinite(target) if target.is_floating_point() else (target != ignore_index) & (target >= 0)
    else:
        valid = _as_rows(_tensor(valid, name, "valid"), batched).bool()
        if valid.shape != target.shape:
            raise InputError(f"{name}: valid is {tuple(valid.shape)}, and the target {tuple(target.shape)}")
    return Batch(inputs, target, valid)


def _parts(item: Any, name: str) -> tuple[dict[str, Tensor], Any, Any]:
    if isinstance(item, Mapping):
        target = next((key for key in TARGETS if key in item), None)
        if target is None:
            raise InputError(f"{name}: has {', '.join(map(str, item))}, and no target; call it one of {TARGETS}")
        valid = next((key for key in VALID if key in item), None)
        rest = [key for key in item if key not in (target, valid)]
        inputs = {("image" if key == "pixel_values" else str(key)): item[key] for key in rest}
        known = {key: _tensor(value, name, key) for key, value in inputs.items() if _is_array(value)}
        if not known:
            raise InputError(f"{name}: has no input beside its target")
        return known, item[target], None if valid is None else item[valid]
    if isinstance(item, Sequence) and len(item) in (2, 3):
        given = item[0] if isinstance(item[0], Mapping) else {"image": item[0]}
        inputs = {str(key): _tensor(value, name, str(key)) for key, value in given.items()}
        return inputs, item[1], item[2] if len(item) == 3 else None
    raise InputError(
        f"{name}: yields {type(item).__name__}; give a Batch, (input, target), (input, target, valid), or a dict with "
        f"one of {', '.join(TARGETS)}"
    )


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray | float | int)


def _tensor(value: Any, name: str, key: str) -> Tensor:
    try:
        tensor = torch.as_tensor(np.asarray(value) if not isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(f"{name}: '{key}' is {type(value).__name__}, no tensor or array") from None
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _target(value: Any, name: str, batched: bool) -> Tensor:
    target = _as_rows(_tensor(value, name, "target"), batched)
    if target.dim() != 2 + batched:
        axes = "(number,) or (height, width)"
        raise InputError(f"{name}: the target is {tuple(target.shape)}; give a number, {axes}")
    return target.float() if target.is_floating_point() else target.long()


def _as_rows(values: Tensor, batched: bool) -> Tensor:
    """Return values with rows and columns: one number is a map of one pixel, several are one row."""
    leading = values.shape[:1] if batched else ()
    inner = values.shape[len(leading) :]
    if len(inner) == 3 and inner[0] == 1:
        return values.reshape(*leading, *inner[1:])
    return values if len(inner) >= 2 else values.reshape(*leading, 1, -1)


class GivenSamples:
    """A user's data set as samples by index. `classes` are the classes of its targets."""

    def __init__(self, dataset: Any, name: str, ignore_index: int = IGNORE_INDEX):
        if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
            raise InputError(f"{name}: {type(dataset).__name__} has no length or no samples by number")
        if not len(dataset):
            raise InputError(f"{name}: has no samples")
        self.dataset, self.name, self.ignore_index = dataset, name, ignore_index
        self.classes: ClassTable | None = None
        self.num_classes: int | None = None  # targets must lie below it, once it is known
        self.framed = False  # whether targets must have the frame of their images, once it is known

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Batch:
        name = f"{self.name}: sample {index}"
        try:
            item = self.dataset[index]
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{name}: {error_in_words(error)}") from None
        return self._checked(as_batch(item, name, self.ignore_index), name)

    def _checked(self, batch: Batch, name: str) -> Batch:
        """Raise an InputError for targets that are no class, or have another frame than the image."""
        if self.framed:
            check_frame(batch, name)
        counted = batch.target[batch.valid]
        if self.num_classes is not None and counted.numel() and int(counted.max()) >= self.num_classes:
            raise InputError(
                f"{name}: a target is {int(counted.max())}, and there are classes 0 to {self.num_classes - 1}; "
                f"give ignore_index={int(counted.max())} if that means no class"
            )
        return batch

    def frame_id(self, index: int) -> str:
        """Return the name of a sample."""
        return str(index)


def frames_of(batch: Batch) -> tuple[list[tuple[int, int]], tuple[int, int]]:
    """Return possible sizes of the image (channels first or last), and the size of the target.

    Without an image the first list is empty.
    """
    rows, columns = batch.target.shape[-2:]
    axes = batch.target.dim() + 1
    names = [name for name in ("image", *batch.inputs) if name in batch.inputs and batch.inputs[name].dim() == axes]
    if not names or min(rows, columns) == 1:
        return [], (rows, columns)
    first, second, third = batch.inputs[names[0]].shape[-3:]
    return [(second, third), (first, second)], (rows, columns)


def of_one_frame(image: tuple[int, int], target: tuple[int, int]) -> bool:
    """Return whether one size is the other one scaled as a whole, up to rounding to pixels."""
    if image[0] == target[0] or image[1] == target[1]:
        return image == target
    small, large = sorted((image, target), key=lambda size: size[0] * size[1])
    (down, right), (height, width) = small, large
    return max((down - 1) / height, (right - 1) / width) < min((down + 1) / height, (right + 1) / width)


def fits_frame(batch: Batch) -> bool:
    """Return whether the target can have the frame of the image."""
    images, target = frames_of(batch)
    return not images or any(of_one_frame(image, target) for image in images)


def check_frame(batch: Batch, name: str) -> None:
    """Raise an InputError if predictions for the image must be distorted to fit the target."""
    if fits_frame(batch):
        return
    images, (rows, columns) = frames_of(batch)
    height, width = images[0]
    if (rows, columns) == (width, height):
        remedy = "are rows and columns swapped? Give target.T"
    else:
        remedy = "cut and turn both alike; only as a whole can one be smaller than the other"
    raise InputError(f"{name}: the target is {rows}×{columns}, the image {height}×{width}: {remedy}")


class LoadedBatches(GivenSamples):
    """A user's DataLoader: its batches in their order."""

    def __init__(self, loader: DataLoader[Any], name: str, ignore_index: int = IGNORE_INDEX):
        if not hasattr(loader.dataset, "__len__"):
            raise InputError(f"{name}: its data set has no length; give one that has, so that progress can be shown")
        if not _in_order(loader):
            raise InputError(f"{name}: its samples do not come in their order; give a DataLoader with shuffle=False")
        super().__init__(loader.dataset, name, ignore_index)
        self.loader = loader

    def batches(self, first: int) -> Iterator[Batch]:
        """Yield batches from a sample on."""
        done = 0
        for item in self.loader:
            name = f"{self.name}: batch at sample {done}"
            batch = self._checked(as_batch(item, name, self.ignore_index, batched=True), name)
            end = done + len(batch.target)
            if end > first:
                skipped = max(0, first - done)
                yield batch.each(lambda tensor, skipped=skipped: tensor[skipped:])  # type: ignore[misc]
            done = end

    def __getitem__(self, index: int) -> Batch:
        """Return a sample of the loader. All samples before it are loaded, too."""
        batch = next(self.batches(index))
        return batch.each(lambda tensor: tensor[0])


def _in_order(loader: DataLoader[Any]) -> bool:
    """Return whether a loader yields all samples in their order."""
    gathers = loader.batch_sampler is None or type(loader.batch_sampler) is BatchSampler
    return gathers and isinstance(loader.sampler, SequentialSampler) and not loader.drop_last


def open_given(data: Any, name: str, ignore_index: int = IGNORE_INDEX) -> Samples:
    """Open a user's data set or loader, or inputs and targets as two arrays.

    A loader that only gathers samples is replaced by its data set.
    """
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(each, Tensor | np.ndarray) for each in data):
        if len(data[0]) != len(data[1]):
            raise InputError(f"{name}: has {len(data[0])} inputs and {len(data[1])} targets")
        return GivenSamples(list(zip(*data, strict=True)), name, ignore_index)
    if isinstance(data, DataLoader):
        if data.collate_fn is torch_collate and _in_order(data):
            return GivenSamples(data.dataset, name, ignore_index)
        return LoadedBatches(data, name, ignore_index)
    return GivenSamples(data, name, ignore_index)


def numbered_classes(number: int) -> ClassTable:
    """Return classes without names, numbered from 0."""
    return table_of_names(tuple(f"class {each}" for each in range(number)), "numbered")
