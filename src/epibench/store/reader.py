"""The valid pixels of a prediction store, read block by block in bounded memory, checked and masked once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from epibench.errors import InputError
from epibench.members.pool import Pixels
from epibench.store.formats import Array, readable
from epibench.store.structure import PredictionStore

BUDGET = 128 * 2**20
NO_LABEL = 255


@dataclass
class Tally:
    """What became of the pixels: used, or dropped because masked, without label, or with NaN or infinite values."""

    valid: int = 0
    masked: int = 0
    ignored: int = 0
    skipped: int = 0

    def add(self, other: Tally) -> None:
        """Count the pixels of another block."""
        self.valid += other.valid
        self.masked += other.masked
        self.ignored += other.ignored
        self.skipped += other.skipped


@dataclass(frozen=True)
class Block:
    """A contiguous range of pixels: one slice per free axis, and the flat index of the first pixel."""

    selection: tuple[slice, ...]
    start: int
    num_pixels: int


@dataclass
class InvalidValues:
    """NaN and infinite values: how many of each array, in how many pixels, and the first place in words."""

    values: dict[str, int] = field(default_factory=dict)
    pixels: int = 0
    first: str = ""

    def add(self, other: InvalidValues) -> None:
        """Count those of a later block."""
        for name, count in other.values.items():
            self.values[name] = self.values.get(name, 0) + count
        self.pixels += other.pixels
        self.first = self.first or other.first


@dataclass(frozen=True)
class _Checked:
    """A block after masking and checking."""

    pixels: Pixels
    tally: Tally
    invalid: InvalidValues


class PixelReader:
    """Iterate over the valid pixels of a store while a thread reads the next block.

    All members' outputs of a block take at most `budget` bytes (one pixel at least), and two blocks are in memory.
    Where blocks end depends on the store and the budget alone. `tally` counts the pixels of the blocks so far.

    A pixel is dropped if `valid` is false there or, for classes, if its target is `ignore_index` (by default 255,
    unless that is a class). NaN and infinite values in the others raise an InputError once all have been counted;
    `skip_invalid` drops these pixels instead. Values that cannot be meant are always refused.
    """

    def __init__(
        self,
        store: PredictionStore,
        *,
        ignore_index: int | None = None,
        skip_invalid: bool = False,
        budget: int = BUDGET,
    ) -> None:
        if ignore_index is None and store.num_classes is not None and store.num_classes <= NO_LABEL:
            ignore_index = NO_LABEL
        self.store = store
        self.ignore_index = ignore_index if store.kind == "categorical" else None
        self.skip_invalid = skip_invalid
        self.budget = budget
        self.tally = Tally()

    def __iter__(self) -> Iterator[Pixels]:
        self.tally = Tally()
        invalid = InvalidValues()
        scanned = 0
        with closing(self._checked_blocks()) as blocks:
            for checked in blocks:
                self.tally.add(checked.tally)
                invalid.add(checked.invalid)
                scanned += checked.pixels.scanned
                if checked.tally.valid and (self.skip_invalid or not invalid.pixels):
                    yield replace(checked.pixels, scanned=scanned)
                    scanned = 0
                # Free the block before the next one but one is read.
                del checked
        if invalid.pixels and not self.skip_invalid:
            raise InputError(_invalid_message(self.store, invalid))
        if not self.tally.valid:
            raise InputError(_no_pixels_message(self.store, self.tally))

    def _checked_blocks(self) -> Generator[_Checked, None, None]:
        blocks = plan_blocks(self.store, self.budget)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="epibench-pixels") as executor:
            pending = executor.submit(self._read, next(blocks))
            for block in blocks:
                checked = pending.result()
                pending = executor.submit(self._read, block)
                yield checked
                del checked
            yield pending.result()

    def _read(self, block: Block) -> _Checked:
        target, kept, tally = self._read_target(block)
        outputs = {name: self._read_output(name, block, kept) for name in self.store.output_names}
        positions = kept + block.start
        image = positions // math.prod(self.store.shape[1:]) if self.store.has_images else None
        pixels = Pixels(outputs, target, image, block.num_pixels)
        invalid, finite = _find_invalid(self.store, pixels, positions)
        if invalid.pixels:
            pixels, positions = _select(pixels, finite), positions[finite]
            tally = replace(tally, valid=len(finite), skipped=invalid.pixels)
        _refuse_impossible(self.store, pixels, positions)
        return _Checked(pixels, tally, invalid)

    def _read_target(self, block: Block) -> tuple[torch.Tensor, torch.Tensor, Tally]:
        """The targets to use, their flat indices in the block, and why others are not used."""
        dtype = np.float64 if self.store.kind == "gaussian" else np.int64
        target = torch.from_numpy(_read_part(self.store, "target", block.selection).astype(dtype).reshape(-1))
        used = torch.ones(block.num_pixels, dtype=torch.bool)
        if "valid" in self.store.arrays:
            used = torch.from_numpy(_read_part(self.store, "valid", block.selection).reshape(-1).copy())
        masked = block.num_pixels - int(used.count_nonzero())
        if self.ignore_index is not None:
            used &= target != self.ignore_index
        kept = used.nonzero().squeeze(1)
        tally = Tally(valid=len(kept), masked=masked, ignored=block.num_pixels - masked - len(kept))
        return target[kept], kept, tally

    def _read_output(self, name: str, block: Block, kept: torch.Tensor) -> torch.Tensor:
        """(member, pixel[, class]); members are read a few at a time, so that what is masked never fills memory."""
        source, num_members = self.store.arrays[name], self.store.num_members
        classes = source.shape[1 + len(self.store.shape) :]
        # numpy asks for huge pages and copies in one thread: several times faster than torch beside a busy consumer.
        result = np.empty((num_members, len(kept), *classes), dtype=source.dtype.newbyteorder("="))
        step = min(source.chunks[0], num_members)
        for member in range(0, num_members if len(kept) else 0, step):
            members = slice(member, min(member + step, num_members))
            selection = (members, *block.selection, *(slice(0, n) for n in classes))
            part = _read_part(self.store, name, selection)
            part = part.reshape(len(part), block.num_pixels, *classes)
            if len(kept) == block.num_pixels:
                result[members] = part
            else:
                np.take(part, kept.numpy(), axis=1, out=result[members], mode="clip")
        return torch.from_numpy(result)


def validate(
    store: PredictionStore, *, ignore_index: int | None = None, skip_invalid: bool = False, budget: int = BUDGET
) -> Tally:
    """Read and check every value of a store, and count its pixels."""
    reader = PixelReader(store, ignore_index=ignore_index, skip_invalid=skip_invalid, budget=budget)
    for _ in reader:
        pass
    return reader.tally


def plan_blocks(store: PredictionStore, budget: int) -> Iterator[Block]:
    """Cut the pixels into contiguous blocks whose outputs fit into `budget` bytes, at chunk borders if they can.

    One axis is split; the axes before it go one index at a time, those after it are whole.
    """
    outputs = [store.arrays[name] for name in store.output_names]
    pixel_bytes = sum(math.prod(source.shape) * source.dtype.itemsize for source in outputs) // store.num_pixels
    axis = 0
    while axis < len(store.shape) - 1 and math.prod(store.shape[axis + 1 :]) * pixel_bytes > budget:
        axis += 1
    inner, length = math.prod(store.shape[axis + 1 :]), store.shape[axis]
    step = max(1, budget // (inner * pixel_bytes))
    chunk = min(length, max(source.chunks[1 + axis] for source in outputs))
    starts = _starts(length, step, chunk)
    start = 0
    for leading in itertools.product(*(range(n) for n in store.shape[:axis])):
        for begin, end in itertools.pairwise([*starts, length]):
            before = tuple(slice(index, index + 1) for index in leading)
            after = tuple(slice(0, n) for n in store.shape[axis + 1 :])
            num_pixels = (end - begin) * inner
            yield Block((*before, slice(begin, end), *after), start, num_pixels)
            start += num_pixels


def _starts(length: int, step: int, chunk: int) -> list[int]:
    """Where to cut an axis: after whole chunks if `step` holds one, otherwise within chunks, never across."""
    if step >= chunk:
        return list(range(0, length, step - step % chunk))
    return [start for border in range(0, length, chunk) for start in range(border, min(border + chunk, length), step)]


def location(store: PredictionStore, position: int, member: int | None = None) -> str:
    """Where a pixel is, in words: member 3, image 17 ('frankfurt_000'), row 40, column 7."""
    index = [int(i) for i in np.unravel_index(position, store.shape)]
    words = []
    if member is not None:
        words.append(f"member {member}" + (f" ({store.member_id[member]!r})" if store.member_id else ""))
    if store.has_images:
        image, *index = index
        words.append(f"image {image}" + (f" ({store.image_id[image]!r})" if store.image_id else ""))
    if len(index) == 1:
        words.append(f"pixel {index[0]}")
    elif len(index) == 2:
        words.append(f"row {index[0]}, column {index[1]}")
    elif index:
        words.append(f"index {tuple(index)}")
    return ", ".join(words)


def _read_part(store: PredictionStore, name: str, selection: tuple[slice, ...]) -> Array:
    member = None if name in ("target", "valid") else selection[0].start
    free = selection if member is None else selection[1 : 1 + len(store.shape)]
    start = int(np.ravel_multi_index([s.start for s in free], store.shape))
    with readable(f"{store.path}: array {name!r} from {location(store, start, member)}"):
        return np.ascontiguousarray(store.arrays[name].read(selection))


def _select(pixels: Pixels, kept: torch.Tensor) -> Pixels:
    outputs = {name: values.index_select(1, kept) for name, values in pixels.outputs.items()}
    image = None if pixels.image is None else pixels.image[kept]
    return Pixels(outputs, pixels.target[kept], image, pixels.scanned)


def _find_invalid(
    store: PredictionStore, pixels: Pixels, positions: torch.Tensor
) -> tuple[InvalidValues, torch.Tensor]:
    """Count NaN and infinite values, and give the indices of the pixels without any."""
    invalid = InvalidValues()
    bad_pixels = torch.zeros(len(positions), dtype=torch.bool)
    bad: dict[str, torch.Tensor] = {}
    for name, values in {**pixels.outputs, "target": pixels.target[None]}.items():
        if not values.is_floating_point() or _all_finite(values):
            continue
        flags = ~torch.isfinite(values)
        invalid.values[name] = int(flags.count_nonzero())
        bad[name] = flags.any(-1) if flags.ndim == 3 else flags
        bad_pixels |= bad[name].any(0)
    if bad:
        invalid.pixels = int(bad_pixels.count_nonzero())
        invalid.first = _first_invalid(store, pixels, positions, bad, int(bad_pixels.nonzero()[0]))
    return invalid, (~bad_pixels).nonzero().squeeze(1)


def _all_finite(values: torch.Tensor) -> bool:
    """Whether no value is NaN or infinite, in one pass: extremes carry NaN on."""
    return values.numel() == 0 or all(bool(torch.isfinite(extreme)) for extreme in torch.aminmax(values))


def _first_invalid(
    store: PredictionStore, pixels: Pixels, positions: torch.Tensor, bad: dict[str, torch.Tensor], pixel: int
) -> str:
    name = next(name for name, flags in bad.items() if flags[:, pixel].any())
    member = int(bad[name][:, pixel].nonzero()[0])
    where = location(store, int(positions[pixel]), None if name == "target" else member)
    values = pixels.target if name == "target" else pixels.outputs[name][member]
    neighbours = values if pixels.image is None else values[pixels.image == pixels.image[pixel]]
    if len(neighbours) > 1 and bool(torch.isnan(neighbours).all()):
        where += ", where all are NaN: was this part never written?"
    return where if len(bad) == 1 else f"{name!r} of {where}"


def _refuse_impossible(store: PredictionStore, pixels: Pixels, positions: torch.Tensor) -> None:
    """Raise on finite values that cannot be what their array is for."""
    if not len(positions):
        return
    if store.num_classes is not None:
        outside = (pixels.target < 0) | (pixels.target >= store.num_classes)
        if outside.any():
            first = int(outside.nonzero()[0])
            label = int(pixels.target[first])
            never = " or this image was never written" if label == -1 else ""
            raise InputError(
                f"{store.path}: target {label} at {location(store, int(positions[first]))} is none of the "
                f"{store.num_classes} classes; if it means 'no label'{never}, mask it with 'valid' or --ignore-index"
            )
    if (variance := pixels.outputs.get("variance")) is not None and float(variance.min()) < 0:
        _refuse(store, "variance", variance, variance < 0, positions, "is negative; was the log variance stored?")
    if (logits := pixels.outputs.get("logits")) is not None and _are_probabilities(logits):
        raise InputError(
            f"{store.path}: 'logits' lie in [0, 1] and sum to 1: they are probabilities; name them 'probs'"
        )
    if (probs := pixels.outputs.get("probs")) is not None:
        tolerance = 1e-2 if probs.dtype == torch.float16 else 1e-3
        low, high = torch.aminmax(probs)
        if float(low) < -tolerance or float(high) > 1 + tolerance:
            flags = ((probs < -tolerance) | (probs > 1 + tolerance)).any(-1)
            _refuse(store, "probs", probs, flags, positions, "is outside [0, 1]; are these logits? Then name them so")
        sums = _sum_over_classes(probs)
        if float((sums - 1).abs().max()) > tolerance:
            flags = (sums - 1).abs() > tolerance
            _refuse(store, "sum of probs", sums, flags, positions, "is not 1; normalise over the last axis (softmax)")


def _are_probabilities(values: torch.Tensor) -> bool:
    """Whether all values lie in [0, 1] and sum to 1 over the classes."""
    low, high = torch.aminmax(values)
    return float(low) >= 0 and float(high) <= 1 and float((_sum_over_classes(values) - 1).abs().max()) < 1e-2


def _sum_over_classes(probs: torch.Tensor) -> torch.Tensor:
    """(member, pixel). A product with ones is several times faster than a sum over a short last axis."""
    if probs.dtype == torch.float16:
        return probs.sum(-1)
    return probs @ torch.ones(probs.shape[-1], dtype=probs.dtype)


def _refuse(
    store: PredictionStore,
    name: str,
    values: torch.Tensor,
    flags: torch.Tensor,
    positions: torch.Tensor,
    problem: str,
) -> None:
    """Raise with the first flagged place; flags: (member, pixel)."""
    pixel = int(flags.any(0).nonzero()[0])
    member = int(flags[:, pixel].nonzero()[0])
    value = values[member, pixel].flatten()
    worst = float(value[(value - 0.5).abs().argmax()])
    raise InputError(f"{store.path}: {name} {worst:.4g} at {location(store, int(positions[pixel]), member)} {problem}")


def _invalid_message(store: PredictionStore, invalid: InvalidValues) -> str:
    counts = " and ".join(f"{count} value{'s' * (count != 1)} of {name!r}" for name, count in invalid.values.items())
    return (
        f"{store.path}: {counts} NaN or infinite, in {invalid.pixels} pixel{'s' * (invalid.pixels != 1)}, first at "
        f"{invalid.first}; correct them, mask them with 'valid', or drop these pixels with --skip-invalid"
    )


def _no_pixels_message(store: PredictionStore, tally: Tally) -> str:
    return (
        f"{store.path}: none of {store.num_pixels} pixels is valid ({tally.masked} masked by 'valid', {tally.ignored} "
        f"with the ignored label, {tally.skipped} with NaN or infinite values); check 'valid' and --ignore-index"
    )
