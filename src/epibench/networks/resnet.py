"""Residual stages (He et al. 2016), of any width."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size, or divides it by the stride; batch norm follows, so it has no bias."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        self.conv1, self.norm1 = conv3x3(inputs, outputs, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = conv3x3(outputs, outputs), nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """(image, channel, height, width), smaller by the stride."""
        inner = functional.relu(self.norm1(self.conv1(inputs)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(inputs))


def basic_stage(inputs: int, outputs: int, num_blocks: int, stride: int) -> nn.Sequential:
    """Blocks one after another, the first with the stride."""
    blocks = [BasicBlock(inputs, outputs, stride)]
    blocks += [BasicBlock(outputs, outputs) for _ in range(num_blocks - 1)]
    return nn.Sequential(*blocks)
