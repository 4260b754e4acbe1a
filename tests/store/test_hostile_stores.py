"""Damaged and hostile prediction stores: each is refused in one line, within 2 GB, and no file is waited for."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from google_crc32c import value as crc32c
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from epibench.store import open_store, write_store
from hostile import Answer, answers, assert_refused

RNG = np.random.default_rng(0)
SHAPE = (2, 4, 4, 8)  # (member, image, row, column)
TARGET = RNG.normal(size=SHAPE[1:]).astype(np.float32)
VALUES = {
    "mean": RNG.normal(size=SHAPE).astype(np.float32),
    "variance": RNG.random(size=SHAPE).astype(np.float32) + 1,
    "target": TARGET,
    "valid": np.ones(SHAPE[1:], bool),
}
MANY = 10**12


def ours(path: Path) -> Path:
    write_store(path, kind="gaussian", image_id=list("abcd"), **VALUES)
    return path


def foreign(path: Path, compressors: Any = "auto", shards: Any = None, **more: Any) -> Path:
    """As zarr writes it, one member and image in a chunk."""
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"version": 1, "kind": "gaussian"})
    for name, values in {**VALUES, **more}.items():
        chunks = (1, 1, 4, 8)[-values.ndim :] if values.ndim > 2 else values.shape
        outer = None if shards is None or values.ndim < 4 else shards
        group.create_array(name, data=values, chunks=chunks, compressors=compressors, shards=outer)
    return path


def classes(path: Path) -> Path:
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"version": 1, "kind": "categorical"})
    probs = RNG.dirichlet(np.ones(3), SHAPE).astype(np.float32)
    group.create_array("probs", data=probs, chunks=(1, 1, 4, 8, 3))
    group.create_array("target", data=RNG.integers(0, 3, SHAPE[1:]), chunks=(1, 4, 8))
    return path


def declare(path: Path, name: str, **changes: Any) -> None:
    """Other metadata of an array."""
    file = path / name / "zarr.json"
    content = json.loads(file.read_text())
    chunks = changes.pop("chunks", None)
    if chunks is not None:
        content["chunk_grid"]["configuration"]["chunk_shape"] = list(chunks)
    file.write_text(json.dumps({**content, **changes}))


def sized(path: Path, members: int = 2, images: int = 4, rows: int = 4, **changes: Any) -> Path:
    for name in ("mean", "variance"):
        declare(path, name, shape=[members, images, rows, 8], **changes)
    for name in ("target", "valid"):
        declare(path, name, shape=[images, rows, 8])
    return path


def without(path: Path, *chunks: str) -> Path:
    for chunk in chunks:
        (path / chunk).unlink()
    return path


def chunk(path: Path, content: bytes) -> Path:
    (path / "mean/c/1/2/0/0").write_bytes(content)
    return path


def bombs(path: Path, content: bytes) -> Path:
    """Every chunk of the mean, of 4 MiB as it is declared, is this one."""
    declare(path, "mean", chunks=(1, 1, 1024, 1024))
    for file in (path / "mean/c").glob("*/*/0/0"):
        file.write_bytes(content)
    return path


def zstd_bomb(size: int, declared: bool) -> bytes:
    """A frame of zstd that unpacks to zeros, in blocks that repeat one byte."""
    block = 2**17
    head = b"\x28\xb5\x2f\xfd" + (b"\xe0" + size.to_bytes(8, "little") if declared else b"\x00\x38")
    blocks = [
        (block << 3 | 1 << 1 | (number == size // block - 1)).to_bytes(3, "little") for number in range(size // block)
    ]
    return head + b"".join(each + b"\0" for each in blocks)


def sparse(file: Path, size: int) -> None:
    with file.open("wb") as stream:
        stream.truncate(size)


def npz(path: Path, **changes: Any) -> Path:
    np.savez(path, **{**VALUES, **changes})
    return path


def header(path: Path, name: str, shape: tuple[int, ...], dtype: str = "<f4") -> Path:
    """An .npz one of whose arrays declares more than it holds."""
    npz(path)
    with zipfile.ZipFile(path) as archive:
        parts = {entry: archive.read(entry) for entry in archive.namelist()}
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    parts[f"{name}.npy"] = (
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + b"\0" * 8 * (dtype != "<U0")
    )
    with zipfile.ZipFile(path, "w") as archive:
        for entry, content in parts.items():
            archive.writestr(entry, content)
    return path


def twice(path: Path, second: str) -> Path:
    npz(path)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(second, archive.read("mean.npy"))
    return path


def large_directory(path: Path) -> Path:
    """An entry whose unpacked size is 3 GiB, as the directory says."""
    npz(path)
    content = bytearray(path.read_bytes())
    place = content.index(b"PK\1\2")
    content[place + 24 : place + 28] = struct.pack("<I", 3 * 2**30)
    path.write_bytes(content)
    return path


def many_entries(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(30_000):
            archive.writestr(f"{number}", b"")
    return path


def coarse(path: Path, name: str, **changes: Any) -> Path:
    """Logits on a grid, (member, image, coarse row, coarse column, class)."""
    attributes = {"version": 1, "kind": "categorical", "align_corners": True}
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes=attributes)
    group.create_array("logits", data=RNG.normal(size=(2, 1, 2, 2, 3)).astype(np.float32))
    group.create_array("target", data=np.ones((1, 8, 8), int))
    group.create_array("image_size", data=np.full((1, 2), 8))
    declare(path, name, **changes)
    return path


def pipe(path: Path) -> Path:
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    return path


def in_store(path: Path, file: str, make: Any, *arguments: Any) -> Path:
    make(path / file, *arguments)
    return path


def many_classes(path: Path) -> Path:
    """4 GiB for each pixel, in chunks of 4 MiB that are packed to nothing."""
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"version": 1, "kind": "categorical"})
    probs = group.create_array(
        "probs", shape=(1024, 1, 2**20), chunks=(1, 1, 2**20), dtype="float32", compressors=ZstdCodec()
    )
    probs[0] = np.ones((1, 2**20), np.float32)
    first = path / "probs/c/0/0/0"
    for member in range(1, 1024):
        (path / f"probs/c/{member}/0").mkdir(parents=True)
        shutil.copyfile(first, path / f"probs/c/{member}/0/0")
    group.create_array("target", data=np.zeros(1, int))
    return path


SHARD = (2, 4, 4, 8)
CASES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "ours, no mean": (lambda p: without(ours(p), "mean/c/1/2/0/0"), ("'mean' has no chunk at member 1, image 2",)),
    "ours, no target": (lambda p: without(ours(p), "target/c/3/0/0"), ("'target' has no chunk at image 3",)),
    "ours, no valid": (lambda p: without(ours(p), "valid/c/3/0/0"), ("'valid' has no chunk at image 3",)),
    "ours, no image_id": (lambda p: without(ours(p), "image_id/c/0"), ("'image_id' has no chunk",)),
    "foreign, no mean": (
        lambda p: without(foreign(p), "mean/c/0/0/0/0"),
        ("'mean' has no chunk at member 0, image 0",),
    ),
    "foreign, no variance": (lambda p: without(foreign(p), "variance/c/1/3/0/0"), ("at member 1, image 3",)),
    "foreign, no probs": (lambda p: without(classes(p), "probs/c/1/2/0/0/0"), ("'probs' has no chunk at member 1",)),
    "no chunk in a shard": (lambda p: shard_without(foreign(p, shards=SHARD)), ("at member 1, image 2",)),
    "no shard": (lambda p: without(foreign(p, shards=SHARD), "mean/c/0/0/0/0"), ("'mean' has no chunk at member 0",)),
    "a shard cut short": (lambda p: cut(foreign(p, shards=SHARD), "mean/c/0/0/0/0", 50), ("truncated",)),
    "a billion members": (lambda p: sized(foreign(p), members=10**9), ("at member 2, image 0",)),
    "a billion members in a chunk": (
        lambda p: sized(foreign(p), members=10**9, chunks=(10**9, 1, 4, 8)),
        ("a chunk of 'mean' has more than 256 MiB",),
    ),
    "5,000 members": (lambda p: many_members(p), ("5,000 members; a store has at most 4,096",)),
    "many images": (lambda p: sized(foreign(p), images=MANY), ("'mean' has no chunk at member 0, image 4",)),
    "many images of one chunk": (
        lambda p: sized(foreign(p), images=MANY, chunks=(2, MANY, 4, 8)),
        ("a chunk of 'mean' has more than 256 MiB",),
    ),
    "more values than numbers": (lambda p: sized(foreign(p), images=MANY, rows=MANY), ("'mean' has no chunk",)),
    "many classes": (many_classes, ("all members of one pixel take 4,096 MiB",)),
    "many names": (lambda p: foreign_shape(p, "image_id", (MANY,)), ("'image_id' has more than",)),
    "many chunks of a target": (lambda p: tiny_chunks(p), ("'target' has more than 4,194,304 chunks",)),
    "gzip bombs": (
        lambda p: bombs(foreign(p, GzipCodec()), gzip.compress(bytes(2**26)) * 64),
        ("array 'mean'", "unpacks to more"),
    ),
    "a small gzip bomb": (lambda p: chunk(foreign(p, GzipCodec()), gzip.compress(bytes(2**20))), ("unpacks to more",)),
    "gzip bombs in gzip": (
        lambda p: bombs(foreign(p, [GzipCodec(), GzipCodec()]), gzip.compress(gzip.compress(bytes(2**26)) * 64)),
        ("array 'mean'", "unpacks to more"),
    ),
    "many parts of gzip": (lambda p: chunk(foreign(p, GzipCodec()), gzip.compress(b"") * 100), ("array 'mean'",)),
    "zstd bombs": (lambda p: bombs(foreign(p, ZstdCodec()), zstd_bomb(2**32, True)), ("unpacks to more",)),
    "zstd bombs without size": (
        lambda p: bombs(foreign(p, ZstdCodec()), zstd_bomb(2**32, False)),
        ("unpacks to more",),
    ),
    "a small zstd bomb": (lambda p: chunk(foreign(p, ZstdCodec()), zstd_bomb(2**20, True)), ("unpacks to more",)),
    "zstd of bytes": (lambda p: chunk(foreign(p, ZstdCodec()), b"\x28\xb5\x2f\xfd"), ("array 'mean'",)),
    "a blosc bomb": (
        lambda p: chunk(
            foreign(p, BloscCodec()), b"\2\1\x21\4" + struct.pack("<III", 2**31 - 1, 2**31 - 1, 40) + b"\0" * 24
        ),
        ("array 'mean'", "unpacks to more"),
    ),
    "a chunk that is mostly a hole": (
        lambda p: in_store(foreign(p, None), "mean/c/1/2/0/0", sparse, 2**36),
        ("array 'mean'", "has more bytes than its shape needs"),
    ),
    "metadata that are mostly a hole": (lambda p: in_store(ours(p), "zarr.json", sparse, 2**36), ("no metadata need",)),
    "metadata of a mean, too": (lambda p: in_store(ours(p), "mean/zarr.json", sparse, 2**36), ("no metadata need",)),
    "deep metadata": (lambda p: in_store(ours(p), "zarr.json", Path.write_text, "[" * 10**5), ("cannot be read",)),
    "a chunk that is a pipe": (lambda p: in_store(foreign(p), "mean/c/0/0/0/0", pipe), ("a pipe or a device",)),
    "metadata that are a pipe": (lambda p: in_store(foreign(p), "zarr.json", pipe), ("a pipe or a device",)),
    "a pipe": (lambda p: pipe(p.with_suffix(".npz")), ("a pipe or a device",)),
    "an npz among others that is a pipe": (
        lambda p: (p.mkdir(), npz(p / "a.npz"), pipe(p / "b.npz"), p)[-1],
        ("a pipe or a device",),
    ),
    "an array twice": (lambda p: twice(p.with_suffix(".npz"), "mean.npy"), ("holds 'mean' twice",)),
    "an array twice, without suffix": (lambda p: twice(p.with_suffix(".npz"), "mean"), ("holds 'mean' twice",)),
    "an npz of a billion members": (lambda p: header(p.with_suffix(".npz"), "mean", (10**9, 4, 4, 8)), ("truncated",)),
    "an npz below nothing": (lambda p: header(p.with_suffix(".npz"), "mean", (-1, -2)), ("truncated",)),
    "names without letters": (
        lambda p: header(p.with_suffix(".npz"), "image_id", (MANY,), "<U0"),
        ("'image_id' is truncated",),
    ),
    "an npz that unpacks to 3 GiB": (lambda p: large_directory(p.with_suffix(".npz")), ("at most 1 GiB",)),
    "an npz of many arrays": (lambda p: many_entries(p.with_suffix(".npz")), ("far more arrays",)),
    "many names in a chunk": (
        lambda p: foreign_shape(p, "image_id", (MANY,), chunks=(10**6,)),
        ("'image_id' has shape (1000000000000,); it must be (4,)",),
    ),
    "a target far finer than its grid": (
        lambda p: coarse(p, "target", shape=(1, 10**6, 10**6), chunks=(1, 4000, 4000)),
        ("times coarser",),
    ),
    "sizes of many images": (
        lambda p: coarse(p, "image_size", shape=(MANY, 2), chunks=(10**7, 2)),
        ("'image_size' must be integers (1, 2)",),
    ),
    "format 2": (lambda p: (zarr.open_group(p, mode="w", zarr_format=2), p)[-1], ("zarr format 2 is not read",)),
    "a zip": (
        lambda p: (p.with_suffix(".zip").write_bytes(b"PK"), p.with_suffix(".zip"))[-1],
        ("not a prediction store",),
    ),
}


def cut(path: Path, file: str, size: int) -> Path:
    (path / file).write_bytes((path / file).read_bytes()[:size])
    return path


def shard_without(path: Path) -> Path:
    """A shard of 2 members and 4 images without member 1, image 2."""
    file = path / "mean/c/0/0/0/0"
    content = bytearray(file.read_bytes())
    index = np.frombuffer(content, "<u8", 16, len(content) - 8 * 16 - 4).copy().reshape(2, 4, 2)
    index[1, 2] = np.iinfo(np.uint64).max
    content[-8 * 16 - 4 : -4] = index.tobytes()
    content[-4:] = struct.pack("<I", crc32c(index.tobytes()))
    file.write_bytes(content)
    return path


def many_members(path: Path) -> Path:
    group = zarr.open_group(path, mode="w", zarr_format=3, attributes={"version": 1, "kind": "gaussian"})
    for name in ("mean", "variance"):
        group.create_array(name, data=np.ones((5000, 3), np.float32))
    group.create_array("target", data=np.ones(3, np.float32))
    return path


def foreign_shape(path: Path, name: str, shape: tuple[int, ...], **changes: Any) -> Path:
    foreign(path, **{name: np.arange(4)})
    declare(path, name, shape=list(shape), **changes)
    return path


def tiny_chunks(path: Path) -> Path:
    foreign(path)
    declare(path, "target", shape=[4, 10**4, 10**4], chunks=(1, 1, 1))
    return path


@pytest.fixture(scope="module")
def answered(tmp_path_factory) -> dict[str, Answer]:
    folder = tmp_path_factory.mktemp("stores")
    paths = {name: make(folder / f"{number}") for number, (name, (make, _)) in enumerate(CASES.items())}
    return answers({name: ["score", path] for name, path in paths.items()}, folder)


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_store_is_refused_in_one_line(name: str, answered: dict[str, Answer]) -> None:
    assert_refused(answered[name], *CASES[name][1])


def test_absent_targets_of_others_are_their_fill_value(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "a", mode="w", zarr_format=3, attributes={"version": 1, "kind": "gaussian"})
    for name, values in VALUES.items():
        filled = {"target": 7.0, "valid": True}.get(name, 0)
        group.create_array(name, data=values, chunks=(1, 1, 4, 8)[-values.ndim :], fill_value=filled)
    for name in ("target", "valid"):
        (tmp_path / "a" / name / "c/1/0/0").unlink(missing_ok=True)
    arrays = open_store(tmp_path / "a").arrays
    every = (slice(None),) * 3
    assert (arrays["target"].read(every)[1] == 7).all()
    assert arrays["valid"].read(every).all()


@pytest.mark.parametrize("codec", ["gzip", "zstd", "zstd without size", "blosc", "two parts of gzip", "shards"])
def test_what_codecs_pack_is_read_as_it_was(tmp_path: Path, codec: str) -> None:
    compressors = {"zstd": ZstdCodec(), "zstd without size": ZstdCodec(), "blosc": BloscCodec()}.get(codec, GzipCodec())
    path = foreign(tmp_path / "a", compressors, SHARD if codec == "shards" else None)
    values = VALUES["mean"][1, 2].tobytes()
    if codec == "two parts of gzip":
        chunk(path, gzip.compress(values[:50]) + gzip.compress(values[50:]))
    if codec == "zstd without size":
        raw = (len(values) << 3 | 1).to_bytes(3, "little") + values
        chunk(path, b"\x28\xb5\x2f\xfd\x00\x38" + raw)
    read = open_store(path).arrays["mean"].read((slice(None),) * 4)
    np.testing.assert_array_equal(read, VALUES["mean"])


def test_large_chunks_are_read_one_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from epibench.store import formats

    monkeypatch.setattr(formats, "AT_ONCE", 1)
    read = open_store(foreign(tmp_path / "a")).arrays["mean"].read((slice(0, 2), slice(1, 4), slice(1, 3), slice(2, 8)))
    np.testing.assert_array_equal(read, VALUES["mean"][:, 1:, 1:3, 2:])
