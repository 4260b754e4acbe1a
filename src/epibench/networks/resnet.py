"""Residual networks (He et al. 2016) of any depth, width and output stride."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from torch import Tensor, nn
from torch.nn import functional

from epibench.errors import InputError

Depth = Literal[18, 34, 50, 101, 152]
OutputStride = Literal[8, 16, 32]
Stem = Literal["single", "triple"]

BLOCKS: dict[int, tuple[int, int, int, int]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
# The strides and the dilations of the four stages at each output stride; the stem divides by 4.
STEPS: dict[int, tuple[tuple[int, int, int, int], tuple[int, int, int, int]]] = {
    8: ((1, 2, 1, 1), (1, 1, 2, 4)),
    16: ((1, 2, 2, 1), (1, 1, 1, 2)),
    32: ((1, 2, 2, 2), (1, 1, 1, 1)),
}
BOTTLENECKS = (50, 101, 152)  # depths that are made of bottlenecks
EXPANSION = 4  # of a bottleneck: its output has so many times the channels of its inside
NARROWEST = 8  # CPU libraries are not reliable with fewer channels


def conv3x3(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size, or divides it by the stride; batch norm follows, so it has no bias."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """What goes past a block: nothing is done where sizes fit, otherwise a 1×1 convolution with batch norm."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut."""

    folds: ClassVar[tuple[tuple[str, str], ...]] = (("conv1", "norm1"), ("conv2", "norm2"))

    def __init__(self, inputs: int, outputs: int, stride: int = 1, dilation: int = 1):
        super().__init__()
        self.conv1, self.norm1 = conv3x3(inputs, outputs, stride, dilation), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = conv3x3(outputs, outputs, 1, dilation), nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """(image, channel, height, width), smaller by the stride."""
        inner = functional.relu(self.norm1(self.conv1(inputs)))
        return functional.relu(self.norm2(self.conv2(inner)) + self.shortcut(inputs))


class Bottleneck(nn.Module):
    """A 3×3 convolution between two of 1×1, on a quarter of the channels, beside a shortcut.

    The stride is that of the 3×3 convolution, as in most published weights ("v1.5"); He et al. had it in the first.
    """

    folds: ClassVar[tuple[tuple[str, str], ...]] = (*BasicBlock.folds, ("conv3", "norm3"))

    def __init__(self, inputs: int, outputs: int, stride: int = 1, dilation: int = 1):
        super().__init__()
        inside = outputs // EXPANSION
        self.conv1, self.norm1 = nn.Conv2d(inputs, inside, 1, bias=False), nn.BatchNorm2d(inside)
        self.conv2, self.norm2 = conv3x3(inside, inside, stride, dilation), nn.BatchNorm2d(inside)
        self.conv3, self.norm3 = nn.Conv2d(inside, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, inputs: Tensor) -> Tensor:
        """(image, channel, height, width), smaller by the stride."""
        inner = functional.relu(self.norm1(self.conv1(inputs)))
        inner = functional.relu(self.norm2(self.conv2(inner)))
        return functional.relu(self.norm3(self.conv3(inner)) + self.shortcut(inputs))


def make_stage(
    block: type[BasicBlock] | type[Bottleneck],
    inputs: int,
    outputs: int,
    num_blocks: int,
    stride: int = 1,
    dilation: int = 1,
) -> nn.Sequential:
    """Blocks one after another, the first with the stride, all of them with the dilation."""
    blocks = [block(inputs, outputs, stride, dilation)]
    blocks += [block(outputs, outputs, 1, dilation) for _ in range(num_blocks - 1)]
    return nn.Sequential(*blocks)


def basic_stage(inputs: int, outputs: int, num_blocks: int, stride: int) -> nn.Sequential:
    """A stage of basic blocks."""
    return make_stage(BasicBlock, inputs, outputs, num_blocks, stride)


class ResNet(nn.Module):
    """The features of a residual network; its classifier is left out.

    depth: 18 and 34 are made of basic blocks, 50, 101 and 152 of bottlenecks. width: channels inside the first stage,
    64 in the published ones; every other size scales with it. output_stride: below 32, the last stages keep their
    resolution and dilate their 3×3 convolutions instead: by 2 and 4 at stride 8. All blocks of a stage have its
    dilation, as in the paper that this follows; torchvision gives the first block that of the stage before. stem: a
    7×7 convolution, or three of 3×3 with width, width and 2 · width channels.
    """

    def __init__(self, depth: int = 101, width: int = 64, output_stride: int = 8, stem: str = "triple"):
        super().__init__()
        check_shape(depth, width, output_stride, stem)
        self.depth, self.width, self.output_stride, self.stem_kind = depth, width, output_stride, stem
        self.stem = make_stem(width, stem)
        block = Bottleneck if depth in BOTTLENECKS else BasicBlock
        expansion = EXPANSION if block is Bottleneck else 1
        sizes = [2 * width if stem == "triple" else width, *(expansion * width * 2**stage for stage in range(4))]
        strides, dilations = STEPS[output_stride]
        shapes = zip(sizes, sizes[1:], BLOCKS[depth], strides, dilations, strict=False)
        self.stages = nn.Sequential(*(make_stage(block, *shape) for shape in shapes))
        self.channels = sizes[-1]
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                initialise(module)

    def forward(self, image: Tensor) -> Tensor:
        """Features, (image, channel, ⌈height / output stride⌉, ⌈width / output stride⌉)."""
        features: Tensor = self.stages(self.stem(image))
        return features

    def block_names(self) -> list[str]:
        """The names of all residual blocks, in the order of forward."""
        return [f"stages.{at}.{block}" for at, number in enumerate(BLOCKS[self.depth]) for block in range(number)]


def make_stem(width: int, kind: str) -> nn.Sequential:
    """Convolutions with batch norm and ReLU, the first with stride 2, and a maximum with stride 2."""
    if kind == "single":
        convolutions = [nn.Conv2d(3, width, 7, 2, padding=3, bias=False)]
    else:
        convolutions = [conv3x3(3, width, 2), conv3x3(width, width), conv3x3(width, 2 * width)]
    layers: list[nn.Module] = []
    for conv in convolutions:
        layers += [conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(3, 2, padding=1))


def initialise(conv: nn.Conv2d) -> None:
    """He's initialisation, which keeps the variance of gradients."""
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")


def check_shape(depth: int, width: int, output_stride: int, stem: str) -> None:
    """A ResNet of this shape can be made, or an InputError."""
    for name, value, choices in (
        ("depth", depth, get_args(Depth)),
        ("output_stride", output_stride, get_args(OutputStride)),
        ("stem", stem, get_args(Stem)),
    ):
        if value not in choices:
            raise InputError(f"{name} of a ResNet: choose one of {', '.join(map(str, choices))}, not {value}")
    if width < NARROWEST:
        raise InputError(f"width of a ResNet: at least {NARROWEST}, not {width}")
