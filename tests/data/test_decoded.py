"""Decoded samples in shared memory: read as they were written, once for all processes, up to a budget."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest
import torch

from epibench.data.batch import Batch
from epibench.data.decoded import DecodedMemory, DecodedSamples, narrowed

BUDGET = 2**20


class Counted:
    """Samples of different sizes, which say how often they were decoded."""

    def __init__(self, depth: bool = False):
        self.depth, self.read = depth, list[int]()

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Batch:
        self.read.append(index)
        generator = torch.Generator().manual_seed(index)
        image = torch.randint(0, 256, (3, 4, 5 + index), dtype=torch.uint8, generator=generator)
        target = torch.randint(0, 256, (4, 5 + index), generator=generator)
        inputs = {"image": image}
        if self.depth:
            inputs["sparse_depth"] = torch.rand(1, 4, 5 + index, generator=generator)
        return Batch(inputs, target.float() / 3 if self.depth else target, target > 100)


def assert_same(found: Batch, expected: Batch) -> None:
    assert found.inputs.keys() == expected.inputs.keys()
    assert all(torch.equal(found.inputs[name], expected.inputs[name]) for name in expected.inputs)
    assert torch.equal(found.target.to(expected.target.dtype), expected.target)
    assert torch.equal(found.valid, expected.valid)


@pytest.mark.parametrize("depth", [False, True], ids=["classes", "depth"])
def test_samples_are_decoded_once_and_stay_the_same(depth: bool) -> None:
    samples = Counted(depth)
    decoded = DecodedSamples(samples, DecodedMemory(BUDGET))
    for _ in range(3):
        for index in range(len(decoded)):
            assert_same(decoded[index], Counted(depth)[index])
    assert samples.read == [0, 1, 2, 3, 4]


def test_no_more_than_the_budget_is_used() -> None:
    samples = Counted()
    memory = DecodedMemory(900)
    decoded = DecodedSamples(samples, memory)
    for _ in range(2):
        for index in range(len(decoded)):
            assert_same(decoded[index], Counted()[index])
    assert 0 < memory.used <= 900
    kept = [index for index in range(5) if index in memory]
    assert 0 < len(kept) < 5
    assert samples.read == [0, 1, 2, 3, 4, *(index for index in range(5) if index not in kept)]


def _decode(decoded: DecodedSamples, answers: Any) -> None:
    before = [index in decoded.memory for index in range(len(decoded))]
    for index in range(len(decoded)):
        decoded[index]
    samples: Any = decoded.samples
    answers.put((before, samples.read))


def test_what_one_process_decodes_another_finds() -> None:
    context = multiprocessing.get_context("spawn")
    memory, answers = DecodedMemory(BUDGET), context.Queue()
    decoded = DecodedSamples(Counted(), memory)
    assert_same(decoded[2], Counted()[2])
    other = context.Process(target=_decode, args=(DecodedSamples(Counted(), memory), answers))
    other.start()
    assert answers.get(timeout=100) == ([False, False, True, False, False], [0, 1, 3, 4])
    other.join()
    samples = Counted()
    again = DecodedSamples(samples, memory)
    for index in range(5):
        assert_same(again[index], Counted()[index])
    assert samples.read == []


def test_memory_that_is_gone_is_replaced() -> None:
    memory = DecodedMemory(BUDGET)
    DecodedSamples(Counted(), memory)[1]
    open_memory, arguments = memory.__reduce__()  # as another process does
    del memory
    found = open_memory(*arguments)
    assert 1 not in found
    assert found.budget == BUDGET


def test_classes_that_need_more_than_two_bytes_keep_theirs() -> None:
    assert narrowed(torch.tensor([0, 255])).dtype == torch.int16
    assert narrowed(torch.tensor([0, 40000])).dtype == torch.int64
    assert narrowed(torch.tensor([0.5])).dtype == torch.float32
