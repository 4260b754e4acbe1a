"""The prediction store, version 1: zarr groups, .npz files, folders of .npz with one member each.

Names, dtypes, shapes and the presence of chunks are checked here, before a pixel is read; values in `members.stored`.

Nothing in a file is executed: no pickle, no unknown codec, no path that leaves the folder. Nothing that a file declares
is believed: sizes are compared with its bytes, and bounded, before they are read.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import LocalStore, WrapperStore

from epibench.errors import InputError, some_of
from epibench.mirror import is_url
from epibench.results import Counted, Kind, counted_as
from epibench.store.codecs import bounded_codecs, check_codecs, most_bytes

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

VERSION = 1
WRITER = "epibench"  # the attribute `writer` of stores that are written here, with every chunk
READ_WHOLE_LIMIT = 2**30
CHUNK_LIMIT = 2**28
DIRECTORY_LIMIT = 2**20  # bytes of the directory of an .npz, whose size its end says
END, LARGE_END = b"PK\5\6", b"PK\6\7"
METADATA_LIMIT = 2**26
MOST_MEMBERS = 4096
MOST_CHUNKS = 2**22  # of an array whose chunks may be absent
PIXEL_LIMIT = 2**27  # bytes of all outputs of one pixel
LABELS_LIMIT = 2**28
TEXT_BYTES = 128  # of a text in memory
AT_ONCE = 2**28  # bytes of the chunks that are unpacked together
MOST_REFINED = 256  # how many times finer than its grid an image may be
# What members put out, by kind: one array for each tuple, under one of its names.
KINDS: dict[Kind, tuple[tuple[str, ...], ...]] = {
    "gaussian": (("mean",), ("variance",)),
    "categorical": (("probs", "logits"),),
    "ranking": (("mean", "predicted"), ("uncertainty", "confidence")),
}
Array = NDArray[Any]

OF_CLASSES = ("probs", "logits")  # with the class axis last
UNCERTAIN = ("uncertainty", "confidence")  # perhaps with an axis of several maps last
OUTPUTS = tuple(dict.fromkeys(name for needed in KINDS.values() for names in needed for name in names))
SHARED = ("target", "valid", "image", "image_id", "image_size", "grid_size")
ARRAYS = (*OUTPUTS, *SHARED, "group", "member_id")
NAMES = ("class_names", "uncertainty_names")
ATTRIBUTES = ("version", "kind", "method", "domain", "unit", "quantity", *NAMES, "align_corners")
# A name often given: the array (or arrays) that may be meant, and what to do.
MISNOMERS = {
    **dict.fromkeys(("std", "sigma"), ("variance", "store its square as 'variance'")),
    **dict.fromkeys(("logvar", "log_variance"), ("variance", "store its exponential as 'variance'")),
    "var": ("variance", "name it 'variance'"),
    "mu": ("mean", "name it 'mean'"),
    "pred": ("mean probs", "name it 'mean' (gaussian) or 'probs' (categorical)"),
    **dict.fromkeys(("probabilities", "softmax"), ("probs", "name it 'probs'")),
    **dict.fromkeys(("label", "labels", "gt", "ground_truth"), ("target", "name it 'target'")),
    "conf": ("uncertainty", "name it 'confidence'"),
    "mask": ("valid", "name it 'valid' (bool, true where the target counts)"),
}
METADATA = "zarr.json"
Label = str | int


@dataclass(frozen=True)
class Source:
    """An array on disk, read in parts: `read` takes one slice per axis, `chunks` are decoded at once."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...]
    read: Callable[[tuple[slice, ...]], Array]


@dataclass(frozen=True)
class Contents:
    """The arrays and attributes of a file that belong to a store, and the names of all its arrays."""

    arrays: dict[str, Source]
    attributes: dict[str, Any]
    names: tuple[str, ...]


@dataclass(frozen=True)
class CoarseLogits:
    """Logits on a grid that is coarser than the image, between whose points they are interpolated (bilinear).

    align_corners: whether the outermost points of the grid lie on the outermost pixels, or in the middles of cells
    source: (member, image, coarse row, coarse column, class)
    image_sizes, grid_sizes: height and width of every image and of its grid, (image, 2); the rest is padding
    """

    align_corners: bool
    source: Source
    image_sizes: Array
    grid_sizes: Array


