"""From members' outputs to the predictive distribution of every draw: one module per likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor

from epibench.likelihoods import categorical, gaussian


@dataclass(frozen=True)
class Likelihood:
    """What members of a kind predict together, and the uncertainties that this has, the usual one first."""

    combine: Callable[[Mapping[str, Tensor], Tensor], Any]
    uncertainties: tuple[str, ...]


LIKELIHOODS = {
    "gaussian": Likelihood(gaussian.combine, get_args(gaussian.GaussianUncertainty)),
    "categorical": Likelihood(categorical.combine, get_args(categorical.CategoricalUncertainty)),
}
