"""A pool of stored outputs: read block by block, checked and masked once."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from epibench.errors import InputError
from epibench.members.draws import Draws
from epibench.members.maps import upsampled_rows
from epibench.members.pool import DrawnPart, Pixels, PoolOnData
from epibench.results import Counted, Tally
from epibench.store.formats import SHARED, UNCERTAIN, Array, PredictionStore, Source, readable

BUDGET = 128 * 2**20
BAND = 2**26  # bytes of rows that are read at once for a picture
LEAST_BYTES = 16  # of a pixel, as blocks are planned: targets and sums take memory, too
GRIDS = 2**29  # bytes of coarse logits that are kept in memory
NO_LABEL = 255
CPU = torch.device("cpu")


class Block(NamedTuple):
    """A contiguous range of pixels: one slice per free axis, and the flat index of the first pixel."""

    selection: tuple[slice, ...]
    start: int
    num_pixels: int


class CheckedBlock(NamedTuple):
    """A block after masking and checking.

    `invalid`: numbers of NaN and infinite values by array. `first`: text about the first one.
    """

    pixels: Pixels
    tally: Tally
    invalid: Counter[str]
    first: str


@dataclass
class StoredPredictions(PoolOnData):
    """The members of a prediction store on its valid pixels; a thread reads the next block in advance.

    All members' outputs of a block take at most `budget` bytes (one pixel at least), and two blocks are in memory. The
    ends of blocks depend on the store and the budget alone. `tally` counts the pixels of the blocks so far.

    A pixel is dropped if `valid` is false there or, for classes, if its target is `ignore_index` (by default 255,
    unless that is a class). NaN and infinite values in other pixels raise an InputError after all have been counted;
    `skip_invalid` drops these pixels instead. Impossible values are always refused.
    """

    store: PredictionStore
    ignore_index: int | None = None
    skip_invalid: bool = False
    budget: int = BUDGET
    device: torch.device = CPU
    uncertainty_map: int | None = None  # index of the map to read, if there are several
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.store = refined(self.store)
        if self.store.num_classes is None:
            self.ignore_index = None
        elif self.ignore_index is None and self.store.num_classes <= NO_LABEL:
            self.ignore_index = NO_LABEL

    @property
    def num_images(self) -> int:
        """The length of the first axis."""
        return self.store.shape[0]

    @property
    def num_pixels(self) -> int:
        """The number of valid pixels so far."""
        return self.tally.valid

    def parts(self, draws: Draws) -> list[DrawnPart]:
        """Return all members as one part: a store is read once."""
        return [DrawnPart(slice(0, self.store.num_members), list(range(len(draws.sets))), draws.weights)]

    def portions(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[StoredPredictions]:
        """Yield the whole store; its blocks bound the memory."""
        yield self

    def blocks(self, part: DrawnPart) -> Iterator[Pixels]:
        """Yield the valid pixels with the outputs of all members."""
        return iter(self)

    def __iter__(self) -> Iterator[Pixels]:
        self.tally = Tally()
        invalid, first, scanned = Counter[str](), "", 0
        with closing(self._checked_blocks()) as blocks:
            for checked in blocks:
                self.tally += checked.tally
                invalid += checked.invalid
                first = first or checked.first
                scanned += checked.pixels.scanned
                if checked.tally.valid and (self.skip_invalid or not invalid):
                    yield replace(checked.pixels, scanned=scanned)
                    scanned = 0
                # Free the block before the block after the next one is read.
                del checked
        tally = self.tally
        if invalid and not self.skip_invalid:
            counts = " and ".join(f"{n} value{'s' * (n != 1)} of {name!r}" for name, n in invalid.items())
            word = self.store.counted
            raise InputError(
                f"{self.store.path}: {counts} NaN or infinite, in {number_of(tally.skipped, word)}, "
                f"first at {first}; correct them, mask them with 'valid', or drop these {word} with --skip-invalid"
            )
        if not tally.valid:
            there = number_of(self.store.num_pixels, self.store.counted)
            raise InputError(
                f"{self.store.path}: none of {there} is valid ({tally.masked} masked by "
                f"'valid', {tally.ignored} with the ignored label, {tally.skipped} with NaN or infinite values); "
                "check 'valid' and --ignore-index"
            )

    def _checked_blocks(self) -> Generator[CheckedBlock, None, None]:
        blocks = plan_blocks(self.store, self.budget)
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="epibench-pixels") as executor:
            pending = executor.submit(self._read, next(blocks))
            for block in blocks:
                checked = pending.result()
                pending = executor.submit(self._read, block)
                yield checked
                del checked
            yield pending.result()

    def _read(self, block: Block) -> CheckedBlock:
        target, kept, tally = self._read_target(block)
        outputs = {name: self._read_output(name, block, kept) for name in self.store.output_names}
        positions = kept + block.start
        image = positions // math.prod(self.store.shape[1:]) if self.store.has_images else None
        if image is not None and len(image) and image[0] == image[-1]:
            image = image[:1].clone().expand(len(image))  # without memory of its own
        pixels, invalid, first = Pixels(outputs, target, image, block.num_pixels), Counter[str](), ""
        if bad := _find_invalid(pixels):
            invalid = Counter({name: int(flags.count_nonzero()) for name, flags in bad.items()})
            bad = {name: flags.any(-1) if flags.ndim == 3 else flags for name, flags in bad.items()}
            bad_pixels = torch.stack([flags.any(0) for flags in bad.values()]).any(0)
            first = _first_invalid(self.store, pixels, positions, bad, int(bad_pixels.nonzero()[0]))
            finite = (~bad_pixels).nonzero().squeeze(1)
            outputs = {name: values.index_select(1, finite) for name, values in outputs.items()}
            image = None if image is None else image[finite]
            pixels, positions = Pixels(outputs, target[finite], image, block.num_pixels), positions[finite]
            tally = tally.model_copy(update={"valid": len(finite), "skipped": len(target) - len(finite)})
        _refuse_impossible(self.store, pixels, positions)
        return CheckedBlock(pixels, tally, invalid, first)

    def _read_target(self, block: Block) -> tuple[Tensor, Tensor, Tally]:
        """The targets to use, their flat indices in the block, and why others are not used."""
        dtype = np.float64 if self.store.num_classes is None else np.int64
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

    def _read_output(self, name: str, block: Block, kept: Tensor) -> Tensor:
        """Return an array at the kept pixels, (member, pixel[, class]).

        Members are read a few at a time, so that masked pixels never fill memory.
        """
        source, num_members = self.store.arrays[name], self.store.num_members
        last = tuple(slice(0, n) for n in source.shape[1 + len(self.store.shape) :])
        if last and name in UNCERTAIN and self.uncertainty_map is not None:
            last = (slice(self.uncertainty_map, self.uncertainty_map + 1),)
        classes = tuple(part.stop - part.start for part in last)
        # numpy asks for huge pages and copies in one thread: several times faster than torch beside a busy consumer.
        result = np.empty((num_members, len(kept), *classes), dtype=source.dtype.newbyteorder("="))
        step = min(source.chunks[0], num_members)
        for member in range(0, num_members if len(kept) else 0, step):
            members = slice(member, min(member + step, num_members))
            part = _read_part(self.store, name, (members, *block.selection, *last))
            part = part.reshape(len(part), block.num_pixels, *classes)
            if len(kept) == block.num_pixels:
                result[members] = part
            else:
                np.take(part, kept.numpy(), axis=1, out=result[members], mode="clip")
        values = torch.from_numpy(result)
        return values.squeeze(2) if name in UNCERTAIN and classes == (1,) else values

    def thinned(self, name: str, image: int, step: int, member: int | None = None) -> Array:
        """Every step-th row and column of an array of one image, (height, width, …), unchecked.

        member: for arrays of members. Bands of rows bound the memory.
        """
        source = self.store.arrays[name]
        leading = (slice(image, image + 1),) if member is None else (slice(member, member + 1), slice(image, image + 1))
        axis = len(leading)
        height, chunk = source.shape[axis], source.chunks[axis]
        rest = tuple(slice(0, length) for length in source.shape[axis + 1 :])
        row_bytes = math.prod(source.shape[axis + 1 :]) * source.dtype.itemsize
        length = chunk * max(1, BAND // (chunk * row_bytes))
        bands = []
        for start in range(0, height, length):
            part = _read_part(self.store, name, (*leading, slice(start, min(start + length, height)), *rest))
            bands.append(part.reshape(part.shape[axis:])[-start % step :: step, ::step].copy())
        return np.concatenate(bands)

    def thinned_target(self, image: int, step: int) -> tuple[Tensor, Tensor]:
        """Every step-th row and column of the target of one image, and where it counts."""
        dtype = np.float64 if self.store.num_classes is None else np.int64
        target = torch.from_numpy(self.thinned("target", image, step).astype(dtype))
        valid = torch.ones(target.shape, dtype=torch.bool)
        if "valid" in self.store.arrays:
            valid = torch.from_numpy(self.thinned("valid", image, step))
        return target, valid if self.ignore_index is None else valid & (target != self.ignore_index)


def refined(store: PredictionStore) -> PredictionStore:
    """Return the store with logits at the resolution of its targets; coarse logits are interpolated when read.

    They equal a network's own maps (`members.maps`), pixel by pixel.
    """
    if store.coarse is None:
        return store
    coarse, fine = store.coarse, store.arrays["logits"]
    dtype = np.dtype(np.float32) if fine.dtype == np.float16 else fine.dtype
    kept: dict[tuple[int, int], Tensor] = {}  # of one image at a time: bands of its rows are read one after another

    def grid(member: int, image: int) -> Tensor:
        """Return logits of a member on the grid of an image, (class, coarse row, coarse column)."""
        if (member, image) not in kept:
            for old in [key for key in kept if key[1] != image]:
                del kept[old]
            height, width = (int(length) for length in coarse.grid_sizes[image])
            leading = (slice(member, member + 1), slice(image, image + 1))
            values = coarse.source.read((*leading, slice(0, height), slice(0, width), slice(None)))[0, 0]
            if sum(each.nbytes for each in kept.values()) > GRIDS:
                kept.clear()
            kept[member, image] = torch.from_numpy(values.astype(dtype)).movedim(-1, 0).contiguous()
        return kept[member, image]

    def read(selection: tuple[slice, ...]) -> Array:
        ranges = [range(*part.indices(length)) for part, length in zip(selection, fine.shape, strict=True)]
        members, images, rows, columns, classes = ranges
        result = np.full([len(part) for part in ranges], np.nan, dtype)
        for number, image in enumerate(images):
            height, width = (int(length) for length in coarse.image_sizes[image])
            band = slice(rows.start, min(rows.stop, height))
            shown = slice(columns.start, min(columns.stop, width))
            if not (height and width) or band.start >= band.stop or shown.start >= shown.stop:
                continue
            for position, member in enumerate(members):
                wide = upsampled_rows(grid(member, image), (height, width), band, coarse.align_corners)
                part = wide[classes.start : classes.stop, :, shown].movedim(0, -1).numpy()
                result[position, number, : part.shape[0], : part.shape[1]] = part
        return result

    source = Source(fine.shape, dtype, fine.chunks, read)
    return replace(store, arrays={**store.arrays, "logits": source}, coarse=None)


def validate(
    store: PredictionStore, *, ignore_index: int | None = None, skip_invalid: bool = False, budget: int = BUDGET
) -> Tally:
    """Read and check every value of a store, and count its pixels."""
    predictions = StoredPredictions(store, ignore_index, skip_invalid, budget)
    for _ in predictions:
        pass
    return predictions.tally


def plan_blocks(store: PredictionStore, budget: int) -> Iterator[Block]:
    """Split the pixels into contiguous blocks within `budget` bytes, at chunk borders if possible.

    One axis is split. The axes before it have one index at a time, the axes after it are whole.
    """
    outputs = [store.arrays[name] for name in store.output_names]
    pixel_bytes = sum(math.prod(source.shape) * source.dtype.itemsize for source in outputs) // store.num_pixels
    pixel_bytes = max(pixel_bytes, LEAST_BYTES)
    axis = 0
    while axis < len(store.shape) - 1 and math.prod(store.shape[axis + 1 :]) * pixel_bytes > budget:
        axis += 1
    inner, length = math.prod(store.shape[axis + 1 :]), store.shape[axis]
    step = max(1, budget // (inner * pixel_bytes))
    chunk = min(length, max(source.chunks[1 + axis] for source in outputs))
    if step >= chunk:
        starts = list(range(0, length, step - step % chunk))  # after whole chunks
    else:  # within chunks, never across
        borders = range(0, length, chunk)
        starts = [start for first in borders for start in range(first, min(first + chunk, length), step)]
    start, after = 0, tuple(slice(0, n) for n in store.shape[axis + 1 :])
    for leading in itertools.product(*(range(n) for n in store.shape[:axis])):
        before = tuple(slice(index, index + 1) for index in leading)
        for begin, end in itertools.pairwise([*starts, length]):
            yield Block((*before, slice(begin, end), *after), start, (end - begin) * inner)
            start += (end - begin) * inner


def location(store: PredictionStore, position: int, member: int | None = None) -> str:
    """Return a text about the place of a pixel or sample.

    E.g. member 3, image 17 ('frankfurt_000'), row 40, column 7.
    """
    index = [int(i) for i in np.unravel_index(position, store.shape)]
    words = []
    if member is not None:
        words.append(f"member {member}" + (f" ({store.member_id[member]!r})" if store.member_id else ""))
    if store.has_images:
        image, *index = index
        words.append(f"image {image}" + (f" ({store.image_id[image]!r})" if store.image_id else ""))
    elif len(index) == 1 or store.counted == "samples":
        words.append(f"sample {index[0]}")
        index = []
    if index:
        words.append("row {}, column {}".format(*index) if len(index) == 2 else f"index {tuple(index)}")
    return ", ".join(words)


def number_of(number: int, counted: Counted) -> str:
    """Return e.g. `1 pixel` or `20 samples`."""
    return f"{number} {counted if number != 1 else counted[:-1]}"


def _read_part(store: PredictionStore, name: str, selection: tuple[slice, ...]) -> Array:
    member = None if name in SHARED else selection[0].start
    free = selection[: len(store.shape)] if member is None else selection[1 : 1 + len(store.shape)]
    start = int(np.ravel_multi_index([s.start for s in free], store.shape))
    with readable(f"{store.path}: array {name!r} from {location(store, start, member)}"):
        return np.ascontiguousarray(store.arrays[name].read(selection))


def _find_invalid(pixels: Pixels) -> dict[str, Tensor]:
    """Return where values are NaN or infinite, by array; arrays without such values are left out."""
    bad = {}
    for name, values in {**pixels.outputs, "target": pixels.target[None]}.items():
        # Extremes propagate NaN: one pass detects all invalid values.
        if values.is_floating_point() and values.numel() and not all(map(torch.isfinite, torch.aminmax(values))):
            bad[name] = ~torch.isfinite(values)
    return bad


def _first_invalid(
    store: PredictionStore, pixels: Pixels, positions: Tensor, bad: dict[str, Tensor], pixel: int
) -> str:
    name = next(name for name, flags in bad.items() if flags[:, pixel].any())
    member = int(bad[name][:, pixel].nonzero()[0])
    where = location(store, int(positions[pixel]), None if name == "target" else member)
    values = pixels.target if name == "target" else pixels.outputs[name][member]
    neighbours = values if pixels.image is None else values[pixels.image == pixels.image[pixel]]
    if len(neighbours) > 1 and bool(torch.isnan(neighbours).all()):
        where += ", where all are NaN: was this part never written?"
    return where if len(bad) == 1 else f"{name!r} of {where}"


def _refuse_impossible(store: PredictionStore, pixels: Pixels, positions: Tensor) -> None:
    """Raise an InputError for finite values that are impossible in their array."""
    if not len(positions):
        return

    def refuse(name: str, values: Tensor, flags: Tensor, problem: str) -> None:
        """Name the first flagged place; flags: (member, pixel)."""
        pixel = int(flags.any(0).nonzero()[0])
        member = int(flags[:, pixel].nonzero()[0])
        value = values[member, pixel].flatten()
        worst, where = float(value[(value - 0.5).abs().argmax()]), location(store, int(positions[pixel]), member)
        raise InputError(f"{store.path}: {name} {worst:.4g} at {where} {problem}")

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
    if (predicted := pixels.outputs.get("predicted")) is not None and store.num_classes is not None:
        flags = (predicted < 0) | (predicted >= store.num_classes)
        if flags.any():
            refuse("predicted", predicted, flags, f"is none of the {store.num_classes} classes; was it written?")
    if (variance := pixels.outputs.get("variance")) is not None and float(variance.min()) < 0:
        refuse("variance", variance, variance < 0, "is negative; was the log variance stored?")
    if (logits := pixels.outputs.get("logits")) is not None:
        low, high = torch.aminmax(logits)
        if float(low) >= 0 and float(high) <= 1 and float((_sum_over_classes(logits) - 1).abs().max()) < 1e-2:
            raise InputError(
                f"{store.path}: 'logits' lie in [0, 1] and sum to 1: they are probabilities; name them 'probs'"
            )
    if (probs := pixels.outputs.get("probs")) is not None:
        tolerance = 1e-2 if probs.dtype == torch.float16 else 1e-3
        low, high = torch.aminmax(probs)
        if float(low) < -tolerance or float(high) > 1 + tolerance:
            flags = ((probs < -tolerance) | (probs > 1 + tolerance)).any(-1)
            refuse("probs", probs, flags, "is outside [0, 1]; are these logits? Then name them so")
        sums = _sum_over_classes(probs)
        if float((sums - 1).abs().max()) > tolerance:
            flags = (sums - 1).abs() > tolerance
            refuse("sum of probs", sums, flags, "is not 1; normalise over the last axis (softmax)")


def _sum_over_classes(probs: Tensor) -> Tensor:
    """Return sums (member, pixel). A product with ones is several times faster than a sum over a short last axis."""
    return probs.sum(-1) if probs.dtype == torch.float16 else probs @ torch.ones(probs.shape[-1], dtype=probs.dtype)