@dataclass(frozen=True)
class PredictionStore:
    """Members' outputs on disk, with their target; `members.stored` reads the values.

    `shape` are the free axes: (image, height, width), or just (n,).
    """

    path: Path
    kind: Kind
    method: str | None
    domain: str | None
    unit: str | None
    class_names: tuple[str, ...] | None
    uncertainty_names: tuple[str, ...] | None
    num_members: int
    num_classes: int | None
    shape: tuple[int, ...]
    group: tuple[Label, ...] | None
    member_id: tuple[Label, ...] | None
    image_id: tuple[Label, ...] | None
    arrays: Mapping[str, Source] = field(repr=False, compare=False)
    complete: bool = True  # false if its writer was stopped
    coarse: CoarseLogits | None = field(default=None, repr=False, compare=False)
    quantity: str | None = None  # what is predicted; "depth" has metrics of its own

    @property
    def has_images(self) -> bool:
        """Whether the first free axis counts images."""
        return len(self.shape) >= 3 or self.image_id is not None

    @property
    def counted(self) -> Counted:
        """What its targets are called: pixels or samples."""
        return counted_as(self.shape)

    @property
    def num_pixels(self) -> int:
        """All pixels or samples, valid or not."""
        return math.prod(self.shape)

    @property
    def output_names(self) -> tuple[str, ...]:
        """The arrays that hold members' outputs."""
        return tuple(name for name in OUTPUTS if name in self.arrays)


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Turn whatever a library raises on broken data into an InputError that names the place."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"{what}: cannot be read: truncated, damaged or not a prediction store; write it again "
            f"({type(error).__name__}: {reason})"
        ) from error


def open_store(path: str | os.PathLike[str]) -> PredictionStore:
    """Open predictions that any framework has saved, and check their structure, not their values.

    A folder with a zarr group of format 3, an .npz, or a folder with one .npz per member. Nothing in a store is
    executed: no pickle, no unknown codec, no path out of its folder.
    """
    if is_url(os.fspath(path)):
        raise InputError(f"{path}: stores are read from local files alone; fetch it, and give the folder or file")
    path = Path(path)
    with readable(f"{path}"):
        return describe(path, read_contents(path))


def describe(path: Path, contents: Contents) -> PredictionStore:
    """Check names, dtypes and shapes, and describe the store."""
    attributes, arrays = contents.attributes, contents.arrays
    if attributes.get("version") != VERSION:
        version = f"is {attributes['version']!r}" if "version" in attributes else "is missing"
        raise InputError(f"{path}: the attribute 'version' {version}; this epibench reads version {VERSION}")
    outputs = _output_names(path, contents)
    kind: Kind = attributes["kind"]
    coarse = _coarse_logits(path, attributes, outputs, arrays)
    if coarse is not None:  # seen as if they were fine
        first, target = arrays["logits"], arrays["target"].shape
        fine = (*first.shape[:2], *target[1:], first.shape[-1])
        arrays = {**arrays, "logits": Source(fine, first.dtype, (1, 1, 1, *fine[3:]), first.read)}
    for name in (*outputs, "target", "valid"):
        if name in arrays:
            _check_dtype(path, has_classes(outputs), name, arrays[name].dtype)
    _check_shapes(path, outputs, arrays)
    _check_bounds(path, [arrays[name] for name in outputs], len(arrays["target"].shape))
    if "image" in arrays:
        _check_photos(path, arrays["image"], arrays["target"].shape)
    first, shape = arrays[outputs[0]], arrays["target"].shape
    class_names = attributes.get("class_names")
    num_classes = first.shape[-1] if kind == "categorical" else None
    if "predicted" in outputs:
        if class_names is None:
            raise InputError(f"{path}: 'predicted' without class_names; give one for each class")
        num_classes = len(class_names)
    if class_names is not None and len(class_names) != num_classes:
        raise InputError(f"{path}: {len(class_names)} class_names for {num_classes} classes; give one for each")
    if num_classes is None and len(shape) == 2 and shape[1] > 1:
        raise InputError(
            f"{path}: 'target' has shape {shape}. Fix: store each target of a sample by itself, (n,); maps are "
            "(image, height, width)."
        )
    texts = {name: attributes.get(name) for name in ("method", "domain", "unit", "quantity")}
    return PredictionStore(
        path=path,
        kind=kind,
        **{name: None if text is None else str(text) for name, text in texts.items()},
        class_names=None if class_names is None else tuple(str(name) for name in class_names),
        uncertainty_names=_uncertainty_names(path, attributes, outputs, arrays),
        num_members=first.shape[0],
        num_classes=num_classes,
        shape=shape,
        group=_labels(path, "group", arrays, first.shape[0]),
        member_id=_labels(path, "member_id", arrays, first.shape[0]),
        image_id=_labels(path, "image_id", arrays, shape[0]),
        arrays={name: arrays[name] for name in (*outputs, "target", "valid", "image") if name in arrays},
        complete=attributes.get("complete") is not False,
        coarse=coarse,
    )


