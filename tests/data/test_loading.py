"""Samples in batches: a random order that is a function of the number alone, and failures in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from epibench.data.batch import Batch
from epibench.data.loading import InOrder, Stream, batches
from epibench.errors import InputError

LENGTH = 7


@dataclass(frozen=True)
class Numbered:
    """Samples that say their number; one of them may be damaged, or of another size."""

    length: int = LENGTH
    damaged: int | None = None
    larger: int | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Batch:
        if index == self.damaged:
            raise InputError(f"street/{index:04d}.png: truncated file (expected 4×6)")
        height = 5 if index == self.larger else 4
        image = torch.full((3, height, 6), index, dtype=torch.uint8)
        target = torch.full((height, 6), float(index))
        return Batch({"image": image}, target, torch.ones(height, 6, dtype=torch.bool))


def with_key(sample: Batch, key: int) -> Batch:
    """An augmentation that shows the key it was given."""
    return Batch({**sample.inputs, "key": torch.tensor(key)}, sample.target, sample.valid)


def make_stream(samples: Numbered | None = None, order: int = 11, change: int = 12) -> Stream:
    return Stream(samples or Numbered(), with_key, order, change)


def indices(found: Iterable[Batch]) -> list[int]:
    return [int(value) for batch in found for value in batch.target[..., 0, 0].reshape(-1)]


def test_every_sample_comes_once_in_each_round() -> None:
    stream = make_stream()
    for turn in range(3):
        assert sorted(indices(stream[turn * LENGTH + place] for place in range(LENGTH))) == list(range(LENGTH))


def test_the_order_is_another_in_the_next_round() -> None:
    stream = make_stream()
    rounds = [indices(stream[turn * LENGTH + place] for place in range(LENGTH)) for turn in range(3)]
    assert len({tuple(each) for each in rounds}) == 3


def test_another_key_gives_another_order() -> None:
    orders = [indices(make_stream(order=key)[number] for number in range(2 * LENGTH)) for key in range(3)]
    assert len({tuple(each) for each in orders}) == 3


def test_a_sample_is_a_function_of_its_number_alone() -> None:
    forwards, backwards = make_stream(), make_stream()
    numbers = range(3 * LENGTH)
    there = {number: forwards[number] for number in numbers}
    back = {number: backwards[number] for number in reversed(numbers)}
    for number in numbers:
        assert torch.equal(there[number].target, back[number].target)
        assert torch.equal(there[number].inputs["key"], back[number].inputs["key"])


def test_every_number_is_changed_in_its_own_way() -> None:
    stream = make_stream()
    assert len({int(stream[number].inputs["key"]) for number in range(100)}) == 100


def test_the_change_does_not_depend_on_the_order() -> None:
    one, other = make_stream(order=1), make_stream(order=2)
    assert all(torch.equal(one[number].inputs["key"], other[number].inputs["key"]) for number in range(20))


def test_a_round_of_one_sample_can_be_repeated() -> None:
    stream = make_stream(Numbered(1))
    assert indices(stream[number] for number in range(5)) == [0] * 5


def test_samples_in_order_are_as_they_are() -> None:
    assert indices(batches(InOrder(Numbered()), range(2, LENGTH), 2)) == [2, 3, 4, 5, 6]


def test_the_last_batch_holds_what_is_left() -> None:
    assert [len(batch.target) for batch in batches(InOrder(Numbered()), range(LENGTH), 3)] == [3, 3, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_change_nothing(workers: int) -> None:
    stream, numbers = make_stream(), range(3, 3 * LENGTH)
    alone, helped = (list(batches(stream, numbers, 4, each)) for each in (0, workers))
    assert indices(alone) == indices(helped)
    assert all(torch.equal(a.inputs["key"], b.inputs["key"]) for a, b in zip(alone, helped, strict=True))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [make_stream, InOrder])
def test_a_failure_becomes_the_line_that_the_data_set_said(kind, workers: int) -> None:
    dataset = kind(Numbered(damaged=5))
    with pytest.raises(InputError) as complaint:
        list(batches(dataset, range(LENGTH), 2, workers))
    assert str(complaint.value) == "street/0005.png: truncated file (expected 4×6)"


def test_batches_before_a_failure_arrive() -> None:
    found = batches(InOrder(Numbered(damaged=5)), range(LENGTH), 2, 2)
    assert indices([next(found), next(found)]) == [0, 1, 2, 3]
    with pytest.raises(InputError):
        next(found)


@pytest.mark.parametrize("workers", [0, 2])
def test_different_sizes_in_one_batch_are_refused_with_both_and_the_remedy(workers: int) -> None:
    words = r"^images of different sizes in one batch \(4×6, 5×6\): give training\.crop$"
    with pytest.raises(InputError, match=words):
        list(batches(InOrder(Numbered(larger=3)), range(LENGTH), 4, workers))


def test_different_sizes_come_one_by_one() -> None:
    sizes = [tuple(batch.target.shape) for batch in batches(InOrder(Numbered(larger=3)), range(2, 5), 1)]
    assert sizes == [(1, 4, 6), (1, 5, 6), (1, 4, 6)]


def test_loading_does_not_depend_on_the_global_generator() -> None:
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        found.append(indices(batches(make_stream(), range(2 * LENGTH), 2, 2)))
    assert found[0] == found[1]


def test_workers_share_tensors_under_a_long_temporary_path(tmp_path: Path) -> None:
    folder = tmp_path / "a folder with spaces" / ("n" * 120)
    folder.mkdir(parents=True)
    code = (
        "from multiprocessing.util import get_temp_dir\n"
        "from test_loading import *\n"
        "get_temp_dir()\n"  # as it is once processes were started: workers inherit it
        "print(indices(batches(InOrder(Numbered()), range(LENGTH), batch_size=2, workers=1)))"
    )
    run = subprocess.run(  # a process of its own, as it would wait for ever
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert run.stdout.strip() == str(list(range(LENGTH)))
