"""From members' outputs to the predictive distribution of every draw: one module per likelihood."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from torch import Tensor

from epibench.likelihoods import categorical, gaussian, ranking


@dataclass(frozen=True)
class Likelihood:
    """The predictive of members of one kind, and its uncertainties, with the default first.

    Args:
        combine: Returns the predictive of every draw.
        uncertainties: Names of its uncertainties.
        image_loss: Returns the loss of every pixel for raw outputs (image, output, height, width) and targets (image,
            height, width).
        image_outputs: Returns named outputs from raw outputs, (image, height, width) or (image, class, height, width).
    """

    combine: Callable[[Mapping[str, Tensor], Tensor], Any]
    uncertainties: tuple[str, ...]
    image_loss: Callable[[Tensor, Tensor], Tensor]
    image_outputs: Callable[[Tensor], dict[str, Tensor]]


LIKELIHOODS = {
    "gaussian": Likelihood(
        gaussian.combine, get_args(gaussian.GaussianUncertainty), gaussian.image_loss, gaussian.image_outputs
    ),
    "categorical": Likelihood(
        categorical.combine,
        get_args(categorical.CategoricalUncertainty),
        categorical.image_loss,
        categorical.image_outputs,
    ),
    "ranking": Likelihood(
        ranking.combine, get_args(ranking.RankingUncertainty), ranking.image_loss, ranking.image_outputs
    ),
}