def _coarse_logits(
    path: Path, attributes: Mapping[str, Any], outputs: Sequence[str], arrays: Mapping[str, Source]
) -> CoarseLogits | None:
    """The coarse grid of logits of a store that says how its corners lie."""
    if "align_corners" not in attributes:
        return None
    if tuple(outputs) != ("logits",):
        raise InputError(f"{path}: 'align_corners' is for a coarse grid of logits; without 'logits', leave it out")
    shape, target = arrays["logits"].shape, arrays["target"].shape
    if len(target) != 3 or len(shape) != 5 or shape[1] != target[0] or 0 in shape:
        raise InputError(
            f"{path}: 'logits' has shape {shape}, 'target' {target}; with 'align_corners' they are (member, image, "
            "coarse row, coarse column, class) and (image, height, width)"
        )
    if any(fine > MOST_REFINED * coarse for fine, coarse in zip(target[1:], shape[2:4], strict=True)):
        raise InputError(
            f"{path}: 'target' has shape {target}, 'logits' {shape}: more than {MOST_REFINED} times coarser. Fix: "
            "store logits on a finer grid."
        )
    sizes = []
    for name, largest in (("image_size", target[1:]), ("grid_size", shape[2:4])):
        given = np.tile(largest, (target[0], 1))
        if name in arrays:
            there = arrays[name]
            fits = there.shape == (target[0], 2) and there.dtype.kind in "iu"
            given = there.read((slice(None), slice(None))) if fits else np.array([[-1]])
        if (given < 0).any() or (given > largest).any():
            raise InputError(f"{path}: {name!r} must be integers ({target[0]}, 2), from 0 to {tuple(largest)}")
        sizes.append(given)
    return CoarseLogits(bool(attributes["align_corners"]), arrays["logits"], *sizes)


def _uncertainty_names(
    path: Path, attributes: Mapping[str, Any], outputs: Sequence[str], arrays: Mapping[str, Source]
) -> tuple[str, ...] | None:
    """The names of several maps of uncertainty, (member, …, map); None where there is one, without that axis."""
    names = attributes.get("uncertainty_names")
    shapes = {name: arrays[name].shape for name in outputs if name in UNCERTAIN}
    several = [shape[-1] for shape in shapes.values() if len(shape) == len(arrays["target"].shape) + 2]
    if several != ([] if names is None else [len(names)]):
        given = "no uncertainty_names" if names is None else f"{len(names)} uncertainty_names"
        raise InputError(f"{path}: {given} for {shapes}; give one for each map of (member, …, map), else none")
    return None if names is None else tuple(str(name) for name in names)


def _output_names(path: Path, contents: Contents) -> tuple[str, ...]:
    """The arrays of members' outputs; all that is needed must be there, under its name."""
    kind, names = contents.attributes.get("kind"), f"found {listed(contents.names)}"
    if kind not in KINDS:
        raise InputError(
            f"{path}: the attribute 'kind' is {kind!r} and must be 'gaussian' (arrays 'mean', 'variance'), "
            f"'categorical' ('probs' or 'logits') or 'ranking' ('mean' or 'predicted', 'uncertainty' or "
            f"'confidence'); {names}{hints(ARRAYS, contents.names)}"
        )
    outputs, missing = list[str](), list[str]()
    for alternatives in KINDS[kind]:
        present = [name for name in alternatives if name in contents.arrays]
        if len(present) > 1:
            raise InputError(f"{path}: both {present[0]!r} and {present[1]!r}; keep one of them")
        outputs += present
        missing += [] if present else alternatives[:1]
    missing += [] if "target" in contents.arrays else ["target"]
    remedies = hints([name for name in (*missing, "valid") if name not in contents.arrays], contents.names)
    if missing or remedies:
        problem = f"no array {listed(missing)}" if missing else "an array under another name"
        raise InputError(f"{path}: {problem}; {names}{remedies}")
    return tuple(outputs)


def has_classes(outputs: Sequence[str]) -> bool:
    """Whether what members put out is about classes, not values."""
    return any(name in (*OF_CLASSES, "predicted") for name in outputs)


