"""Maximum likelihood: as the MAP point estimate, without the prior."""

from __future__ import annotations

from typing import ClassVar

from epibench.methods.map import MAP


class MaximumLikelihood(MAP):
    """Networks trained for the likelihood alone."""

    name: ClassVar[str] = "ml"
    label: ClassVar[str] = "Maximum likelihood"
    prior: ClassVar[bool] = False
