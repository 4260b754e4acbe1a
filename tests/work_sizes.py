"""Set how much work is done at once: results must not depend on it."""

from __future__ import annotations

import pytest

from epibench.members import on_images, pool
from epibench.training import network, stacked
from epibench.training.state import Pacer


def set_pixels_at_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Set the number of pixels that are scored together."""
    monkeypatch.setitem(pool.CHUNK, "cpu", number)


def set_pixels_in_memory(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Set the number of pixels whose outputs are kept in memory."""
    monkeypatch.setattr(on_images, "PORTION_PIXELS", {"cpu": number})


def save_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save the state of a training after every step of a large network and every epoch of stacked ones."""
    monkeypatch.setattr(network, "LOG_EVERY", 1)
    monkeypatch.setattr(Pacer, "due", lambda pacer: True)
    monkeypatch.setattr(stacked, "next_segment", lambda epochs, seconds: 1)
