"""Writing prediction stores: whole arrays at once, or from a loop, member by member and image by image."""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import zarr
from numpy.typing import ArrayLike
from zarr.abc.store import Store
from zarr.codecs import BloscCodec, Crc32cCodec
from zarr.storage import MemoryStore

from epibench import files
from epibench.errors import InputError
from epibench.results import Kind
from epibench.store.formats import (
    KINDS,
    METADATA,
    MOST_MEMBERS,
    OF_CLASSES,
    OUTPUTS,
    SHARED,
    UNCERTAIN,
    VERSION,
    WRITER,
    Array,
    Contents,
    Label,
    describe,
    memory_source,
)

# All members' chunks of the same pixels are read together: this keeps them to about half of the reader's block.
TOGETHER_BYTES = 64 * 2**20
CHUNK_BYTES = (2**18, 2**22)
TARGET_CHUNK_BYTES = 2**20
# The one string type of zarr 3 with a specification; others warn, and may become unreadable.
STRING = np.dtypes.StringDType()
INTEGER = np.dtype(np.int32)
Values = ArrayLike | torch.Tensor
# Each writer at work has a file in the folder, .writer.….unfinished, that it touches at each write: the last one to
# finish calls the store complete. A writer of another machine that is silent for so long is taken to be dead.
AT_WORK = "writer"
SILENT_SECONDS = 15 * 60
STOPPED = f".{AT_WORK}.stopped{files.UNFINISHED}"


def write_store(
    path: str | os.PathLike[str],
    *,
    kind: Kind,
    target: Values,
    mean: Values | None = None,
    variance: Values | None = None,
    probs: Values | None = None,
    logits: Values | None = None,
    predicted: Values | None = None,
    uncertainty: Values | None = None,
    confidence: Values | None = None,
    valid: Values | None = None,
    image: Values | None = None,
    group: Sequence[Label] | None = None,
    member_id: Sequence[Label] | None = None,
    image_id: Sequence[Label] | None = None,
    method: str | None = None,
    domain: str | None = None,
    unit: str | None = None,
    quantity: str | None = None,
    class_names: Sequence[str] | None = None,
    uncertainty_names: Sequence[str] | None = None,
    align_corners: bool | None = None,
    overwrite: bool = False,
) -> None:
    """Write whole arrays as a store: complete or not at all.

    mean, variance: (member, …); probs, logits: (member, …, class); target, valid: (…), as (image, height, width), or
    (n,); for kind "ranking": mean or predicted (classes), and uncertainty or confidence, (member, …), or
    (member, …, map) with uncertainty_names; image: photos for the report, uint8 (image, height, width, 3);
    align_corners: logits are on a coarse grid, (member, image, coarse row, coarse column, class), whose outermost
    points lie on the outermost pixels, or do not
    quantity: "depth" where depths in metres are predicted, which have metrics of their own
    """
    path = _checked_path(path, overwrite=overwrite, resume=False)
    given = {"mean": mean, "variance": variance, "probs": probs, "logits": logits, "predicted": predicted}
    given |= {"uncertainty": uncertainty, "confidence": confidence, "target": target, "valid": valid, "image": image}
    arrays = {name: _to_numpy(values) for name, values in given.items() if values is not None}
    labels = {"group": group, "member_id": member_id, "image_id": image_id}
    arrays |= {name: _label_array(values) for name, values in labels.items() if values is not None}
    names = {"class_names": class_names, "uncertainty_names": uncertainty_names}
    attributes = _attributes(kind, method, domain, unit, quantity, names)
    attributes |= {} if align_corners is None else {"align_corners": align_corners}
    sources = {name: memory_source(values) for name, values in arrays.items()}
    store = describe(path, Contents(sources, attributes, tuple(sources)))
    if unknown := [name for name in OUTPUTS if name in arrays and name not in store.output_names]:
        raise InputError(f"{path}: {unknown[0]!r} in a {kind} store; leave it out")
    files.remove_leftovers(path.parent, deep=False)
    with files.naming(path), _new_folder(path) as work:
        _create(work, lambda store: zarr.create_group(store, attributes=attributes, zarr_format=3))
        for name, values in arrays.items():
            chunks, free = values.shape, len(store.shape)
            if name in store.arrays:
                chunks = _chunks(name, values.shape, values.dtype, free, store.num_members, images=free >= 3)
            _create_array(work, name, values.shape, chunks, values.dtype)[...] = values
        _move(work, path)


