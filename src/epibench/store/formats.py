"""The prediction store, version 1: zarr groups, .npz files, folders of .npz with one member each.

What they hold is checked before a pixel is read: names, dtypes and shapes here, values in `members.stored`.

Nothing that is read here is ever executed: no pickle, no codec that is not known to be harmless, no path that leaves
the store's folder.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import Store
from zarr.storage import LocalStore, WrapperStore, ZipStore

from epibench.errors import InputError, some_of
from epibench.mirror import is_url
from epibench.results import Counted, Kind, counted_as

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

VERSION = 1
READ_WHOLE_LIMIT = 4 * 2**30
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
# Codecs that only transform bytes. Others (numcodecs' "pickle") can run code, or are not ours to judge.
SAFE_CODECS = {
    *("bytes", "endian", "transpose", "sharding_indexed", "vlen-utf8", "packbits", "shuffle", "astype", "delta"),
    *("blosc", "gzip", "zlib", "zstd", "lz4", "bz2", "lzma", "bitround", "quantize", "fixedscaleoffset"),
    *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
}
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
    """What a file holds under the names that a store knows, and the names of all arrays there."""

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

    A zarr group (folder or .zip; format 3 or 2), an .npz, or a folder with one .npz per member. Nothing in a
    store is ever executed: no pickle, no codec that is not known to be harmless, no path out of its folder.
    """
    if is_url(os.fspath(path)):
        raise InputError(f"{path}: stores are read from local files alone; fetch it, and give the folder or file")
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
    coarse = _coarse_logits(path, attributes, outputs, arrays)
    if coarse is not None:  # seen as if they were fine
        first, target = arrays["logits"], arrays["target"].shape
        fine = (*first.shape[:2], *target[1:], first.shape[-1])
        arrays = {**arrays, "logits": Source(fine, first.dtype, (1, 1, 1, *fine[3:]), first.read)}
    for name in (*outputs, "target", "valid"):
        if name in arrays:
            _check_dtype(path, has_classes(outputs), name, arrays[name].dtype)
    _check_shapes(path, outputs, arrays)
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
    sizes = []
    for name, largest in (("image_size", target[1:]), ("grid_size", shape[2:4])):
        given = arrays[name].read((slice(None), slice(None))) if name in arrays else np.tile(largest, (target[0], 1))
        if given.shape != (target[0], 2) or given.dtype.kind not in "iu" or (given > largest).any():
            raise InputError(f"{path}: {name!r} must be integers ({target[0]}, 2), none above {tuple(largest)}")
        sizes.append(np.where(given < 0, largest, given))  # never written: what is missing is found by its values
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
    labels = arrays[name].read((slice(None),)).tolist()
    labels = [label.decode() if isinstance(label, bytes) else label for label in labels]
    if not all(isinstance(label, str | int) for label in labels):
        raise InputError(f"{path}: {name!r} has dtype {arrays[name].dtype}; store strings or integers")
    return tuple(labels)


def read_contents(path: Path) -> Contents:
    """What a file or folder holds, by its format."""
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; give a zarr folder, a .zip or an .npz")
    if path.is_dir():
        _check_links(path)
        if (path / "zarr.json").exists() or (path / ".zgroup").exists() or (path / ".zarray").exists():
            return _zarr_contents(path, path, LocalStore(path, read_only=True))
        if files := sorted(path.glob("*.npz"), key=_natural_order):
            _check_read_whole(path, files)
            return _member_files_contents(path, files)
        names = sorted(entry.name for entry in path.iterdir())
        raise InputError(f"{path}: neither a zarr group nor a folder of .npz files; found {listed(names)}")
    if path.suffix == ".npz":
        _check_read_whole(path, [path])
        return _npz_contents(path)
    if path.suffix == ".zip":
        with closing(zipfile.ZipFile(path)) as archive:
            check_entries(path, archive)
            return _zarr_contents(path, zipfile.Path(archive), ZipStore(path, mode="r"))
    raise InputError(f"{path}: not a prediction store; give a zarr folder, a .zip of one, or an .npz")


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


def _check_links(root: Path) -> None:
    """Refuse symbolic links that leave the folder: a store is not to show files that it does not hold."""
    real_root = root.resolve()
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            entry = Path(folder, name)
            if entry.is_symlink() and not entry.resolve().is_relative_to(real_root):
                raise InputError(f"{entry}: links to a place outside the store; copy the data into the store")


def check_entries(path: Path, archive: zipfile.ZipFile) -> None:
    """Refuse names that leave the folder, and entries that cannot be read in bounded memory."""
    for entry in archive.infolist():
        name = entry.filename.replace("\\", "/")
        if name.startswith("/") or re.match("[A-Za-z]:", name) or ".." in PurePosixPath(name).parts:
            raise InputError(f"{path}: the entry {entry.filename!r} leaves the store's folder; refused")
        if entry.file_size > READ_WHOLE_LIMIT:
            raise InputError(f"{path}: the entry {entry.filename!r} has more than 4 GiB; use smaller chunks")


