"""Threads of our own: PyTorch's setting is restored for every thread, whatever happens in between."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from epibench.parallel import in_this_thread, in_threads, silenced_torch_threads


@pytest.fixture(autouse=True)
def several(two_threads):
    """Two threads of torch to silence."""


def test_tasks_are_done_in_order_and_with_one_thread_of_torch_each() -> None:
    assert in_threads(lambda task: (task, torch.get_num_threads()), [0, 1, 2]) == [(0, 1), (1, 1), (2, 1)]


def test_the_setting_is_restored_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda task: 1 / task, [1, 0])
    assert torch.get_num_threads() == 2


def test_the_setting_of_each_thread_is_its_own() -> None:
    inside, go_on, left = threading.Event(), threading.Event(), []

    def other() -> None:
        torch.set_num_threads(2)
        with silenced_torch_threads():
            inside.set()
            go_on.wait(10)
        left.append(torch.get_num_threads())

    with silenced_torch_threads():
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(10)
    here = torch.get_num_threads()
    go_on.set()
    thread.join()
    assert (here, left, torch.get_num_threads()) == (2, [2], 2)


def test_nested_use_still_knows_how_many_threads_there_were() -> None:
    with silenced_torch_threads():
        names = in_threads(lambda task: threading.current_thread().name, [0, 1])
    assert threading.current_thread().name not in names


def test_the_callers_inference_mode_holds_in_the_threads() -> None:
    with torch.inference_mode():
        assert in_threads(lambda task: torch.is_inference_mode_enabled(), [0, 1]) == [True, True]


@pytest.mark.parametrize("silenced", [False, True])
def test_everything_can_be_done_in_the_calling_thread(silenced: bool) -> None:
    def names() -> set[str]:
        return set(in_threads(lambda task: threading.current_thread().name, [0, 1, 2]))

    own = threading.current_thread().name
    if silenced:
        with silenced_torch_threads():
            with in_this_thread():
                assert names() == {own}
            assert own not in names()
    else:
        with in_this_thread():
            assert names() == {own}
    assert own not in names()
    assert torch.get_num_threads() == 2


ARENAS = """
import ctypes, sys, threading
import torch
from epibench.parallel import keep_freed_memory

torch.set_num_threads(2)
if sys.argv[2] == "kept":
    keep_freed_memory()
barrier = threading.Barrier(8)

def take():
    barrier.wait()
    torch.empty(2**20, dtype=torch.uint8)
    barrier.wait()

threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="arenas are those of glibc")
def test_freed_memory_is_kept_in_as_many_arenas_as_there_are_threads(tmp_path: Path) -> None:
    def arenas(kept: str) -> int:
        file = tmp_path / f"{kept}.xml"
        subprocess.run([sys.executable, "-c", ARENAS, str(file), kept], check=True)
        return file.read_text().count("<heap ")

    assert arenas("kept") <= 2 < arenas("as it is")