def _check_dtype(path: Path, classes: bool, name: str, dtype: np.dtype[Any]) -> None:
    numbers, indices = ("efdbhilqBHILQ", "numbers"), ("bhilqBHILQ", "integers, the class indices")
    allowed, words = {
        "valid": ("?", "bool: array.astype(bool)"),
        "predicted": indices,
        "target": indices if classes else numbers,
    }.get(name, ("efd", "float16, float32 or float64"))
    if dtype.char not in allowed:
        raise InputError(f"{path}: {name!r} has dtype {dtype}; store it as {words}")


def _check_shapes(path: Path, outputs: Sequence[str], arrays: Mapping[str, Source]) -> None:
    target = arrays["target"].shape
    for name in (*outputs, "target", "valid"):
        if name in arrays and math.prod(arrays[name].shape) == 0:
            raise InputError(f"{path}: {name!r} is empty, with shape {arrays[name].shape}; store at least one value")
    if not target:
        raise InputError(f"{path}: 'target' has no axis; store at least shape (n,)")
    for name in outputs:
        shape, hint = arrays[name].shape, ""
        classes = int(name in OF_CLASSES or (name in UNCERTAIN and len(shape) == len(target) + 2))
        if shape[1 : len(shape) - classes] != target or len(shape) != len(target) + 1 + classes:
            axes = "(member, …, class)" if name in OF_CLASSES else "(member, …)"
            moved = [axis for axis in range(1, len(shape) - 1) if (*shape[1:axis], *shape[axis + 1 :]) == target]
            coarse = name == "logits" and len(target) == 3 and len(shape) == 5 and shape[1] == target[0]
            if shape[: len(shape) - classes] == target:
                hint = f": add a member axis, {name}[None]"
            elif name in OF_CLASSES and moved:
                hint = f": move the class axis to the end, numpy.moveaxis({name}, {moved[0]}, -1)"
                if coarse and shape[2] < target[1] and shape[3] < target[2]:
                    hint += f"; or, if these are {shape[-1]} classes on a coarse grid, say so with 'align_corners'"
            elif coarse:
                hint = (
                    f": {shape[-1]} classes on a coarse grid? Then say so with 'align_corners' (docs/stores.md); if "
                    f"these are {shape[2]} classes, numpy.moveaxis({name}, 2, -1) first"
                )
            raise InputError(
                f"{path}: {name!r} has shape {shape}, 'target' {target}; {name!r} must be {axes} around the target's "
                f"axes{hint}"
            )
    first, *others = outputs
    for name in others:
        if arrays[name].shape[: 1 + len(target)] != arrays[first].shape:
            shapes = f"{first!r} has shape {arrays[first].shape}, {name!r} {arrays[name].shape}"
            raise InputError(f"{path}: {shapes}; they must agree")
    if "valid" in arrays and arrays["valid"].shape != target:
        raise InputError(f"{path}: 'valid' has shape {arrays['valid'].shape}, 'target' {target}; they must agree")
    if first in OF_CLASSES and arrays[first].shape[-1] < 2:
        raise InputError(f"{path}: {outputs[0]!r} has one class; store one value per class, also for two classes")


def _check_bounds(path: Path, outputs: Sequence[Source], num_free: int) -> None:
    """Refuse more members, or more in one pixel, than fit into memory."""
    num_members = outputs[0].shape[0]
    if num_members > MOST_MEMBERS:
        raise InputError(f"{path}: {num_members:,} members; a store has at most {MOST_MEMBERS:,}. Fix: store fewer.")
    pixel = sum(each.shape[0] * math.prod(each.shape[1 + num_free :]) * each.dtype.itemsize for each in outputs)
    if pixel > PIXEL_LIMIT:
        raise InputError(
            f"{path}: all members of one pixel take {pixel / 2**20:,.0f} MiB, more than {PIXEL_LIMIT / 2**20:.0f} MiB. "
            "Fix: store fewer members, or fewer classes."
        )


def _check_photos(path: Path, photos: Source, target: tuple[int, ...]) -> None:
    """Photos are of the size of the targets, in bytes, with three channels last."""
    if len(target) != 3 or photos.shape != (*target, 3) or photos.dtype != np.uint8:
        raise InputError(
            f"{path}: 'image' is {photos.dtype} with shape {photos.shape}, 'target' has shape {target}; photos are "
            "uint8, (image, height, width, 3), of the size of the targets"
        )