def _native(array: Array) -> Array:
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


class _WholeChunks(WrapperStore[Store]):
    """A store that refuses chunks cut short: blosc would read on into whatever memory follows."""

    blosc_arrays: frozenset[str] = frozenset()

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read a value; a chunk that blosc made says itself, in bytes 12 to 15, how long it is."""
        value = await super().get(key, prototype, byte_range)
        name, _, chunk = key.partition("/")
        if value is not None and name in self.blosc_arrays and chunk[:1] in "c0123456789":
            length = int.from_bytes(value[12:16].to_bytes(), "little")
            if byte_range is None and length != len(value):
                raise ValueError(f"chunk {key} has {len(value)} bytes instead of {length}")
        return value


def _zarr_contents(path: Path, root: Path | zipfile.Path, store: LocalStore | ZipStore) -> Contents:
    zarr_format: Literal[2, 3] = 3 if (root / "zarr.json").exists() else 2
    node, document = ("zarr.json", "zarr.json") if zarr_format == 3 else (".zgroup", ".zarray")
    entries = sorted(entry.name for entry in root.iterdir())
    if node not in entries or json.loads((root / node).read_bytes()).get("node_type", "group") != "group":
        raise InputError(
            f"{path}: no zarr group at its top, which holds {listed(entries)}; a store is a group with arrays in it"
        )
    names = tuple(name for name in entries if (root / name / document).exists())
    known = [name for name in names if name in ARRAYS]
    checked = _WholeChunks(store)
    for name in known:
        codecs = _checked_codecs(f"{path}: array {name!r}", json.loads((root / name / document).read_bytes()))
        if codecs[-1:] == ["blosc"]:
            checked.blosc_arrays |= {name}
    # Consolidated metadata could name other codecs than those just checked.
    group = zarr.open_group(checked, mode="r", zarr_format=zarr_format, use_consolidated=False)
    arrays = {name: _zarr_source(path, name, group[name]) for name in known}
    return Contents(arrays, group.attrs.asdict(), names)


def _zarr_source(path: Path, name: str, array: zarr.Array[Any] | zarr.Group) -> Source:
    if not isinstance(array, zarr.Array):
        raise InputError(f"{path}: {name!r} is a group; store it as an array")
    dtype = np.dtype(array.dtype)
    if math.prod(array.chunks) * dtype.itemsize > READ_WHOLE_LIMIT:
        raise InputError(f"{path}: a chunk of {name!r} has more than 4 GiB; use smaller chunks")
    return Source(array.shape, dtype, array.chunks, lambda selection: _native(np.asarray(array[selection])))


def _checked_codecs(where: str, metadata: Mapping[str, Any]) -> list[str]:
    """The codecs of an array, in the order of writing; refused are those outside the allow-list, and objects."""
    if metadata["zarr_format"] == 3:
        names = list(_codec_names(metadata["codecs"]))
    else:
        steps = [*(metadata.get("filters") or []), metadata.get("compressor")]
        names = [step["id"] for step in steps if step is not None]
    for name in names:
        if name.removeprefix("numcodecs.") not in SAFE_CODECS:
            raise InputError(f"{where} uses the codec {name!r}, which is never run; write it with blosc or zstd")
    if metadata.get("dtype") == "|O" and "vlen-utf8" not in names:
        raise InputError(f"{where} holds Python objects, which are never loaded; store numbers or strings")
    return names


def _codec_names(codecs: Sequence[Any]) -> Iterator[str]:
    for codec in codecs:
        configuration = {} if isinstance(codec, str) else codec.get("configuration") or {}
        yield from _codec_names([*configuration.get("codecs", []), *configuration.get("index_codecs", [])])
        yield codec if isinstance(codec, str) else codec["name"]


def memory_source(values: Array) -> Source:
    """An array in memory, seen as one on disk."""
    return Source(values.shape, values.dtype, (1,) * values.ndim, values.__getitem__)


def _npz_contents(path: Path) -> Contents:
    """Names, shapes and dtypes of an .npz, from its headers; attributes are arrays without axes."""
    with zipfile.ZipFile(path) as archive:
        check_entries(path, archive)
        names = tuple(entry.removesuffix(".npy") for entry in archive.namelist())
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
        if file.tell() + math.prod(shape) * dtype.itemsize != entry.file_size:
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
        with readable(f"{file}"), zipfile.ZipFile(file) as archive:
            size += sum(entry.file_size for entry in archive.infolist())
    if size > READ_WHOLE_LIMIT:
        raise InputError(
            f"{path}: {size / 2**30:.1f} GiB of .npz, which is read whole (at most 4 GiB); store it as zarr, "
            "with epibench's StoreWriter"
        )


def _member_files_contents(path: Path, files: Sequence[Path]) -> Contents:
    """One member per file; what members share may be in any or all of them, or in a file of its own."""
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
