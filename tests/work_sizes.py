"""Set how much work is done at once: results must not depend on it."""

from __future__ import annotations

import pytest

from epibench.members import on_images, pool


def set_pixels_at_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Set the number of pixels that are scored together."""
    monkeypatch.setitem(pool.CHUNK, "cpu", number)


def set_pixels_in_memory(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Set the number of pixels whose outputs are kept in memory."""
    monkeypatch.setattr(on_images, "PORTION_PIXELS", {"cpu": number})
