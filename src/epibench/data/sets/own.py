"""A user's data set, named as `package.module:name`."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from epibench.data.batch import Batch, Samples, SamplesView, first_samples
from epibench.data.classes import ClassTable, Pairs
from epibench.data.source import Folders, Source, Task
from epibench.errors import InputError
from epibench.imported import error_in_words, load_object, signature_error


class OwnSource(Source):
    """Samples of the object that `name` returns when it is called with the options.

    Each sample is a `Batch`. The object has `classes` for segmentation.

    Args:
        title: Name on pages.
        distribution: A word for the origin of the images: a domain with the training data's word is not shifted. By
            default it is the name.
    """

    checked: ClassVar[bool] = False

    kind: Literal["own"] = "own"
    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    title: str | None = None
    distribution: str | None = None
    num_images: Annotated[int, Field(ge=1)] | None = None
    mapping: Pairs | None = None

    @property
    def label(self) -> str:
        """The name on pages."""
        return self.title or self.distribution or self.name.rpartition(":")[2]

    @property
    def origin(self) -> object:
        """A value that data of one distribution share."""
        return "own", self.distribution or self.name

    @property
    def version(self) -> str:
        """A version that changes with the object's `version` and its classes."""
        return _version(self.name, json.dumps(self.options, sort_keys=True))

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        """Return the samples, after a check of the first one."""
        samples = make(self.name, self.options, key)
        name = f"{key}: {self.name}"
        if len(samples) < 1:
            raise InputError(f"{name} has no samples; check {key}.options")
        classes = getattr(samples, "classes", None)
        if task == "segmentation" and not isinstance(classes, ClassTable):
            raise InputError(f"{name} has no `classes`, an epibench.data.classes.ClassTable; segmentation needs them")
        checked = CheckedSamples(samples, name, task)
        checked[0]
        return first_samples(checked, self.num_images)


class CheckedSamples(SamplesView):
    """A user's samples, each checked. An error is one line that names the sample."""

    def __init__(self, samples: Samples, name: str, task: Task):
        super().__init__(samples)
        self.name, self.task = name, task

    def __getitem__(self, index: int) -> Batch:
        classes = getattr(self.samples, "classes", None)
        try:
            sample = self.samples[index]
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{self.name}: sample {index}: {error_in_words(error)}") from None
        problem = sample_error(sample, classes.num_classes if isinstance(classes, ClassTable) else None, self.task)
        if problem is not None:
            raise InputError(f"{self.name}: sample {index}: {problem} (see docs/data.md)")
        return sample


def make(name: str, options: dict[str, Any], key: str) -> Samples:
    """Make the data set; options that it does not accept are an InputError."""
    maker = load_object(name, "a data set")
    if problem := signature_error(maker, options):
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


def sample_error(sample: object, num_classes: int | None, task: Task) -> str | None:
    """Return the problem of a sample, or None."""
    import torch

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
            problem = f"{name} is {_shape(tensor.shape)} {tensor.dtype}, not {_shape(shape)} {wanted[name]}"
            return problem.replace("torch.", "")
    counted = sample.target[sample.valid]
    if task == "segmentation" and num_classes is not None and counted.numel():
        low, high = (int(extreme) for extreme in counted.aminmax())
        if low < 0 or high >= num_classes:
            return f"valid targets are {low} to {high}, but there are classes 0 to {num_classes - 1}"
    return None


def _shape(shape: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
