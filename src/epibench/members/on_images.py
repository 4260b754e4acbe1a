"""Large networks on the images of a domain, in portions, and their scored pixels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from epibench.data.batch import Batch, Samples
from epibench.data.given import LoadedBatches
from epibench.data.loading import InOrder, batches
from epibench.members.copied_ahead import copied_ahead
from epibench.members.maps import GroupedMaps, Maps, WindowMaps, joined
from epibench.members.networks import ImagePool
from epibench.members.pool import CHUNKS_AT_ONCE, DrawnPart, Pixels, PoolOnData, Stopwatch, chunk_size

NumberedBatch = tuple[range, Batch]  # images with their indices in the domain
# Pixels of a portion, which all members predict before the next one: enough to fill a GPU; fewer with many outputs.
PORTION_PIXELS = {"cpu": 2**18, "cuda": 2**22}
FEW_MAPS = 32


def portion_pixels(device: torch.device, members: int, classes: int | None) -> int:
    """Return the pixels that all members predict before more images are read."""
    return PORTION_PIXELS[device.type] // max(1, members * (classes or 1) // FEW_MAPS)


class Observer:
    """Receives all outputs of the members, to keep some."""

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Receive the predictions of some members for a batch. `images`: indices in the domain."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """Return its state, to resume from."""
        return {}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Resume from a saved state."""

    def close(self) -> None:
        """Finish after the last image."""

    def stop(self) -> None:
        """Stop early: the evaluation has failed or was interrupted."""


