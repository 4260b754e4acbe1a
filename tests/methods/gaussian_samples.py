"""Whether samples are those of a known Gaussian."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[np.float64]


def assert_gaussian(samples: Tensor, mean: Array, covariance: Array) -> None:
    """Mean and covariance of independent samples, each entry within 4.5 standard errors."""
    values, count = samples.double().numpy(), len(samples)
    variances = np.diag(covariance)
    assert np.abs((values.mean(0) - mean) / np.sqrt(variances / count)).max() < 4.5
    error = np.sqrt((np.outer(variances, variances) + covariance**2) / count)
    assert np.abs((np.cov(values.T) - covariance) / error).max() < 4.5
