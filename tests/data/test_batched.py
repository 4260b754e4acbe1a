"""Whole batches augmented at once: what each sample alone becomes, classes and depth to the last bit."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from epibench.data.augment import Augment, Colours
from epibench.data.batch import Batch, Packed, stack
from epibench.data.batched import Cut, Finisher, finish, joined, sizes
from epibench.data.loading import Stream, packed_batches
from epibench.errors import InputError

SEVERAL = Colours(strength=0.8, grey=0.1, blur=0.4, noise=0.4)
SCALES = Augment(crop=(20, 30), scale=(0.75, 1.5))
AUGMENTS = {
    "crop": Augment(crop=(24, 32)),
    "whole": Augment(),
    "enlarged, padded, recoloured": Augment(crop=(60, 44), scale=(1.0, 2.0), pad=True, colours=SEVERAL),
    "as published": Augment(crop=(20, 25), scale=(0.5, 2.1), scale_step=0.1, scale_rule="opencv"),
    "as OpenCV does, padded": Augment(crop=(64, 70), scale=(0.3, 2.1), scale_rule="opencv", pad=True),
    "antialiased": SCALES,
    "much smaller": Augment(crop=(12, 14), scale=(0.3, 0.5)),
    "recoloured": Augment(crop=(24, 32), colours=SEVERAL),
}
FOR_DEPTH = {
    "thinned": Augment(crop=(20, 30), scale=(0.75, 1.5), thin=(0.3, 0.9)),
    "drawn anew": Augment(crop=(20, 30), sparse_share=0.2),
    "drawn anew and thinned": Augment(crop=(20, 30), sparse_share=0.5, thin=(0.2, 1.0), flip=False),
}


def make_samples(depth: bool) -> list[Batch]:
    """Two images of different sizes: smooth, so that a pixel that is missed is seen, with some noise."""
    generator, samples = torch.Generator().manual_seed(3), []
    for height, width in ((40, 50), (43, 61)):
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        image = torch.stack((3 * rows + columns, 2 * columns, rows * columns // 10)) % 200
        image = (image + torch.randint(0, 50, image.shape, generator=generator)).to(torch.uint8)
        valid = torch.rand(height, width, generator=generator) < 0.9
        if depth:
            target = 1 + 50 * torch.rand(height, width, generator=generator)
            sparse = torch.where(torch.rand(target.shape, generator=generator) < 0.1, target, 0.0)
            samples.append(Batch({"image": image, "sparse_depth": sparse[None]}, target, valid))
        else:
            samples.append(Batch({"image": image}, torch.randint(0, 19, (height, width), generator=generator), valid))
    return samples


def pairs(augment: Augment, depth: bool, number: int = 40) -> list[tuple[Batch, Batch]]:
    """Batches of four, augmented one by one and at once; where sizes are kept, of one image."""
    samples, found = make_samples(depth), []
    for first in range(0, 4 * number, 4):
        keys = [-(7919**3) * number + key for key in range(first, first + 4)]
        chosen = [samples[key % 2 if augment.crop else first // 4 % 2] for key in range(4)]
        expected = stack([augment(sample, key) for sample, key in zip(chosen, keys, strict=True)])
        cuts = [Cut(augment)(sample, key) for sample, key in zip(chosen, keys, strict=True)]
        found.append((expected, finish(augment, joined(cuts))))
    return found


def differences(found: Sequence[tuple[Batch, Batch]]) -> torch.Tensor:
    """Of the levels of images."""
    return torch.cat(
        [(one.inputs["image"].int() - other.inputs["image"].int()).abs().flatten() for one, other in found]
    )


@pytest.mark.parametrize("name", [*AUGMENTS, *FOR_DEPTH])
@pytest.mark.parametrize("depth", [False, True], ids=["classes", "depth"])
def test_a_batch_becomes_what_its_samples_become(name: str, depth: bool) -> None:
    if name in FOR_DEPTH and not depth:
        return
    found = pairs({**AUGMENTS, **FOR_DEPTH}[name], depth)
    for expected, batch in found:
        assert batch.inputs.keys() == expected.inputs.keys()
        assert batch.target.dtype == expected.target.dtype
        assert batch.inputs["image"].dtype == torch.uint8
        assert torch.equal(batch.valid, expected.valid)
        assert torch.equal(batch.target, expected.target)
        if depth:
            assert torch.equal(batch.inputs["sparse_depth"], expected.inputs["sparse_depth"])
    levels = differences(found)
    assert (levels > 0).double().mean() < 1e-3  # rounded to the neighbouring level
    assert (levels > 1).double().mean() < 1e-4  # which colours may have stretched


@pytest.mark.parametrize("name", ["crop", "whole"])
def test_what_is_only_cut_is_the_same_to_the_last_bit(name: str) -> None:
    assert differences(pairs(AUGMENTS[name], depth=True)).max() == 0


def test_no_more_is_cut_out_than_is_needed() -> None:
    sample = make_samples(False)[1]
    for key in range(30):
        factor = SCALES.placed(43, 61, key).factor
        height, width = Cut(SCALES)(sample, key).target.shape
        assert height <= 20 / factor + 6 / min(1, factor)
        assert width <= 30 / factor + 6 / min(1, factor)


def test_images_that_come_out_with_different_sizes_are_refused() -> None:
    stream = Stream(make_samples(False), Cut(Augment()), 1, 2)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match=r"images of different sizes in one batch \(40×50, 43×61\): give training\.crop"
    ):
        list(packed_batches(stream, range(2), 2, join=joined, same=sizes))


def test_a_packed_batch_is_finished_as_one_that_is_not() -> None:
    augment = AUGMENTS["enlarged, padded, recoloured"]
    cuts = joined([Cut(augment)(sample, key) for key, sample in enumerate(make_samples(False))])
    expected, batch = finish(augment, cuts), Finisher(augment, torch.device("cpu"))(Packed.of(cuts))
    assert torch.equal(batch.inputs["image"], expected.inputs["image"])
    assert torch.equal(batch.target, expected.target)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", [*AUGMENTS])
def test_a_gpu_finishes_a_batch_as_a_cpu_does(name: str) -> None:
    augment = AUGMENTS[name]
    finisher, found = Finisher(augment, torch.device("cuda")), []
    for first in range(0, 40, 2):
        cuts = joined([Cut(augment)(make_samples(False)[0], first + number) for number in range(2)])
        expected, batch = finish(augment, cuts), finisher(Packed.of(cuts).pin_memory()).to("cpu")
        assert torch.equal(batch.target, expected.target)
        assert torch.equal(batch.valid, expected.valid)
        found.append((expected, batch))
    assert (differences(found) > 0).double().mean() < 1e-3