def _labels(path: Path, name: str, arrays: Mapping[str, Source], length: int) -> tuple[Label, ...] | None:
    """Group numbers or names: one string or integer for each of `length` members or images."""
    if name not in arrays:
        return None
    if arrays[name].shape != (length,):
        raise InputError(f"{path}: {name!r} has shape {arrays[name].shape}; it must be ({length},)")
    if length * arrays[name].dtype.itemsize > LABELS_LIMIT:
        raise InputError(f"{path}: {name!r} has texts of up to {arrays[name].dtype.itemsize} bytes; store shorter ones")
    labels = arrays[name].read((slice(None),)).tolist()
    labels = [label.decode() if isinstance(label, bytes) else label for label in labels]
    if not all(isinstance(label, str | int) for label in labels):
        raise InputError(f"{path}: {name!r} has dtype {arrays[name].dtype}; store strings or integers")
    return tuple(labels)


def read_contents(path: Path) -> Contents:
    """What a file or folder holds, by its format."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; give a zarr folder or an .npz")
    if path.is_dir():
        _check_entries(path)
        if (path / METADATA).is_file():
            return _zarr_contents(path)
        if (path / ".zgroup").exists() or (path / ".zarray").exists():
            raise InputError(f"{path}: zarr format 2 is not read. Fix: copy it into format 3, or use write_store.")
        if files := sorted(path.glob("*.npz"), key=_natural_order):
            _check_read_whole(path, files)
            return _member_files_contents(path, files)
        names = sorted(entry.name for entry in path.iterdir())
        raise InputError(f"{path}: neither a zarr group nor a folder of .npz files; found {listed(names)}")
    if not path.is_file():
        raise InputError(f"{path}: a pipe or a device, neither a file nor a folder. Fix: save it, and give the file.")
    if path.suffix == ".npz":
        _check_read_whole(path, [path])
        return _npz_contents(path)
    raise InputError(f"{path}: not a prediction store; give a zarr folder or an .npz")


def _natural_order(path: Path) -> list[tuple[bool, int, str]]:
    """Sort key that puts member_2 before member_10."""
    parts = re.split(r"(\d+)", path.stem)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def listed(names: Sequence[str]) -> str:
    """Names in quotes, the first dozen of them."""
    return some_of([repr(name) for name in names], 12) or "nothing"


def hints(wanted: Sequence[str], names: Sequence[str]) -> str:
    """What to do about names under which a wanted array is often stored."""
    misnamed = [name for name in names if name in MISNOMERS and {*MISNOMERS[name][0].split()} & {*wanted}]
    return "".join(f"; {name!r} found: {MISNOMERS[name][1]}" for name in misnamed)


def _check_entries(root: Path) -> None:
    """Refuse links that leave the folder, which show files that it does not hold, and pipes, which may wait forever."""
    real_root, folders = root.resolve(), [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_symlink() and not Path(entry.path).resolve().is_relative_to(real_root):
                    raise InputError(f"{entry.path}: links to a place outside the store; copy the data into the store")
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not (entry.is_symlink() or entry.is_file()):
                    raise InputError(f"{entry.path}: a pipe or a device within a store. Fix: remove it.")


def _native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class _BoundedFiles(WrapperStore[LocalStore]):
    """Files of a store, none larger than its array needs. limits: by the name of an array."""

    limits: dict[str, int]

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a value, once its size is known."""
        name, _, chunk = key.partition("/")
        if chunk and chunk != METADATA and name in self.limits:
            path = self._store.root / key
            if path.is_file() and path.stat().st_size > self.limits[name]:
                raise ValueError(f"chunk {key} has more bytes than its shape needs")
        return await super().get(key, prototype, byte_range)


def _zarr_contents(path: Path) -> Contents:
    attributes = _metadata(path)
    entries = sorted(entry.name for entry in path.iterdir())
    if attributes.get("node_type") != "group":
        raise InputError(
            f"{path}: no zarr group at its top, which holds {listed(entries)}; a store is a group with arrays in it"
        )
    names = tuple(name for name in entries if (path / name / METADATA).is_file())
    known = [name for name in names if name in ARRAYS]
    documents = {name: _metadata(path / name) for name in known}
    for name, document in documents.items():
        if document.get("node_type") != "array":
            raise InputError(f"{path}: {name!r} is a group; store it as an array")
        check_codecs(f"{path}: array {name!r}", document["codecs"])
    files = _BoundedFiles(LocalStore(path, read_only=True))
    # Consolidated metadata could name other codecs than those just checked.
    with bounded_codecs():
        group = zarr.open_group(files, mode="r", zarr_format=3, use_consolidated=False)
        opened = {name: group[name] for name in known}
    attributes, sources, files.limits = group.attrs.asdict(), {}, {}
    for name, array in opened.items():
        assert isinstance(array, zarr.Array)
        sources[name], files.limits[name] = _zarr_source(path, name, array)
        every = name in OUTPUTS or attributes.get("writer") == WRITER
        _check_chunks(path, name, array, documents[name], every=every)
    return Contents(sources, attributes, names)


