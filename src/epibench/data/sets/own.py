"""A data set of the user's own, made by what `package.module:name` names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from epibench.data.batch import Batch
from epibench.data.class_mapping import Pairs
from epibench.data.first_samples import first_samples
from epibench.data.labels import ClassTable
from epibench.data.loading import Samples
from epibench.errors import InputError
from epibench.imported import in_words, load_object, misfit
from epibench.recipes.experiment import Options


class OwnSource(Options):
    """What `name` makes when it is called with the options: samples that are `Batch`, with `classes` if they have any.

    title: what to call it on a page; distribution: a word for where the images come from: with that of the training
    data, a domain is not shifted. By default it is the name.
    """

    kind: Literal["own"] = "own"
    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    title: str | None = None
    distribution: str | None = None
    num_images: Annotated[int, Field(ge=1)] | None = None
    mapping: Pairs | None = None

    @property
    def label(self) -> str:
        """What to call it on a page."""
        return self.title or self.distribution or self.name.rpartition(":")[2]

    @property
    def origin(self) -> object:
        """What is the same for data of one distribution."""
        return "own", self.distribution or self.name

    @property
    def shift(self) -> float | None:
        """It is on no scale."""
        return None

    @property
    def version(self) -> str:
        """Changes with `version` of what makes it, and with its classes."""
        return _version(self.name, json.dumps(self.options, sort_keys=True))

    def open(self, task: str, places: object, key: str) -> Samples:
        """The samples, of which the first has been looked at."""
        samples = make(self.name, self.options, key)
        place = f"{key}: {self.name}"
        if len(samples) < 1:
            raise InputError(f"{place} has no samples; check {key}.options")
        classes = getattr(samples, "classes", None)
        if task == "segmentation" and not isinstance(classes, ClassTable):
            raise InputError(f"{place} has no `classes`, an epibench.data.labels.ClassTable; segmentation needs them")
        checked = CheckedSamples(samples, place, task)
        checked[0]
        return first_samples(checked, self.num_images)


@dataclass(frozen=True)
class CheckedSamples:
    """Samples of the user's, each looked at; what is wrong with one becomes one line that names it."""

    samples: Samples
    place: str
    task: str

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Batch:
        classes = getattr(self.samples, "classes", None)
        try:
            sample = self.samples[index]
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{self.place}: sample {index}: {in_words(error)}") from None
        problem = wrong(sample, classes.num_classes if isinstance(classes, ClassTable) else None, self.task)
        if problem is not None:
            raise InputError(f"{self.place}: sample {index}: {problem} (see docs/data.md)")
        return sample

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "samples":  # while it is unpickled, there are no samples yet
            raise AttributeError(name)
        return getattr(self.samples, name)


def make(name: str, options: dict[str, Any], key: str) -> Samples:
    """Call what makes the data set; options that it does not have are an error of the user's."""
    maker = load_object(name, "a data set")
    if problem := misfit(maker, options):
        raise InputError(f"{key}.options: {name} {problem}")
    samples = maker(**options)
    if not hasattr(samples, "__getitem__") or not hasattr(samples, "__len__"):
        raise InputError(
            f"{key}: {name} makes {type(samples).__name__}, no data set with a length and samples by number"
        )
    return samples  # type: ignore[no-any-return]


@lru_cache(64)
def _version(name: str, options: str) -> str:
    samples = make(name, json.loads(options), name)
    classes = getattr(samples, "classes", None)
    digest = f"-{classes.digest}" if isinstance(classes, ClassTable) else ""
    return f"{getattr(samples, 'version', 1)}{digest}"


def wrong(sample: object, num_classes: int | None, task: str) -> str | None:
    """What is wrong with a sample, if anything is."""
    if not isinstance(sample, Batch):
        return f"is {type(sample).__name__}, not an epibench.data.batch.Batch"
    inputs = {"image": (torch.uint8, 3)} | ({"sparse_depth": (torch.float32, 1)} if task == "depth" else {})
    size = tuple(sample.target.shape)
    tensors = {"target": (sample.target, size), "valid": (sample.valid, size)}
    wanted = {"target": torch.int64 if task == "segmentation" else torch.float32, "valid": torch.bool}
    if len(size) != 2:
        return f"target is {_shape(size)}, not (height, width)"
    for name, (dtype, channels) in inputs.items():
        if name not in sample.inputs:
            return f"inputs have no '{name}'"
        tensors[name], wanted[name] = (sample.inputs[name], (channels, *size)), dtype
    for name, (tensor, shape) in tensors.items():
        if tuple(tensor.shape) != shape or tensor.dtype != wanted[name]:
            found, asked = (
                f"{_shape(s)} {str(d)[6:]}" for s, d in ((tensor.shape, tensor.dtype), (shape, wanted[name]))
            )
            return f"{name} is {found}, not {asked}"
    counted = sample.target[sample.valid]
    if task == "segmentation" and num_classes is not None and counted.numel():
        low, high = (int(extreme) for extreme in counted.aminmax())
        if low < 0 or high >= num_classes:
            return f"valid targets are {low} to {high}, but there are classes 0 to {num_classes - 1}"
    return None


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
