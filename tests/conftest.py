"""One thread of torch for each worker of pytest, which are as many as cores; more where threads matter."""

import pytest
import torch


def threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    yield from threads(1)


@pytest.fixture
def two_threads():
    yield from threads(2)
