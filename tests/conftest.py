"""A cache of its own, and one thread of torch for each worker of pytest, which are as many as cores."""

import os

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported, by whichever test comes first


def pytest_collection_modifyitems(items):
    """Tests of runs first: they start processes and wait for them, and nobody should wait for the last of them."""
    items.sort(key=lambda item: "runs" not in item.path.parts)


@pytest.fixture(autouse=True, scope="session")
def own_cache(tmp_path_factory):
    """Tests neither use nor change what lies in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPIBENCH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


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
