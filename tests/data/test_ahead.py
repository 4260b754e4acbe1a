"""Batches that processes load ahead: in order, whatever their number, as without them; and failures in one line."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from functools import partial

import pytest
import torch

from epibench.data import ahead
from epibench.data.ahead import loaded_ahead
from epibench.data.batch import Batch, Packed
from epibench.errors import InputError

BATCHES = [[2 * number, 2 * number + 1] for number in range(15)]  # more than there are slots


def make(numbers: Sequence[int], broken: int = -1, deadly: int = -1) -> Packed | str:
    """A batch that shows its numbers, with tensors of several kinds; batches of 4 and more are larger."""
    if broken in numbers:
        return f"street/{broken:04d}.png: truncated file"
    if deadly in numbers:
        os.kill(os.getpid(), signal.SIGKILL)
    width = 3 if numbers[0] < 4 else 5
    image = torch.tensor(numbers, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, width)
    target = torch.tensor(numbers).view(-1, 1, 1).expand(-1, 2, width)
    return Packed.of(Batch({"image": image}, target.double(), target % 2 == 0))


@pytest.mark.parametrize("workers", [1, 3])
def test_batches_come_in_order_and_whole(workers: int) -> None:
    found = 0
    for numbers, packed in zip(BATCHES, loaded_ahead(make, BATCHES, workers), strict=True):
        expected, batch = make(numbers), packed.batch
        assert isinstance(expected, Packed)
        assert packed.layout == expected.layout
        assert torch.equal(batch.inputs["image"], expected.batch.inputs["image"])
        assert torch.equal(batch.target, expected.batch.target)
        assert torch.equal(batch.valid, expected.batch.valid)
        found += 1
    assert found == len(BATCHES)


def test_no_process_loads_more_than_there_is_room_for() -> None:
    batches = loaded_ahead(make, BATCHES, 1)
    first = next(batches).batch.target.clone()
    for _ in range(2):
        kept = next(batches).batch.target
    assert torch.equal(first, torch.tensor([0.0, 1.0]).double().view(2, 1, 1).expand(2, 2, 3))
    assert torch.equal(kept[:, 0, 0], torch.tensor([4.0, 5.0]).double())
    batches.close()  # type: ignore[attr-defined]


def test_what_is_wrong_with_a_sample_is_one_line() -> None:
    batches = loaded_ahead(partial(make, broken=7), BATCHES, 2)
    assert len([next(batches) for _ in range(3)]) == 3
    with pytest.raises(InputError, match=r"^street/0007\.png: truncated file$"):
        next(batches)


def test_a_process_that_dies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "CHECK_SECONDS", 0.05)
    with pytest.raises(ChildProcessError, match="a process that loaded images has died"):
        list(loaded_ahead(partial(make, deadly=5), BATCHES, 2))


def test_a_batch_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "SLOT", 4096 + 4096)
    monkeypatch.setattr(ahead, "LAYOUT", 8192 - 64)
    with pytest.raises(InputError, match=r"too large to be loaded; give training\.crop"):
        list(loaded_ahead(make, BATCHES, 1))
