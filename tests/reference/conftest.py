"""Tests that sample with JAX run last: its threads make every later `os.fork` of the same process warn."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: HERE in item.path.parents)
