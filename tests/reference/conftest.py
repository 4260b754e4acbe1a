"""Tests that sample with JAX run last: its threads make every later `os.fork` of the same process warn."""

import contextlib
import importlib
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# arviz writes the date of its last warning into the user's cache when it is imported. It fails without a home, and
# where two processes do that at once: each has a folder of its own.
with pytest.MonkeyPatch.context() as patch, contextlib.suppress(ImportError), tempfile.TemporaryDirectory() as cache:
    patch.setenv("XDG_CACHE_HOME", cache)
    importlib.import_module("arviz")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE in item.path.parents)
