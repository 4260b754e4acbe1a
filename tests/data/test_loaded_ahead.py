"""Batches that processes load ahead: in order, whatever their number, as without them; and failures in one line."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from epibench.data import loaded_ahead as module
from epibench.data.batch import Batch, Packed
from epibench.data.loaded_ahead import loaded_ahead
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
    monkeypatch.setattr(module, "CHECK_SECONDS", 0.05)
    with pytest.raises(ChildProcessError, match="a process that loaded images has died"):
        list(loaded_ahead(partial(make, deadly=5), BATCHES, 2))


def test_a_batch_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLOT", 4096 + 4096)
    monkeypatch.setattr(module, "LAYOUT", 8192 - 64)
    with pytest.raises(InputError, match=r"too large to be loaded; give training\.crop"):
        list(loaded_ahead(make, BATCHES, 1))


def test_processes_that_load_go_on_after_sigterm() -> None:
    """Schedulers send it to all processes, and the one that trains has still to save."""
    batches = loaded_ahead(make, BATCHES, 2)
    found = [int(next(batches).batch.target[0, 0, 0]) for _ in range(2)]  # both have begun
    loading = [child for child in multiprocessing.active_children() if child.daemon]
    assert len(loading) == 2
    for process in loading:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
    found += [int(packed.batch.target[0, 0, 0]) for packed in batches]
    assert found == [numbers[0] for numbers in BATCHES]
    assert not [process for process in loading if process.is_alive()]


def test_processes_that_load_end_when_nobody_wants_more() -> None:
    batches = loaded_ahead(make, BATCHES, 2)
    next(batches)
    loading = [child for child in multiprocessing.active_children() if child.daemon]
    batches.close()  # type: ignore[attr-defined]
    assert loading
    assert not [process for process in loading if process.is_alive()]


LEFT_OPEN = """
import torch
from epibench.data.batch import Batch, Packed
from epibench.data.loaded_ahead import loaded_ahead

def make(numbers):
    values = torch.tensor(numbers).view(-1, 1, 1)
    return Packed.of(Batch({}, values, values > 0))

batches = loaded_ahead(make, [[number] for number in range(100)], 2)
next(batches), next(batches)
print("left")
"""


def test_a_program_ends_while_processes_load_for_it() -> None:
    ended = subprocess.run([sys.executable, "-c", LEFT_OPEN], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, "left\n"), ended.stderr


class Runtime:
    """CUDA's functions, which pin so many slots."""

    cudaError = SimpleNamespace(success=0)  # noqa: N815

    def __init__(self, most: int):
        self.most, self.pinned = most, list[int]()

    def cudaHostRegister(self, start: int, size: int, flags: int) -> int:  # noqa: N802
        if len(self.pinned) == self.most:
            return 2
        self.pinned.append(start)
        return 0

    def cudaHostUnregister(self, start: int) -> int:  # noqa: N802
        self.pinned.remove(start)  # what is not pinned cannot be unpinned
        return 0


def test_memory_that_cannot_be_pinned_is_left_and_the_error_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, forgotten = Runtime(most=2), []
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(module, "forget_error", lambda: forgotten.append(True))
    pinned, memory = module.Pinned(), [torch.zeros(64, dtype=torch.uint8) for _ in range(4)]
    for content in memory:
        pinned.pin(content)
    assert runtime.pinned == [content.data_ptr() for content in memory[:2]]
    assert forgotten == [True]  # and nothing is tried any more
    pinned.close()
    assert runtime.pinned == []


def test_a_slot_that_holds_more_than_before_is_pinned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime(most=1)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    pinned, content = module.Pinned(), torch.zeros(64, dtype=torch.uint8)
    for size in (16, 64, 32):
        pinned.pin(content[:size])
    assert pinned.sizes == {content.data_ptr(): 64}
    assert runtime.pinned == [content.data_ptr()]
