"""Fixtures of tests of runs."""

from collections.abc import Iterator

import pytest
from fault_injection import save_often


@pytest.fixture(scope="module")
def eager() -> Iterator[None]:
    """Save as often as possible, in portions of one batch."""
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr)
        yield