def _metadata(folder: Path) -> dict[str, Any]:
    file = folder / METADATA
    if file.stat().st_size > METADATA_LIMIT:
        raise InputError(f"{file}: has {file.stat().st_size / 2**20:,.0f} MiB, which no metadata need; write it again")
    content = json.loads(file.read_bytes())
    if not isinstance(content, dict):
        raise InputError(f"{file}: holds no metadata of zarr; write it again")
    return content


def _zarr_source(path: Path, name: str, array: zarr.Array[Any]) -> tuple[Source, int]:
    """An array on disk, and the most bytes that one of its files may have."""
    dtype = np.dtype(array.dtype)
    item_size = None if dtype.kind in "OT" else dtype.itemsize
    chunk_bytes = math.prod(array.chunks) * (item_size or TEXT_BYTES)
    if chunk_bytes > CHUNK_LIMIT:
        limit = f"{CHUNK_LIMIT / 2**20:.0f} MiB"
        raise InputError(f"{path}: a chunk of {name!r} has more than {limit}; use smaller chunks")
    together = max(1, AT_ONCE // max(chunk_bytes, 2**16))

    def read(selection: tuple[slice, ...]) -> Array:
        parts = [slice(*part.indices(length)) for part, length in zip(selection, array.shape, strict=True)]
        pieces = list(_pieces(parts, array.chunks, together))
        if len(pieces) == 1:
            return _native(np.asarray(array[tuple(parts)]))
        result = np.empty([part.stop - part.start for part in parts], _native(np.empty(0, dtype)).dtype)
        for piece in pieces:
            place = [slice(one.start - all.start, one.stop - all.start) for one, all in zip(piece, parts, strict=True)]
            result[tuple(place)] = array[tuple(piece)]
        return result

    files = most_bytes(math.prod(array.shards or array.chunks), item_size)
    return Source(array.shape, dtype, array.chunks, read), files


def _pieces(parts: Sequence[slice], chunks: Sequence[int], together: int) -> Iterator[list[slice]]:
    """Cut a selection at borders of chunks, into pieces that touch few of them."""
    touched = [-(-part.stop // size) - part.start // size for part, size in zip(parts, chunks, strict=True)]
    if math.prod(touched) <= together:
        yield list(parts)
        return
    axis = next(axis for axis, number in enumerate(touched) if number > 1)
    middle = (parts[axis].start // chunks[axis] + touched[axis] // 2) * chunks[axis]
    for half in (slice(parts[axis].start, middle), slice(middle, parts[axis].stop)):
        yield from _pieces([*parts[:axis], half, *parts[axis + 1 :]], chunks, together)


def _check_chunks(path: Path, name: str, array: zarr.Array[Any], document: Mapping[str, Any], *, every: bool) -> None:
    """Refuse an array of which chunks are absent: zarr reads its fill value there. every: whether all must be there.

    Of a shard, the index at its start or end says where each of its chunks is.
    """
    grid = array.shards or array.chunks
    counts = [-(-length // size) for length, size in zip(array.shape, grid, strict=True)]
    encoding = document["chunk_key_encoding"]
    separator = (encoding.get("configuration") or {}).get("separator", "/" if encoding["name"] == "default" else ".")
    if encoding["name"] not in ("default", "v2") or separator not in ("/", "."):
        raise InputError(f"{path}: array {name!r} has chunks under unusual names; cannot be read. Fix: write it again.")
    if not every:
        if math.prod(counts) > MOST_CHUNKS:
            raise InputError(f"{path}: {name!r} has more than {MOST_CHUNKS:,} chunks; use larger ones")
        return
    for number in range(math.prod(counts)):  # a store that declares more than it holds ends it soon
        rest, index = number, list[int]()
        for count in reversed(counts):
            rest, position = divmod(rest, count)
            index.insert(0, position)
        key = separator.join([*(["c"] if encoding["name"] == "default" else []), *map(str, index)])
        file = path / name / (key or "0")
        if not file.is_file():
            _refuse_absent(path, name, [position * size for position, size in zip(index, grid, strict=True)])
        if array.shards is not None:
            _check_shard(path, name, array, document, file, index)


def _check_shard(
    path: Path, name: str, array: zarr.Array[Any], document: Mapping[str, Any], file: Path, index: Sequence[int]
) -> None:
    """The same of the chunks of one shard, less those beyond the end of the array."""
    (codec,) = document["codecs"] if len(document["codecs"]) == 1 else [{}]
    settings = codec.get("configuration", {})
    index_codecs = [each if isinstance(each, str) else each["name"] for each in settings.get("index_codecs", [])]
    little = settings.get("index_codecs", [{}])[0]
    order = "little" if isinstance(little, str) else (little.get("configuration") or {}).get("endian", "little")
    if index_codecs not in (["bytes"], ["bytes", "crc32c"]) or order != "little":
        raise InputError(f"{path}: array {name!r} has shards of an unusual kind. Fix: write it without shards.")
    grid = [outer // inner for outer, inner in zip(array.shards or (), array.chunks, strict=True)]
    length, checksum = 16 * math.prod(grid), 4 * (len(index_codecs) - 1)
    size = file.stat().st_size
    with file.open("rb") as stream:
        if settings.get("index_location", "end") == "end":
            stream.seek(max(0, size - length - checksum))
        content = stream.read(min(length, size))
    if len(content) != length:
        raise InputError(f"{file}: truncated; write the store again")
    places = np.frombuffer(content, dtype="<u8").reshape(*grid, 2)
    starts = [position * outer for position, outer in zip(index, array.shards or (), strict=True)]
    used = tuple(
        slice(0, -(-(end - start) // inner))
        for start, end, inner in zip(starts, array.shape, array.chunks, strict=True)
    )
    absent = np.argwhere((places[used] == np.iinfo(np.uint64).max).all(-1))
    if len(absent):
        inside = [int(position) * inner for position, inner in zip(absent[0], array.chunks, strict=True)]
        _refuse_absent(path, name, [start + more for start, more in zip(starts, inside, strict=True)])
    if (places[used].sum(-1, dtype=np.float64) > size).any():
        raise InputError(f"{file}: its chunks lie beyond its end; write the store again")


def _refuse_absent(path: Path, name: str, index: Sequence[int]) -> None:
    axes = ["member"] if name in (*OUTPUTS, "group", "member_id") else []
    axes += ["image", "row", "column"]
    where = ", ".join(f"{axis} {position}" for axis, position in zip(axes, index, strict=False))
    raise InputError(
        f"{path}: array {name!r} has no chunk at {where}: damaged, or never written. Fix: write it again, or go on "
        "with StoreWriter(resume=True); zarr leaves out chunks of zeros unless array.write_empty_chunks is true."
    )


def memory_source(values: Array) -> Source:
    """An array in memory, seen as one on disk."""
    return Source(values.shape, values.dtype, (1,) * values.ndim, values.__getitem__)


def _npz_contents(path: Path) -> Contents:
    """Names, shapes and dtypes of an .npz, from its headers; attributes are arrays without axes."""
    with zipfile.ZipFile(path) as archive:
        names = tuple(entry.removesuffix(".npy") for entry in archive.namelist())
        for name, number in Counter(names).most_common(1):
            if number > 1:
                raise InputError(f"{path}: holds {name!r} twice. Fix: write the file again, with each array once.")
        for entry in archive.namelist():
            name = entry.replace("\\", "/")
            if name.startswith("/") or re.match("[A-Za-z]:", name) or ".." in PurePosixPath(name).parts:
                raise InputError(f"{path}: the entry {entry!r} leaves the store's folder; refused")
        sources = {name: _npz_source(path, archive, name) for name in names if name in ARRAYS + ATTRIBUTES}
    attributes = {name: sources.pop(name).read(()).tolist() for name in ATTRIBUTES if name in sources}
    telling = {"gaussian": ("variance",), "categorical": OF_CLASSES, "ranking": ("predicted", *UNCERTAIN)}
    kinds = [kind for kind, names_of in telling.items() if any(name in sources for name in names_of)]
    kinds = kinds or (["gaussian"] if "mean" in sources else [])
    inferred = {"kind": kinds[0]} if len(kinds) == 1 else {}
    return Contents(sources, {"version": VERSION, **inferred, **attributes}, names)


def _npz_source(path: Path, archive: zipfile.ZipFile, name: str) -> Source:
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise InputError(f"{path}: {name!r} holds Python objects, which are never loaded; store numbers or strings")
        # A header that promises more than the file holds would have numpy allocate it.
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or not dtype.itemsize or file.tell() + size != entry.file_size:
            raise InputError(f"{path}: array {name!r} is truncated; write the file again")

    @cache
    def whole() -> Array:
        with readable(f"{path}: array {name!r}"), np.load(path, allow_pickle=False) as file:
            return _native(file[name])

    return Source(shape, dtype, (1,) * len(shape), lambda selection: whole()[selection])


def _check_read_whole(path: Path, files: Sequence[Path]) -> None:
    """Refuse more than memory should hold, from the zip directories, before anything is read."""
    size = 0
    for file in files:
        with readable(f"{file}"):
            if not file.is_file():
                raise InputError(f"{file}: not a file. Fix: remove it.")
            with file.open("rb") as stream:
                stream.seek(-min(file.stat().st_size, 2**16 + 22), os.SEEK_END)
                tail = stream.read()
            end = len(tail) - 22 if tail[-22:-18] == END and tail[-2:] == b"\0\0" else tail.rfind(END)
            large = tail[max(0, end - 20) : max(0, end - 16)] == LARGE_END
            if end >= 0 and (large or int.from_bytes(tail[end + 12 : end + 16], "little") > DIRECTORY_LIMIT):
                raise InputError(f"{file}: holds far more arrays than a store has; write it again")
            with zipfile.ZipFile(file) as archive:
                size += sum(entry.file_size for entry in archive.infolist())
    if size > READ_WHOLE_LIMIT:
        raise InputError(
            f"{path}: {size / 2**30:.1f} GiB of .npz, which is read whole (at most 1 GiB); store it as zarr, "
            "with epibench's StoreWriter"
        )


def _member_files_contents(path: Path, files: Sequence[Path]) -> Contents:
    """Join files of one member each; shared arrays may be in any of them, or in a file of its own."""
    contents: dict[Path, Contents] = {}
    attributes: dict[str, Any] = {}
    for file in files:
        with readable(f"{file}"):
            contents[file] = _npz_contents(file)
        for name, value in contents[file].attributes.items():
            if attributes.setdefault(name, value) != value:
                raise InputError(f"{file}: {name} is {value!r}, but {attributes[name]!r} in others; make them agree")
    names = tuple(dict.fromkeys(name for content in contents.values() for name in content.names))
    members = [file for file in files if not set(contents[file].names) <= {*SHARED, *ATTRIBUTES}]
    copies: dict[str, dict[Path, Source]] = {}
    for file, content in contents.items():
        for name, source in content.arrays.items():
            copies.setdefault(name, {})[file] = source
    arrays = {name: _repeated(name, copies[name]) for name in SHARED if name in copies}
    shape = arrays["target"].shape if "target" in arrays else None
    for name in (*OUTPUTS, "group"):
        if name in copies:
            if missing := [file for file in members if file not in copies[name]]:
                raise InputError(
                    f"{missing[0]}: no array {name!r}, which other members have; found "
                    f"{listed(contents[missing[0]].names)}{hints((name,), contents[missing[0]].names)}"
                )
            arrays[name] = _stacked(name, copies[name], () if name == "group" else shape)
    arrays["member_id"] = memory_source(np.array([file.stem for file in members]))
    return Contents(arrays, attributes, names)


def _stacked(name: str, copies: Mapping[Path, Source], shape: tuple[int, ...] | None) -> Source:
    """One source per member, seen as one array; a file may have a member axis of length 1."""
    (first_file, first), *others = copies.items()
    for file, other in others:
        if (other.shape, other.dtype) != (first.shape, first.dtype):
            raise InputError(
                f"{file}: {name!r} has shape {other.shape} and dtype {other.dtype}, in {first_file.name} "
                f"{first.shape} and {first.dtype}; members must agree"
            )
    without_class = first.shape[:-1] if name in OF_CLASSES else first.shape
    leading = shape is not None and without_class != shape and first.shape[:1] == (1,)
    members = tuple(copies.values())

    def read(selection: tuple[slice, ...]) -> Array:
        inner = (slice(0, 1),) * leading + selection[1:]
        parts = [member.read(inner) for member in members[selection[0]]]
        return np.concatenate(parts) if leading else np.stack(parts)

    stacked = (len(members), *first.shape[leading:])
    return Source(stacked, first.dtype, (1,) * len(stacked), read)


def _repeated(name: str, copies: Mapping[Path, Source]) -> Source:
    """The same array in one or more files, which are compared as they are read."""
    (first_file, first), *others = copies.items()

    def read(selection: tuple[slice, ...]) -> Array:
        values = first.read(selection)
        for file, other in others:
            if not np.array_equal(values, other.read(selection), equal_nan=first.dtype.kind == "f"):
                raise InputError(f"{file}: {name!r} differs from that in {first_file.name}; members share one {name}")
        return values

    return Source(first.shape, first.dtype, first.chunks, read)
