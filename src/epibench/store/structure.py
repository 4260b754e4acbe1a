"""The prediction store, version 1: what a file or folder of predictions holds, checked before a pixel is read."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from epibench.errors import InputError
from epibench.store.formats import (
    ARRAYS,
    KINDS,
    OUTPUTS,
    VERSION,
    Contents,
    Kind,
    Source,
    hints,
    listed,
    read_contents,
    readable,
)

Label = str | int


@dataclass(frozen=True)
class PredictionStore:
    """Members' outputs on disk, with their target; reader.py reads the values.

    `shape` are the free axes: (image, height, width), or just (n,).
    """

    path: Path
    kind: Kind
    method: str | None
    domain: str | None
    unit: str | None
    class_names: tuple[str, ...] | None
    num_members: int
    num_classes: int | None
    shape: tuple[int, ...]
    group: tuple[Label, ...] | None
    member_id: tuple[Label, ...] | None
    image_id: tuple[Label, ...] | None
    arrays: Mapping[str, Source] = field(repr=False, compare=False)
    complete: bool = True  # false if its writer was stopped

    @property
    def has_images(self) -> bool:
        """Whether the first free axis counts images."""
        return len(self.shape) >= 3 or self.image_id is not None

    @property
    def num_pixels(self) -> int:
        """All pixels, valid or not."""
        return math.prod(self.shape)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The arrays that hold members' outputs."""
        return tuple(name for name in OUTPUTS if name in self.arrays)


def open_store(path: str | os.PathLike[str]) -> PredictionStore:
    """Open predictions that any framework has saved, and check their structure, not their values.

    A zarr group (folder or .zip; format 3 or 2), an .npz, or a folder with one .npz per member. Nothing in a
    store is ever executed: no pickle, no codec that is not known to be harmless, no path out of its folder.
    """
    path = Path(path)
    with readable(f"{path}"):
        return describe(path, read_contents(path))


def describe(path: Path, contents: Contents) -> PredictionStore:
    """Check names, dtypes and shapes, and say what the store holds."""
    attributes, arrays = contents.attributes, contents.arrays
    if attributes.get("version") != VERSION:
        version = f"is {attributes['version']!r}" if "version" in attributes else "is missing"
        raise InputError(f"{path}: the attribute 'version' {version}; this epibench reads version {VERSION}")
    outputs = _output_names(path, contents)
    kind: Kind = attributes["kind"]
    for name in (*outputs, "target", "valid"):
        if name in arrays:
            _check_dtype(path, kind, name, arrays[name].dtype)
    _check_shapes(path, kind, outputs, arrays)
    first, shape = arrays[outputs[0]], arrays["target"].shape
    num_classes = first.shape[-1] if kind == "categorical" else None
    class_names = attributes.get("class_names")
    if class_names is not None and len(class_names) != num_classes:
        raise InputError(f"{path}: {len(class_names)} class_names for {num_classes} classes; give one for each")
    method, domain, unit = (attributes.get(name) for name in ("method", "domain", "unit"))
    return PredictionStore(
        path=path,
        kind=kind,
        method=None if method is None else str(method),
        domain=None if domain is None else str(domain),
        unit=None if unit is None else str(unit),
        class_names=None if class_names is None else tuple(str(name) for name in class_names),
        num_members=first.shape[0],
        num_classes=num_classes,
        shape=shape,
        group=_labels(path, "group", arrays, first.shape[0]),
        member_id=_labels(path, "member_id", arrays, first.shape[0]),
        image_id=_labels(path, "image_id", arrays, shape[0]),
        arrays={name: arrays[name] for name in (*outputs, "target", "valid") if name in arrays},
        complete=attributes.get("complete") is not False,
    )