class StoreWriter:
    """Write a store from a loop, member by member and image by image, in any order.

    Images smaller than `size` are padded, with `valid` false there. Every target and every output of every member must
    be written: the reader refuses a store in which one is missing.

    Several processes may write different members or images at once: give each `size` and `resume=True`, which also
    creates a store that does not exist. A chunk holds one member and image.

    With `align_corners`, logits are written on the coarse grid of the network, and interpolated when they are read.
    True means that the outermost points of the grid lie on the outermost pixels, as in torch's `interpolate`.

    size: the axes of one image, (height, width), by default those of the first one; coarse_size: the largest grid
    group, member_id: one label per member
    overwrite: replace a store at `path`, at the first write; resume: go on writing into it
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        kind: Kind,
        num_members: int,
        num_images: int,
        method: str | None = None,
        domain: str | None = None,
        unit: str | None = None,
        quantity: str | None = None,
        class_names: Sequence[str] | None = None,
        uncertainty_names: Sequence[str] | None = None,
        align_corners: bool | None = None,
        coarse_size: Sequence[int] | None = None,
        num_classes: int | None = None,
        size: Sequence[int] | None = None,
        group: Sequence[Label] | None = None,
        member_id: Sequence[Label] | None = None,
        dtype: str = "float32",
        overwrite: bool = False,
        resume: bool = False,
    ) -> None:
        if dtype not in ("float16", "float32", "float64"):
            raise InputError(f"{path}: dtype {dtype!r}; outputs are stored as float16, float32 or float64")
        if kind not in KINDS:
            raise InputError(f"{path}: kind {kind!r}; give 'gaussian', 'categorical' or 'ranking'")
        if not 1 <= num_members <= MOST_MEMBERS or num_images < 1:
            raise InputError(
                f"{path}: num_members={num_members}, num_images={num_images}; give 1 to {MOST_MEMBERS:,} members, and "
                "at least one image"
            )
        self.path = _checked_path(path, overwrite=overwrite, resume=resume)
        self.kind = kind
        self.dtype = np.dtype(dtype)
        self.size = None if size is None else tuple(size)
        self._num_members, self._num_images = num_members, num_images
        self._num_classes = len(class_names) if class_names is not None else num_classes
        self._labels = {name: v for name, v in (("group", group), ("member_id", member_id)) if v is not None}
        for name, labels in self._labels.items():
            if len(labels) != num_members:
                raise InputError(f"{path}: {len(labels)} values of {name} for num_members={num_members}; give one each")
        names = {"class_names": class_names, "uncertainty_names": uncertainty_names}
        self._attributes = _attributes(kind, method, domain, unit, quantity, names)
        self._maps = () if uncertainty_names is None else (len(uncertainty_names),)
        if align_corners is not None:
            if kind != "categorical":
                raise InputError(f"{path}: align_corners is for logits of a categorical store; leave it out")
            self._attributes["align_corners"] = align_corners
        self._coarse_size = None if coarse_size is None else tuple(coarse_size)
        self._overwrite, self._resume = overwrite, resume
        self._image_shapes: dict[int, tuple[int, ...]] = {}
        self._mark: Path | None = None  # there while this writer is at work
        self._closed = False
        self._arrays: dict[str, zarr.Array[Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close() if error is None else self.stop()

    def stop(self) -> None:
        """Leave the store unfinished, for `resume`: `complete` stays false, even if other writers finish."""
        if self._mark is not None and not self._closed:
            self._mark.unlink(missing_ok=True)
            (self.path / STOPPED).touch()

    def write_target(
        self,
        number: int,
        target: Values,
        valid: Values | None = None,
        image_id: Label | None = None,
        image: Values | None = None,
    ) -> None:
        """Write the target of one image; `valid` is false where it does not count.

        image: its photo, for the report, uint8 (height, width, 3)
        """
        self._check_open()
        photo = None if image is None else self._checked_photo(number, _to_numpy(image), np.shape(_to_numpy(target)))
        values = _to_numpy(target)
        used = np.ones(values.shape, dtype=bool) if valid is None else _to_numpy(valid)
        if used.dtype != bool or used.shape != values.shape:
            raise InputError(
                f"{self.path}: 'valid' of image {number} is {used.dtype} {used.shape}; give bool {values.shape}"
            )
        categorical = self.kind == "categorical" or (self.kind == "ranking" and "class_names" in self._attributes)
        if values.dtype.kind not in ("iu" if categorical else "iuf"):
            needed = "integers (classes)" if categorical else "numbers"
            raise InputError(f"{self.path}: 'target' of image {number} is {values.dtype}; give {needed}")
        if not categorical and values.ndim == 1 and values.size > 1:
            raise InputError(f"{self.path}: 'target' of image {number} has {values.size} numbers; give one, or a map")
        dtype = np.dtype("int32") if categorical else np.promote_types(self.dtype, np.float32)
        values = _cast(self.path, "target", values, dtype)
        size = self._take_image(number, "target", values.shape)
        with files.naming(self.path):
            if self._coarse:
                self._array("image_size", (2,), INTEGER)[number] = np.array(values.shape, INTEGER)
            self._array("target", size, dtype)[number] = _padded(values, size, _fill(dtype))
            self._array("valid", size, used.dtype)[number] = _padded(used, size, False)
            if photo is not None:
                self._array("image", (*size, 3), photo.dtype)[number] = _padded(photo, (*size, 3), 0)
            if image_id is not None:
                self._array("image_id", (), STRING)[number] = str(image_id)

    def _checked_photo(self, number: int, photo: Array, target: tuple[int, ...]) -> Array:
        if photo.dtype != np.uint8 or photo.shape != (*target, 3) or len(target) != 2:
            hint = "; put channels last, numpy.moveaxis(image, 0, -1)" if photo.shape == (3, *target) else ""
            raise InputError(
                f"{self.path}: the photo of image {number} is {photo.dtype} {photo.shape}; give uint8 "
                f"(height, width, 3) for a target (height, width), which is {target}{hint}"
            )
        return photo

    def write(
        self,
        member: int,
        image: int,
        *,
        mean: Values | None = None,
        variance: Values | None = None,
        probs: Values | None = None,
        logits: Values | None = None,
        predicted: Values | None = None,
        uncertainty: Values | None = None,
        confidence: Values | None = None,
    ) -> None:
        """Write what one member puts out for one image: mean and variance (…), or probs or logits (…, class).

        Of kind "ranking": mean or predicted (…), and uncertainty or confidence, (…) or (…, map).
        """
        self._check_open()
        given = {"mean": mean, "variance": variance, "probs": probs, "logits": logits, "predicted": predicted}
        given |= {"uncertainty": uncertainty, "confidence": confidence}
        outputs = {name: _to_numpy(values) for name, values in given.items() if values is not None}
        if tuple(outputs) not in itertools.product(*KINDS[self.kind]):
            parts = [f"either {' or '.join(names)}" if len(names) > 1 else names[0] for names in KINDS[self.kind]]
            got = ", ".join(outputs) or "neither"
            raise InputError(f"{self.path}: a {self.kind} store needs {' and '.join(parts)}; got {got}")
        if self._coarse and "logits" not in outputs:
            raise InputError(f"{self.path}: with align_corners, a store holds logits; got {', '.join(outputs)}")
        if "predicted" in outputs and "class_names" not in self._attributes:
            raise InputError(f"{self.path}: 'predicted' needs class_names; give StoreWriter one for each class")
        name = next(iter(outputs))
        shape = outputs[name].shape
        for other, values in list(outputs.items())[1:]:
            axes = (*shape, *(self._maps if other in UNCERTAIN else ()))
            if values.shape != axes:
                raise InputError(
                    f"{self.path}: {name!r} of image {image} has shape {shape}, {other!r} {values.shape}; they must "
                    f"agree{' but for the axis of maps, which comes last' if self._maps else ''}"
                )
        _check_index(self.path, "member", member, self._num_members)
        outputs = {name: _cast(self.path, name, values, self._dtype_of(name)) for name, values in outputs.items()}
        if self._resume:
            self._open()  # which knows the number of classes
        classes = shape[-1:] if name in OF_CLASSES else ()
        num_classes = classes[0] if classes else 0
        if self.kind == "categorical" and num_classes != (expected := self._num_classes or max(2, num_classes)):
            raise InputError(
                f"{self.path}: {name!r} has {num_classes} classes, expected {expected}; the class axis comes last"
            )
        take = self._take_grid if self._coarse else self._take_image
        size = take(image, name, shape[: len(shape) - len(classes)])
        self._num_classes = num_classes or self._num_classes
        with files.naming(self.path):
            for name, values in outputs.items():
                inner, dtype = (*size, *(self._maps if name in UNCERTAIN else classes)), self._dtype_of(name)
                self._array(name, inner, dtype)[member, image] = _padded(values, inner, _fill(dtype))
            if self._coarse:
                self._array("grid_size", (2,), INTEGER)[image] = np.array(shape[:2], INTEGER)

    @property
    def _coarse(self) -> bool:
        return "align_corners" in self._attributes

    def _take_grid(self, image: int, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Check that a coarse grid fits into the largest one, by default the first."""
        _check_index(self.path, "image", image, self._num_images)
        if self._resume:
            self._open()
        largest = self._coarse_size or shape
        if len(shape) != 2 or 0 in shape or any(length > limit for length, limit in zip(shape, largest, strict=True)):
            raise InputError(
                f"{self.path}: {name!r} of image {image} is on a grid {shape}, more than {largest}; give (coarse row, "
                "coarse column, class), and StoreWriter the largest grid as coarse_size"
            )
        self._coarse_size = largest
        return largest

    def _dtype_of(self, name: str) -> np.dtype[Any]:
        return np.dtype("int32") if name == "predicted" else self.dtype

    def close(self) -> None:
        """Say that the store is complete; nothing can be written afterwards."""
        if self._mark is None:
            raise InputError(f"{self.path}: nothing was written; call write_target and write before closing")
        if self._closed:
            return
        self._closed = True
        self._mark.unlink(missing_ok=True)
        if not _unfinished_parts(self.path):
            self._write_missing_extras()
            _set_complete(self.path, True)
            if _unfinished_parts(self.path):  # of a writer that began meanwhile
                _set_complete(self.path, False)

    def _write_missing_extras(self) -> None:
        """Write photos and names of images that were given none, where others were: every chunk is there."""
        for name in ("image", "image_id"):
            if (self.path / name / METADATA).exists():
                array = _open_array(self.path, name)
                for number in range(self._num_images):
                    if not (self.path / name / "c" / "/".join([str(number), *"0" * (array.ndim - 1)])).exists():
                        array[number] = _fill(np.dtype(array.dtype))

    def _check_open(self) -> None:
        if self._closed:
            raise InputError(f"{self.path}: the writer is closed; write inside its with block, or resume=True")

    def _take_image(self, image: int, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Check that the axes of an image fit into the size, by default the axes of the first image."""
        _check_index(self.path, "image", image, self._num_images)
        if self._resume:
            self._open()
        size = self.size or shape
        where = f"{self.path}: {name!r} of image {image} has axes {shape}"
        hint = "; the class axis comes last" if name in OF_CLASSES else ""
        if len(shape) != len(size) or math.prod(shape) == 0 or not shape:
            raise InputError(f"{where}, images {size or 'at least one'}; give the same axes for all{hint}")
        if any(length > limit for length, limit in zip(shape, size, strict=True)):
            raise InputError(f"{where}, more than size {size}; give StoreWriter the size of the largest image{hint}")
        if (before := self._image_shapes.get(image, shape)) != shape:
            raise InputError(f"{where}, but {before} was written for it; outputs and target must agree{hint}")
        self.size = size
        self._image_shapes[image] = shape
        return size

    def _open(self) -> None:
        """Create the store, or open it for more; called once the first values to write are known to be right."""
        if self._mark is not None:
            return
        if self._overwrite and self.path.exists() and not _is_empty_folder(self.path):
            _check_is_store(self.path)
            shutil.rmtree(self.path)
        attributes = {**self._attributes, "complete": False}
        if not _create(self.path, lambda store: zarr.create_group(store, attributes=attributes, zarr_format=3)):
            if not self._resume:
                raise InputError(f"{self.path}: another process has just created it; give resume=True to go on with it")
            self._take_over()
            for mark in _marks(self.path):
                if mark.name == STOPPED or files.is_abandoned(mark, SILENT_SECONDS):
                    mark.unlink(missing_ok=True)  # the reader finds missing parts
        self._mark = files.unfinished(self.path / AT_WORK)
        self._mark.touch()
        _set_complete(self.path, False)  # until `close`
        for name, labels in self._labels.items():
            values = _label_array(labels)
            _create_array(self.path, name, values.shape, values.shape, values.dtype)[...] = values

    def _take_over(self) -> None:
        """Check that the existing store fits the arguments, and take over its sizes."""
        known = (*OUTPUTS, *SHARED)
        # Looked for by name: zarr warns of folders of arrays that another process is about to create.
        self._arrays = {name: _open_array(self.path, name) for name in known if (self.path / name / METADATA).exists()}
        attributes = zarr.open_group(self.path, mode="r", use_consolidated=False).attrs.asdict()
        stored: dict[str, Any] = {**dict.fromkeys(self._attributes), **attributes}
        for name, array in self._arrays.items():
            if name in OUTPUTS:
                *inner, last = array.shape[2:]
                stored |= {"num_members": array.shape[0], "num_images": array.shape[1]}
                stored |= {} if name == "predicted" else {"dtype": array.dtype}
                if name in OF_CLASSES:
                    stored |= {"num_classes": last, "coarse_size" if self._coarse else "size": tuple(inner)}
                elif name not in UNCERTAIN:
                    stored["size"] = array.shape[2:]
            elif name == "target":
                stored |= {"num_images": array.shape[0], "size": array.shape[1:]}
        sizes = {"num_members": self._num_members, "num_images": self._num_images, "num_classes": self._num_classes}
        asked = {**self._attributes, **sizes, "size": self.size, "coarse_size": self._coarse_size, "dtype": self.dtype}
        for name, value in asked.items():
            if value is not None and stored.get(name, value) != value:
                raise InputError(
                    f"{self.path}: {name} is {stored[name]!r} in the store, {value!r} here; resume with the same, "
                    "or overwrite"
                )
        self.size = stored.get("size", self.size)
        self._coarse_size = stored.get("coarse_size", self._coarse_size)
        self._num_classes = stored.get("num_classes", self._num_classes)

    def _array(self, name: str, inner: tuple[int, ...], dtype: np.dtype[Any]) -> zarr.Array[Any]:
        """The array under this name, created if it is not there."""
        self._open()
        if self._mark is not None:
            self._mark.touch()
        if name not in self._arrays:
            shape = (*([self._num_members] if name in OUTPUTS else []), self._num_images, *inner)
            num_free = 3 if self._coarse and name in OUTPUTS else 1 + (0 if self.size is None else len(self.size))
            pixels = name not in ("image_id", "image_size", "grid_size")
            chunks = _chunks(name, shape, dtype, num_free, self._num_members, images=True) if pixels else (1, *inner)
            self._arrays[name] = _create_array(self.path, name, shape, chunks, dtype)
        return self._arrays[name]


def _checked_path(path: str | os.PathLike[str], *, overwrite: bool, resume: bool) -> Path:
    """Refuse an existing path, unless it is a store and overwrite or resume is given."""
    path = Path(path)
    if path.suffix in (".npz", ".zip"):
        raise InputError(f"{path}: stores are written as zarr; give a folder such as preds.zarr")
    if overwrite and resume:
        raise InputError(f"{path}: both overwrite and resume; give one of them")
    if path.exists() and not _is_empty_folder(path):
        if not (overwrite or resume):
            raise InputError(f"{path}: exists already; give overwrite=True to replace it or resume=True to go on")
        _check_is_store(path)
    return path


def _is_empty_folder(path: Path) -> bool:
    """Whether nothing is in a folder but files that another process is about to put in place."""
    return path.is_dir() and all(entry.name.endswith(files.UNFINISHED) for entry in path.iterdir())


def _check_is_store(path: Path) -> None:
    document = files.read_json(path / METADATA) if path.is_dir() else None
    attributes = (document or {}).get("attributes")
    if not (isinstance(attributes, dict) and {"version", "kind"} <= set(attributes)):
        raise InputError(f"{path}: is not a prediction store, and not replaced; give another path")


@contextmanager
def _new_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path`, to be renamed once it is full; what is left of it is removed."""
    beside = files.unfinished(path)
    beside.mkdir(parents=True)
    try:
        yield beside
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move(folder: Path, path: Path) -> None:
    """Put a finished folder in its place; an old store there goes last."""
    aside = files.unfinished(path)
    if path.exists():
        os.replace(path, aside)
    os.replace(folder, path)
    if aside.exists():
        shutil.rmtree(aside)


def _marks(folder: Path) -> list[Path]:
    """The files that say that writers are at work, or were stopped."""
    return list(folder.glob(f".{AT_WORK}.*{files.UNFINISHED}"))


def _unfinished_parts(folder: Path) -> bool:
    """Whether other writers are at work, or have died here while this one was at work."""
    return any(
        files.is_of_this_machine(mark) or not files.is_abandoned(mark, SILENT_SECONDS) for mark in _marks(folder)
    )


def _set_complete(folder: Path, complete: bool) -> None:
    """Change this attribute alone, of the metadata as it is now."""
    content = json.loads((folder / METADATA).read_bytes())
    content.setdefault("attributes", {})["complete"] = complete
    files.write_bytes(folder / METADATA, json.dumps(content, indent=2).encode())


def _create(path: Path, make: Callable[[Store], object]) -> bool:
    """Write the metadata that `make` creates; false if another process was faster, whose metadata are then used.

    zarr looks whether a file is there, and writes it afterwards: what another process writes in between is lost.
    """
    documents: dict[str, Any] = {}
    make(MemoryStore(documents))
    return files.create(path / METADATA, documents[METADATA].to_bytes())


def _open_array(folder: Path, name: str) -> zarr.Array[Any]:
    # Whether a chunk is empty is not looked for: that takes longer than writing it.
    with zarr.config.set({"array.write_empty_chunks": True}):
        return zarr.open_array(folder / name, mode="r+")


def _attributes(
    kind: Kind,
    method: str | None,
    domain: str | None,
    unit: str | None,
    quantity: str | None,
    names: Mapping[str, Sequence[str] | None],
) -> dict[str, Any]:
    given: dict[str, Any] = {"version": VERSION, "writer": WRITER, "kind": kind, "method": method, "domain": domain}
    given |= {"unit": unit, "quantity": quantity}
    given |= {name: None if values is None else list(values) for name, values in names.items()}
    return {name: value for name, value in given.items() if value is not None}


def _check_index(path: Path, word: str, index: int, limit: int) -> None:
    if not 0 <= index < limit:
        raise InputError(f"{path}: {word} {index}; give 0 to {limit - 1} (num_{word}s={limit})")


def _to_numpy(values: Values) -> Array:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        return (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InputError(f"not an array of numbers ({error}); give one shape for all images") from error


def _label_array(labels: Sequence[Label]) -> Array:
    integers = all(isinstance(label, int | np.integer) for label in labels)
    return np.array(labels, dtype=np.int64) if integers else np.array([str(label) for label in labels], dtype=STRING)


def _cast(path: Path, name: str, values: Array, dtype: np.dtype[Any]) -> Array:
    """Values in the dtype of their array, if they fit into it."""
    if values.dtype.kind not in "iuf" or (dtype.kind == "f" and name in OUTPUTS and values.dtype.kind != "f"):
        raise InputError(f"{path}: {name!r} is {values.dtype}; give floating-point values")
    if name == "predicted" and values.dtype.kind == "f":
        raise InputError(f"{path}: 'predicted' is {values.dtype}; give integers (classes)")
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore"):
        cast = values.astype(np.float32 if dtype == np.float16 else dtype)
    if dtype == np.float16:
        # torch converts to float16 several times faster than numpy
        cast = torch.from_numpy(cast).half().numpy()
    if cast.dtype.kind == "i":
        fits = np.array_equal(cast, values)
    else:
        finite = not cast.size or all(extreme.isfinite() for extreme in torch.aminmax(torch.from_numpy(cast)))
        fits = finite or bool(np.isinf(cast).sum() == np.isinf(values).sum())
    if not fits:
        raise InputError(
            f"{path}: {name!r} has values too large for {dtype}; give StoreWriter a wider dtype, or scale them"
        )
    return cast


def _fill(dtype: np.dtype[Any]) -> Any:
    """What padding holds: something that the reader refuses, if there is such a value."""
    return {"f": np.nan, "i": -1, "b": True, "T": ""}.get(dtype.kind, 0)


def _padded(values: Array, shape: tuple[int, ...], fill: float) -> Array:
    if values.shape == shape:
        return values
    padded = np.full(shape, fill, dtype=values.dtype)
    padded[tuple(slice(0, length) for length in values.shape)] = values
    return padded


def _create_array(
    folder: Path, name: str, shape: tuple[int, ...], chunks: tuple[int, ...], dtype: np.dtype[Any]
) -> zarr.Array[Any]:
    """Create an array, or open the same one if another process was faster.

    Outputs hardly compress: blosc's lz4 costs little, and empties padding, masks and targets. The checksum makes
    sure that damage is found.
    """
    blosc = BloscCodec(cname="lz4", clevel=1, shuffle="noshuffle" if dtype == STRING else "shuffle")
    how: dict[str, Any] = {"shape": shape, "chunks": chunks, "dtype": dtype, "compressors": [blosc, Crc32cCodec()]}
    _create(folder / name, lambda store: zarr.create_array(store, fill_value=_fill(dtype), **how))
    return _open_array(folder, name)


def _chunks(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], num_free: int, num_members: int, *, images: bool
) -> tuple[int, ...]:
    """Chunks of one member, one image if there are any, all classes, and as many rows as fit."""
    leading = 1 if name in OUTPUTS else 0
    free, classes = shape[leading : leading + num_free], shape[leading + num_free :]
    limit = TARGET_CHUNK_BYTES
    if name in OUTPUTS:
        together = num_members * (1 if name in OF_CLASSES else 2)
        limit = min(max(TOGETHER_BYTES // together, CHUNK_BYTES[0]), CHUNK_BYTES[1])
    room = max(1, limit // (dtype.itemsize * math.prod(classes)))
    chunks: list[int] = []
    for axis in reversed(range(num_free)):
        chunks.insert(0, 1 if images and axis == 0 else max(1, min(free[axis], room)))
        room //= free[axis]
    return (*(1,) * leading, *chunks, *classes)
