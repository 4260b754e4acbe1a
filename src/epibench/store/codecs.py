"""Codecs of chunks that may be run, and how much they may unpack."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from numcodecs import Blosc, Zstd
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec
from zarr.registry import register_codec

from epibench.errors import InputError

if TYPE_CHECKING:
    from zarr.core.array_spec import ArraySpec
    from zarr.core.buffer import Buffer

# Codecs that only transform bytes, or unpack no more than we allow. Others may run code (numcodecs' "pickle").
CORE = ("bytes", "endian", "transpose", "sharding_indexed", "vlen-utf8", "blosc", "gzip", "zstd", "crc32c")
FURTHER = (
    *("packbits", "shuffle", "astype", "delta", "bitround", "quantize", "fixedscaleoffset"),
    *("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3"),
)
SAFE_CODECS = {*CORE, *(f"numcodecs.{name}" for name in FURTHER)}
LABEL_BYTES = 1024  # of one text
TEXT_LIMIT = 2**27  # of all texts of a chunk
SLACK = 2**12  # what codecs may add to the bytes of a chunk
GZIP_PARTS = 1000
ZSTD_BLOCK = 2**17  # the most that one block of zstd unpacks to


def check_codecs(where: str, codecs: Sequence[Any]) -> None:
    """Refuse codecs that are not known to be harmless."""
    for name in _codec_names(codecs):
        if name not in SAFE_CODECS:
            raise InputError(f"{where} uses the codec {name!r}, which is never run; write it with blosc or zstd")


def _codec_names(codecs: Sequence[Any]) -> Iterator[str]:
    for codec in codecs:
        configuration = {} if isinstance(codec, str) else codec.get("configuration") or {}
        yield from _codec_names([*configuration.get("codecs", []), *configuration.get("index_codecs", [])])
        yield codec if isinstance(codec, str) else codec["name"]


def most_bytes(number: int, item_size: int | None) -> int:
    """The most bytes that values may take, packed or unpacked; item_size: None for texts."""
    return 2 * (min(number * LABEL_BYTES, TEXT_LIMIT) if item_size is None else number * item_size) + SLACK


class _Bounded:
    """Refuses a chunk that unpacks to more than its shape needs."""

    @staticmethod
    def _unpacked(data: memoryview, limit: int) -> Any:
        raise NotImplementedError

    def _decode_sync(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        limit = most_bytes(int(np.prod(chunk_spec.shape)), getattr(chunk_spec.dtype, "item_size", None))
        unpacked = self._unpacked(chunk_bytes.as_numpy_array().data, limit)
        return chunk_spec.prototype.buffer.from_array_like(np.frombuffer(unpacked, dtype="B"))

    async def _decode_single(self, chunk_bytes: Buffer, chunk_spec: ArraySpec) -> Buffer:
        return await asyncio.to_thread(self._decode_sync, chunk_bytes, chunk_spec)


class BoundedGzip(_Bounded, GzipCodec):
    """gzip."""

    @staticmethod
    def _unpacked(packed: memoryview, limit: int) -> bytes:
        data, parts = packed.tobytes(), list[bytes]()
        while data.rstrip(b"\0") or not parts:
            stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
            parts.append(stream.decompress(data, limit + 1))
            limit -= len(parts[-1])
            if limit < 0 or len(parts) > GZIP_PARTS:
                raise ValueError("a chunk unpacks to more than its shape needs")
            if not stream.eof:
                raise ValueError("a chunk is cut short")
            data = stream.unused_data
        return parts[0] if len(parts) == 1 else b"".join(parts)


class BoundedZstd(_Bounded, ZstdCodec):
    """zstd."""

    @staticmethod
    def _unpacked(data: memoryview, limit: int) -> Any:
        if zstd_size(data) > limit + ZSTD_BLOCK:
            raise ValueError("a chunk unpacks to more than its shape needs")
        return Zstd().decode(data)


class BoundedBlosc(_Bounded, BloscCodec):
    """blosc, which says itself how long a chunk is, packed and unpacked; cut short, it would read foreign memory."""

    @staticmethod
    def _unpacked(data: memoryview, limit: int) -> Any:
        unpacked, _, packed = (int.from_bytes(data[start : start + 4], "little") for start in (4, 8, 12))
        if packed != len(data) or packed < 16:
            raise ValueError(f"a chunk has {len(data)} bytes instead of {packed}")
        if unpacked > limit:
            raise ValueError("a chunk unpacks to more than its shape needs")
        return Blosc().decode(data)


BOUNDED = {"gzip": BoundedGzip, "zstd": BoundedZstd, "blosc": BoundedBlosc}
for _name, _codec in BOUNDED.items():
    register_codec(_name, _codec)


def bounded_codecs() -> Any:
    """A context in which arrays are opened with codecs that unpack no more than they should."""
    return zarr.config.set({f"codecs.{name}": f"{__name__}.{codec.__qualname__}" for name, codec in BOUNDED.items()})


def zstd_size(data: bytes | memoryview) -> int:
    """Bound the bytes that frames of zstd unpack to, by the headers of frames or blocks."""
    total = position = 0
    while position < len(data):
        magic = int.from_bytes(data[position : position + 4], "little")
        if magic & 0xFFFFFFF0 == 0x184D2A50:  # a frame that is skipped
            position += 8 + int.from_bytes(data[position + 4 : position + 8], "little")
            continue
        if magic != 0xFD2FB528 or position + 5 > len(data):
            raise ValueError("a chunk is not zstd")
        descriptor = data[position + 4]
        single, checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
        position += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3]
        width = (single, 2, 4, 8)[descriptor >> 6]
        declared = int.from_bytes(data[position : position + width], "little") + 256 * (width == 2)
        position += width
        last, blocks = False, 0
        while not last:
            if position + 3 > len(data):
                raise ValueError("a chunk is cut short")
            header = int.from_bytes(data[position : position + 3], "little")
            last, kind, size = bool(header & 1), header >> 1 & 3, header >> 3
            blocks += ZSTD_BLOCK if kind == 2 else size
            position += 3 + (1 if kind == 1 else size)
        position += 4 * checksum
        total += declared if width else blocks
    return total
