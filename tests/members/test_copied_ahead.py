"""Batches come in order, with their valid pixels counted; on a GPU they are copied while others are worked on."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from epibench.data.batch import Batch
from epibench.errors import InputError
from epibench.members.copied_ahead import copied_ahead

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]
everywhere = pytest.mark.parametrize("device", DEVICES)


def numbered(number: int, fails_at: int | None = None) -> Iterator[Batch]:
    for each in range(number):
        if each == fails_at:
            raise InputError("street/0003.png: truncated file")
        valid = torch.arange(12).view(1, 3, 4) < each
        yield Batch({"image": torch.full((1, 3, 3, 4), each)}, torch.full((1, 3, 4), float(each)), valid)


@everywhere
def test_batches_come_in_order_with_their_valid_pixels(device: str) -> None:
    found = list(copied_ahead(numbered(9), torch.device(device)))
    assert [valid for _, valid in found] == list(range(9))
    for number, (batch, _) in enumerate(found):
        assert batch.target.device.type == device
        assert float(batch.target.mean()) == float(batch.inputs["image"].float().mean()) == number


@everywhere
def test_what_goes_wrong_while_reading_is_raised_after_the_batches_before(device: str) -> None:
    ahead = copied_ahead(numbered(9, fails_at=3), torch.device(device))
    assert [next(ahead)[1] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(InputError, match="truncated file"):
        next(ahead)


@everywhere
def test_nothing_is_left_when_nobody_wants_more(device: str) -> None:
    before = threading.active_count()
    ahead = copied_ahead(numbered(100), torch.device(device))
    next(ahead)
    ahead.close()
    assert threading.active_count() == before