def _output_names(path: Path, contents: Contents) -> tuple[str, ...]:
    """The arrays of members' outputs; all that is needed must be there, under its name."""
    kind, names = contents.attributes.get("kind"), f"found {listed(contents.names)}"
    if kind not in KINDS:
        raise InputError(
            f"{path}: the attribute 'kind' is {kind!r} and must be 'gaussian' (arrays 'mean', 'variance') or "
            f"'categorical' ('probs' or 'logits'); {names}{hints(ARRAYS, contents.names)}"
        )
    outputs = tuple(name for name in KINDS[kind] if name in contents.arrays)
    if kind == "gaussian":
        missing = [name for name in (*KINDS[kind], "target") if name not in contents.arrays]
    else:
        if len(outputs) == 2:
            raise InputError(f"{path}: both 'probs' and 'logits'; keep one of them")
        missing = [*(["probs"] if not outputs else []), *(["target"] if "target" not in contents.arrays else [])]
    wanted = (*missing, *(["valid"] if "valid" not in contents.arrays else []))
    remedies = hints(wanted, contents.names)
    if missing or remedies:
        problem = f"no array {listed(missing)}" if missing else "an array under another name"
        raise InputError(f"{path}: {problem}; {names}{remedies}")
    return outputs


def _check_dtype(path: Path, kind: Kind, name: str, dtype: np.dtype[Any]) -> None:
    allowed, words = {
        "valid": ("?", "bool: array.astype(bool)"),
        "target": ("efdbhilqBHILQ", "numbers") if kind == "gaussian" else ("bhilqBHILQ", "integers, the class indices"),
    }.get(name, ("efd", "float16, float32 or float64"))
    if dtype.char not in allowed:
        raise InputError(f"{path}: {name!r} has dtype {dtype}; store it as {words}")


def _check_shapes(path: Path, kind: Kind, outputs: Sequence[str], arrays: Mapping[str, Source]) -> None:
    target = arrays["target"].shape
    for name in (*outputs, "target", "valid"):
        if name in arrays and math.prod(arrays[name].shape) == 0:
            raise InputError(f"{path}: {name!r} is empty, with shape {arrays[name].shape}; store at least one value")
    if not target:
        raise InputError(f"{path}: 'target' has no axis; store at least shape (n,)")
    classes = 1 if kind == "categorical" else 0
    for name in outputs:
        shape = arrays[name].shape
        if shape[1 : len(shape) - classes] != target or len(shape) != len(target) + 1 + classes:
            axes = "(member, …, class)" if classes else "(member, …)"
            raise InputError(
                f"{path}: {name!r} has shape {shape}, 'target' {target}; {name!r} must be {axes} around the target's "
                f"axes{_shape_hint(name, shape, target, classes)}"
            )
    if kind == "gaussian" and arrays["mean"].shape != arrays["variance"].shape:
        raise InputError(
            f"{path}: 'mean' has shape {arrays['mean'].shape}, 'variance' {arrays['variance'].shape}; they must agree"
        )
    if "valid" in arrays and arrays["valid"].shape != target:
        raise InputError(f"{path}: 'valid' has shape {arrays['valid'].shape}, 'target' {target}; they must agree")
    if classes and arrays[outputs[0]].shape[-1] < 2:
        raise InputError(f"{path}: {outputs[0]!r} has one class; store one value per class, also for two classes")


def _shape_hint(name: str, shape: tuple[int, ...], target: tuple[int, ...], classes: int) -> str:
    if shape[: len(shape) - classes] == target:
        return f": add a member axis, {name}[None]"
    for axis in range(1, len(shape) - 1):
        if classes and (*shape[1:axis], *shape[axis + 1 :]) == target:
            return f": move the class axis to the end, numpy.moveaxis({name}, {axis}, -1)"
    return ""


def _labels(path: Path, name: str, arrays: Mapping[str, Source], length: int) -> tuple[Label, ...] | None:
    """Group numbers or names: one string or integer for each of `length` members or images."""
    if name not in arrays:
        return None
    if arrays[name].shape != (length,):
        raise InputError(f"{path}: {name!r} has shape {arrays[name].shape}; it must be ({length},)")
    labels = arrays[name].read((slice(None),)).tolist()
    labels = [label.decode() if isinstance(label, bytes) else label for label in labels]
    if not all(isinstance(label, str | int) for label in labels):
        raise InputError(f"{path}: {name!r} has dtype {arrays[name].dtype}; store strings or integers")
    return tuple(labels)
