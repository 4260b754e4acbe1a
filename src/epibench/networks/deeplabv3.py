"""DeepLabv3 (Chen et al. 2017): classes of pixels, from features at several distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.resnet import NARROWEST, FarConv2d, ResNet, initialise, load_backbone

# Of ImageNet's images, from 0 to 1: what published weights were trained with.
IMAGE_MEAN, IMAGE_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
LOGITS_STD = 0.01
DROPPED_BLOCKS = 4  # the last residual blocks, after which MC-dropout drops


class DeepLabV3(nn.Module):
    """A ResNet, the pyramid of dilated convolutions, and a 1×1 convolution to logits at 1 / output_stride of the size.

    The defaults are the network of Gustafsson et al. (2020). rates: the dilations of the pyramid, in pixels of the
    features; Chen et al. halve them at output stride 16. backbone_weights: a file with weights of the ResNet, see
    `load_backbone`; None starts from He's initialisation.
    """

    image_mean: Tensor
    image_std: Tensor

    def __init__(
        self,
        num_classes: int,
        depth: int = 101,
        output_stride: int = 8,
        width: int = 64,
        head_width: int = 512,
        rates: Sequence[int] = (12, 24, 36),
        stem: str = "triple",
        head_dropout: float = 0.1,
        backbone_weights: str | Path | None = None,
    ):
        super().__init__()
        check_head(num_classes, head_width, rates, head_dropout)
        self.backbone = ResNet(depth, width, output_stride, stem)
        self.pyramid = Pyramid(self.backbone.channels, head_width, tuple(rates), head_dropout)
        self.logits = nn.Conv2d(head_width, num_classes, 1)
        nn.init.normal_(self.logits.weight, std=LOGITS_STD)  # begins with nearly equal probabilities
        nn.init.zeros_(cast(Tensor, self.logits.bias))
        # Not in the state dict: they are no weights, and the same for everyone.
        self.register_buffer("image_mean", 255 * torch.tensor(IMAGE_MEAN).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("image_std", 255 * torch.tensor(IMAGE_STD).view(1, 3, 1, 1), persistent=False)
        self.dropout_places = tuple(f"backbone.{name}" for name in self.backbone.block_names()[-DROPPED_BLOCKS:])
        if backbone_weights is not None:
            load_backbone(self.backbone, backbone_weights)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, (image, class, ⌈height / output stride⌉, ⌈width / output stride⌉) float32.

        inputs: `image`, (image, 3, height, width) uint8.
        """
        image = (inputs["image"].to(self.image_mean.dtype) - self.image_mean) / self.image_std
        logits: Tensor = self.logits(self.pyramid(self.backbone(image)))
        return logits.float()


class Pyramid(nn.Module):
    """Features at several distances side by side: a 1×1 convolution, 3×3 ones with each dilation, and the image's mean.

    Each has `outputs` channels with batch norm and ReLU; all together are projected to as many.
    """

    def __init__(self, inputs: int, outputs: int, rates: tuple[int, ...], dropout: float):
        super().__init__()
        near = nn.Conv2d(inputs, outputs, 1, bias=False)
        far = [FarConv2d(inputs, outputs, rate) for rate in rates]
        self.branches = nn.ModuleList([normalised(conv) for conv in (near, *far)])
        self.mean = normalised(nn.Conv2d(inputs, outputs, 1, bias=False))
        self.project = normalised(nn.Conv2d((len(rates) + 2) * outputs, outputs, 1, bias=False))
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, features: Tensor) -> Tensor:
        """(image, outputs, height, width)."""
        if self.training and len(features) == 1:
            raise InputError(
                "DeepLabV3 cannot train on a batch of one image: the mean of an image is one value for each channel, "
                "which batch norm cannot normalise; set batch_size to 2 or more"
            )
        mean = self.mean(features.mean((2, 3), keepdim=True)).expand(-1, -1, *features.shape[2:])
        together = torch.cat([*(branch(features) for branch in self.branches), mean], 1)
        dropped: Tensor = self.dropout(self.project(together))
        return dropped


def normalised(conv: nn.Conv2d) -> nn.Sequential:
    """A convolution with batch norm and ReLU, from He's initialisation."""
    initialise(conv)
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU(inplace=True))


def check_head(num_classes: int, head_width: int, rates: Sequence[int], dropout: float) -> None:
    """A head of this shape can be made, or an InputError."""
    if num_classes < 2:
        raise InputError(f"num_classes of DeepLabV3: at least 2, not {num_classes}")
    if head_width < NARROWEST:
        raise InputError(f"head_width of DeepLabV3: at least {NARROWEST}, not {head_width}")
    if not all(rate >= 1 for rate in rates):
        raise InputError(f"rates of DeepLabV3: dilations of 1 or more, not {list(rates)}")
    if not 0 <= dropout < 1:
        raise InputError(f"head_dropout of DeepLabV3: from 0 to below 1, not {dropout}")
