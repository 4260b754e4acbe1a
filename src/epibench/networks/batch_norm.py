"""Batch norm with a positive scale."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


class AbsoluteBatchNorm2d(nn.BatchNorm2d):
    """Batch norm with the scale |weight| + eps, as in InPlace-ABN (Rota Bulò et al. 2018)."""

    def forward(self, features: Tensor) -> Tensor:
        """(image, channel, height, width)."""
        momentum = self.momentum
        if self.training:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            if momentum is None:  # the mean over all batches
                momentum = 1 / float(self.num_batches_tracked)
        scale = scale_of(self, self.weight)
        statistics = self.running_mean, self.running_var
        return functional.batch_norm(features, *statistics, scale, self.bias, self.training, momentum or 0.0, self.eps)


def scale_of(norm: nn.BatchNorm2d, weight: Tensor) -> Tensor:
    """The scale of a batch norm with this weight, (channel,)."""
    return weight.abs() + norm.eps if isinstance(norm, AbsoluteBatchNorm2d) else weight
