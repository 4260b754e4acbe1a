"""Large networks on the images of a domain: what all members see before more is read, and which pixels are scored."""

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

NumberedBatch = tuple[range, Batch]  # images with their numbers in the domain
# Pixels of a portion, which all members see before the next: enough to fill a GPU; with many members or classes, fewer.
PORTION_PIXELS = {"cpu": 2**18, "cuda": 2**22}
FEW_MAPS = 32


def portion_pixels(device: torch.device, members: int, classes: int | None) -> int:
    """How many pixels all members see before the next ones are read."""
    return PORTION_PIXELS[device.type] // max(1, members * (classes or 1) // FEW_MAPS)


class Observer:
    """Sees all outputs of the members as they come, to keep some."""

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """What some members predict for a batch; images: their numbers in the domain."""
        raise NotImplementedError

    def state(self) -> dict[str, Tensor]:
        """What it has kept, to go on from."""
        return {}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from what was kept."""

    def close(self) -> None:
        """All has been seen."""

    def stop(self) -> None:
        """No more will be seen for now: the evaluation has failed or was interrupted."""


@dataclass
class NetworksOnImages(PoolOnData):
    """Large networks and the images of a domain that they predict.

    num_classes: those that the domain is scored in; class_groups: of the classes that networks predict, those that the
    domain does not tell apart, None where they are the same. stretch: so many images are added up by themselves, a
    multiple of the size of batches; stop: the image before which to end, None for all.
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
        """Images of the domain."""
        return len(self.samples)

    def ends_stretch(self, images: int) -> bool:
        """After every stretch, and at the end of the last, which may be shorter."""
        return self.stretch is not None and (images % self.stretch == 0 or images == len(self.samples))

    def portions(self, first: int, parts: Sequence[DrawnPart]) -> Iterator[ImagePortion]:
        """Batches on the device, gathered until there is enough to do at once, or a stretch ends."""
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
        """Batches from an image on, which are the same wherever one begins: the first may be the rest of one."""
        stop, size = self.stop or len(self.samples), self.batch_size
        aligned = min(stop, -(-first // size) * size)
        for numbers in (range(first, aligned), range(aligned, stop)):
            if numbers:
                pin = self.device.type == "cuda"
                yield from batches(InOrder(self.samples), numbers, size, self.workers, pin, uneven=True)

    def show(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Let observers see what members predict; the time that they take is not that of the members."""
        if self.observers:
            with self.watching:
                for observer in self.observers:
                    observer.see(batch, images, members, maps)

    def in_domain_classes(self, maps: WindowMaps) -> Maps:
        """Outputs in the classes that the domain knows."""
        return maps if self.class_groups is None else GroupedMaps(maps, self.class_groups)

    def state(self) -> dict[str, Tensor]:
        """What observers have kept."""
        kept = enumerate(observer.state() for observer in self.observers)
        return {f"observer{number}.{name}": tensor for number, state in kept for name, tensor in state.items()}

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Give observers back what they had kept."""
        for number, observer in enumerate(self.observers):
            owner = f"observer{number}."
            observer.load_state({n.removeprefix(owner): each for n, each in saved.items() if n.startswith(owner)})


@dataclass(frozen=True)
class ImagePortion:
    """Some batches of images. num_pixels: those of them that are valid."""

    predictor: NetworksOnImages
    batches: list[NumberedBatch]
    num_pixels: int

    @property
    def num_images(self) -> int:
        """Images of all batches."""
        return sum(len(images) for images, _ in self.batches)

    def blocks(self, part: DrawnPart) -> Iterator[Pixels]:
        """Run the part's members; their outputs are refined band by band as pixels are asked for."""
        return self._pixel_blocks(self._predicted(part), part)

    def _predicted(self, part: DrawnPart) -> list[Maps]:
        """What the members of a part predict for each batch; each member is run once per image."""
        predictor, pool = self.predictor, self.predictor.pool
        parts: list[list[WindowMaps]] = [[] for _ in self.batches]
        for members in pool.resident_slices(part.members):
            for number, (images, batch) in enumerate(self.batches):
                height, width = batch.target.shape[-2:]
                parts[number].append(pool.outputs(batch.inputs, members, images, (height, width)))
                predictor.show(batch, images, members, predictor.in_domain_classes(parts[number][-1]))
        return [predictor.in_domain_classes(joined(maps)) for maps in parts]

    def _pixel_blocks(self, predicted: list[Maps], part: DrawnPart) -> Iterator[Pixels]:
        """The valid pixels, in blocks of as many as are scored at once."""
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
    """The rows of an image in bands of at most so many pixels."""
    height, step = size[0], max(1, pixels // size[1])
    return (slice(top, min(top + step, height)) for top in range(0, height, step))


def piece_of(batch: Batch, maps: Maps, number: int, rows: slice, image: int) -> Pixels:
    """The valid pixels of some rows of an image, which has a number in the batch and another in the domain."""
    target, valid = batch.target[number, rows].flatten(), batch.valid[number, rows].flatten()
    kept = None if bool(valid.all()) else valid.nonzero().squeeze(1)
    target = target if kept is None else target[kept]
    wanted = torch.float64 if target.is_floating_point() else torch.int64
    numbers = torch.full_like(target, image, dtype=torch.int64)
    return Pixels(maps.pixels(number, rows, kept), target.to(wanted), numbers, len(target))


def together(pieces: list[Pixels]) -> Pixels:
    """Pieces as one block."""
    if len(pieces) == 1:
        return pieces[0]
    # Joined with pixels as the last axis, so that classes stay outside of them in memory.
    outputs = {
        name: torch.cat([piece.outputs[name].movedim(1, -1) for piece in pieces], -1).movedim(-1, 1)
        for name in pieces[0].outputs
    }
    target = torch.cat([piece.target for piece in pieces])
    image = torch.cat([piece.image for piece in pieces if piece.image is not None])
    return Pixels(outputs, target, image, len(target))