@dataclass
class NetworksOnImages(PoolOnData):
    """Large networks and the images of a domain.

    Args:
        pool: Members.
        samples: Images.
        batch_size: Size of batches.
        workers: Processes that load data.
        observers: Receivers of all outputs.
        num_classes: Number of scored classes.
        class_groups: Predicted classes that are merged into each scored class; None if both are the same.
        stretch: Images with separate metric states, a multiple of the batch size.
        stop: Index of the image before which to end; None for all.
    """

    pool: ImagePool
    samples: Samples
    batch_size: int = 1
    workers: int = 0
    observers: Sequence[Observer] = ()
    num_classes: int | None = None
    class_groups: Sequence[Sequence[int]] | None = None
    stretch: int | None = None
    stop: int | None = None
    watching: Stopwatch = field(init=False)

    def __post_init__(self) -> None:
        self.device = self.pool.device
        self.watching = Stopwatch(self.device)

    @property
    def num_images(self) -> int:
        """The number of images in the domain."""
        return len(self.samples)

    def ends_stretch(self, images: int) -> bool:
        """Return whether a stretch ends here. The last one may be shorter."""
        return self.stretch is not None and (images % self.stretch == 0 or images == len(self.samples))

    def portions(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[ImagePortion]:
        """Yield batches on the device, gathered until they are enough, or a stretch ends."""
        gathered, size, pixels = list[NumberedBatch](), 0, 0
        enough = portion_pixels(self.device, max(part.num_members for part in parts), self.num_classes)
        loaded = self.samples.batches(first) if isinstance(self.samples, LoadedBatches) else self._loaded(first)
        for batch, valid in copied_ahead(loaded, self.device):
            gathered.append((range(first, first + len(batch.target)), batch))
            first, size, pixels = first + len(batch.target), size + batch.target.numel(), pixels + valid
            if size >= enough or self.ends_stretch(first):
                yield ImagePortion(self, gathered, pixels)
                gathered, size, pixels = [], 0, 0
        if gathered:
            yield ImagePortion(self, gathered, pixels)

    def _loaded(self, first: int) -> Iterator[Batch]:
        """Yield batches from an image on.

        Batches are the same for any start; the first may be the rest of one.
        """
        stop, size = self.stop or len(self.samples), self.batch_size
        aligned = min(stop, -(-first // size) * size)
        for numbers in (range(first, aligned), range(aligned, stop)):
            if numbers:
                pin = self.device.type == "cuda"
                yield from batches(InOrder(self.samples), numbers, size, self.workers, pin, uneven=True)

    def show(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Pass members' outputs to the observers, without counting their time as the members'."""
        if self.observers:
            with self.watching:
                for observer in self.observers:
                    observer.see(batch, images, members, maps)

    def in_domain_classes(self, maps: WindowMaps) -> Maps:
        """Return outputs in the classes of the domain."""
        return maps if self.class_groups is None else GroupedMaps(maps, self.class_groups)

    def state(self) -> dict[str, Tensor]:
        """Return the observers' states."""
        kept = enumerate(observer.state() for observer in self.observers)
        return {f"observer{number}.{name}": tensor for number, state in kept for name, tensor in state.items()}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Restore the observers' states."""
        for number, observer in enumerate(self.observers):
            owner = f"observer{number}."
            observer.load_state({n.removeprefix(owner): each for n, each in saved.items() if n.startswith(owner)})


@dataclass(frozen=True)
class ImagePortion:
    """Some batches of images. `num_pixels`: their valid pixels."""

    predictor: NetworksOnImages
    batches: list[NumberedBatch]
    num_pixels: int

    @property
    def num_images(self) -> int:
        """The number of images in all batches."""
        return sum(len(images) for images, _ in self.batches)

    def blocks(self, part: DrawnPart) -> Iterator[Pixels]:
        """Run the part's members, and yield blocks of pixels, refined band by band."""
        return self._pixel_blocks(self._predicted(part), part)

    def _predicted(self, part: DrawnPart) -> list[Maps]:
        """Return the predictions of a part's members for each batch. Each member runs once per image."""
        predictor, pool = self.predictor, self.predictor.pool
        parts: list[list[WindowMaps]] = [[] for _ in self.batches]
        for members in pool.resident_slices(part.members):
            for number, (images, batch) in enumerate(self.batches):
                height, width = batch.target.shape[-2:]
                parts[number].append(pool.outputs(batch.inputs, members, images, (height, width)))
                predictor.show(batch, images, members, predictor.in_domain_classes(parts[number][-1]))
        return [predictor.in_domain_classes(joined(maps)) for maps in parts]

    def _pixel_blocks(self, predicted: list[Maps], part: DrawnPart) -> Iterator[Pixels]:
        """Yield the valid pixels in blocks of the largest size that is scored at once."""
        most = CHUNKS_AT_ONCE[self.predictor.device.type] * chunk_size(
            len(part.weights), part.num_members, self.predictor.num_classes or 1, self.predictor.device
        )
        pieces, size = list[Pixels](), 0
        for (images, batch), maps in zip(self.batches, predicted, strict=True):
            for number, image in enumerate(images):
                for rows in bands(batch.target.shape[1:], most):
                    piece = piece_of(batch, maps, number, rows, image)
                    if pieces and size + len(piece.target) > most:
                        yield together(pieces)
                        pieces, size = [], 0
                    pieces.append(piece)
                    size += len(piece.target)
        if pieces:
            yield together(pieces)


def bands(size: Sequence[int], pixels: int) -> Iterator[slice]:
    """Yield the rows of an image in bands of at most `pixels` pixels."""
    height, step = size[0], max(1, pixels // size[1])
    return (slice(top, min(top + step, height)) for top in range(0, height, step))


def piece_of(batch: Batch, maps: Maps, number: int, rows: slice, image: int) -> Pixels:
    """Return the valid pixels of some rows of an image. `number`: index in the batch; `image`: index in the domain."""
    target, valid = batch.target[number, rows].flatten(), batch.valid[number, rows].flatten()
    kept = None if bool(valid.all()) else valid.nonzero().squeeze(1)
    target = target if kept is None else target[kept]
    wanted = torch.float64 if target.is_floating_point() else torch.int64
    numbers = torch.full_like(target, image, dtype=torch.int64)
    return Pixels(maps.pixels(number, rows, kept), target.to(wanted), numbers, len(target))


def together(pieces: list[Pixels]) -> Pixels:
    """Join pieces to one block."""
    if len(pieces) == 1:
        return pieces[0]
    # Joined with pixels as the last axis, so that classes stay outside of pixels in memory.
    outputs = {
        name: torch.cat([piece.outputs[name].movedim(1, -1) for piece in pieces], -1).movedim(-1, 1)
        for name in pieces[0].outputs
    }
    target = torch.cat([piece.target for piece in pieces])
    image = torch.cat([piece.image for piece in pieces if piece.image is not None])
    return Pixels(outputs, target, image, len(target))
