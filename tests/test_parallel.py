"""Threads of our own: PyTorch's setting is restored for every thread, whatever happens in between."""

import threading

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
