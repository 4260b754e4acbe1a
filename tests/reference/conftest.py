"""Tests that sample with JAX run last: its threads make every later `os.fork` of the same process warn."""

import contextlib
import importlib
import tempfile
from pathlib import Path

import pytest

HERE = Path(__file__).parent

# arviz writes the date of its last warning into the user's cache when it is imported, and fails without a home.
with pytest.MonkeyPatch.context() as patch, contextlib.suppress(ImportError):
    patch.setenv("XDG_CACHE_HOME", tempfile.gettempdir())
    importlib.import_module("arviz")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE in item.path.parents)
