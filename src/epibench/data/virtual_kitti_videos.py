"""The videos of Virtual KITTI: five worlds, each in ten variants."""

from __future__ import annotations

from typing import Literal

Split = Literal["train", "val"]

SPLITS: dict[Split, tuple[str, ...]] = {"train": ("0001", "0006", "0018", "0020"), "val": ("0002",)}
VARIANTS = (
    *("15-deg-left", "15-deg-right", "30-deg-left", "30-deg-right"),
    *("clone", "fog", "morning", "overcast", "rain", "sunset"),
)
