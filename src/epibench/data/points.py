"""Points and their targets: what small networks learn from and are tested on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Points:
    """inputs: (point, feature) float32; target: (point,), float32 or int64 classes."""

    inputs: Tensor
    target: Tensor
