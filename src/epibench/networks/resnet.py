"""Residual networks (He et al. 2016) of any depth, width and output stride, and weights for them from files.

Files of other software are read without executing code. In a network that only predicts, batch norm is folded into the
convolution before it, which gives the same function in less time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from epibench.errors import InputError, some_of
from epibench.networks.batch_norm import AbsoluteBatchNorm2d, scale_of
from epibench.networks.channels import Channels, Conv, Features
from epibench.networks.weight_files import KEYS_SHOWN, check_fit, read_weights

Depth = Literal[18, 34, 50, 101, 152]
OutputStride = Literal[8, 16, 32]
Stem = Literal["single", "triple"]

BLOCKS: dict[int, tuple[int, int, int, int]] = {
    18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3),
}  # fmt: skip
# The strides and the dilations of the four stages at each output stride; the stem divides by 4.
STEPS: dict[int, tuple[tuple[int, int, int, int], tuple[int, int, int, int]]] = {
    8: ((1, 2, 1, 1), (1, 1, 2, 4)),
    16: ((1, 2, 2, 1), (1, 1, 1, 2)),
    32: ((1, 2, 2, 2), (1, 1, 1, 1)),
}
BOTTLENECKS = (50, 101, 152)  # depths with bottlenecks
EXPANSION = 4  # of a bottleneck: channels of its output for each channel inside
NARROWEST = 8  # CPU libraries are not reliable with fewer channels
PREFIXES = ("module.", "model.", "backbone.", "encoder.")
# Names of the stem's convolutions and batch norms in files, in order.
STEM_NAMES = {
    "torchvision": ("conv1", "bn1"),
    "csail": ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3"),
    "timm": ("conv1.0", "conv1.1", "conv1.3", "conv1.4", "conv1.6", "bn1"),
}
STEM_POSITIONS = (0, 1, 3, 4, 6, 7)  # positions of these layers in our stem, between ReLUs
CLASSIFIER = "fc."
BOOKKEEPING = ("._tmp_running_mean", "._tmp_running_var", "._running_iter")  # of a synchronised batch norm


def conv3x3(inputs: int, outputs: int, stride: int = 1, dilation: int = 1) -> nn.Conv2d:
    """A 3×3 convolution that keeps the size or divides it by the stride, without bias: batch norm follows."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=dilation, dilation=dilation, bias=False)


def shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """The shortcut of a block: the identity if sizes fit, otherwise a 1×1 convolution with batch norm."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


class FarConv2d(nn.Conv2d):
    """A dilated 3×3 convolution that omits kernel entries that would only see padding.

    In a crop that is smaller than the dilation, only the middle of the kernel remains.
    """

    def __init__(self, inputs: int, outputs: int, rate: int):
        super().__init__(inputs, outputs, 3, padding=rate, dilation=rate, bias=False)
        self.rate = rate

    def forward(self, features: Tensor) -> Tensor:
        """Return (image, outputs, height, width)."""
        rows, columns = (size > self.rate for size in features.shape[2:])
        weight = self.weight if rows else self.weight[:, :, 1:2]
        weight = weight if columns else weight[:, :, :, 1:2]
        padding = (self.rate if rows else 0, self.rate if columns else 0)
        return functional.conv2d(features, weight, self.bias, 1, padding, self.rate)


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
    """A 3×3 convolution between two 1×1 convolutions, on a quarter of the channels, beside a shortcut.

    The 3×3 convolution has the stride, as in most published weights ("v1.5"); He et al. had it in the first
    convolution.
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


def block_channels(channels: Channels, block: nn.Module, inputs: Features) -> Features:
    """Note the channels of a residual block: those inside, and those that it adds to the shortcut."""
    assert isinstance(block, BasicBlock | Bottleneck)
    *inside, last = ((getattr(block, conv), getattr(block, norm)) for conv, norm in block.folds)
    inner = inputs
    for conv, norm in inside:
        inner = channels.through(conv, norm, inner)
    past = inputs if isinstance(block.shortcut, nn.Identity) else channels.layer(block.shortcut, inputs)
    return channels.add(*last, inner, to=past)


def make_stage(
    block: type[BasicBlock | Bottleneck], inputs: int, outputs: int, num_blocks: int, stride: int = 1, dilation: int = 1
) -> nn.Sequential:
    """Return blocks one after another, the first with the stride, all with the dilation."""
    others = (block(outputs, outputs, 1, dilation) for _ in range(num_blocks - 1))
    return nn.Sequential(block(inputs, outputs, stride, dilation), *others)


class ResNet(nn.Module):
    """The features of a residual network, without its classifier.

    All blocks of a stage have its dilation, as in the paper. In torchvision the first block has the dilation of the
    stage before.

    Args:
        depth: 18 and 34 have basic blocks; 50, 101 and 152 have bottlenecks.
        width: Channels inside the first stage, published 64; all other sizes scale with it.
        output_stride: Below 32, the last stages keep their resolution and dilate their 3×3 convolutions instead: by 2
            and 4 at stride 8.
        stem: A 7×7 convolution, or three 3×3 convolutions with width, width and 2 · width channels.
        ceil_mode: Whether the maximum of the stem rounds sizes up.
    """

    def __init__(
        self,
        depth: int = 101,
        width: int = 64,
        output_stride: int = 8,
        stem: str = "triple",
        ceil_mode: bool = False,
    ):
        super().__init__()
        check_shape(depth, width, output_stride, stem)
        self.depth, self.width, self.output_stride, self.stem_kind = depth, width, output_stride, stem
        self.stem = make_stem(width, stem, ceil_mode)
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
        """Features, (image, channel, ⌈height / output stride⌉, ⌈width / output stride⌉); one more with ceil_mode."""
        features: Tensor = self.stages(self.stem(image))
        return features

    def note_channels(self, channels: Channels) -> Features:
        """Note the channels of all layers, and return the channels of the features."""
        features: Features = ()
        for conv, norm in itertools.pairwise(self.stem):
            if isinstance(conv, nn.Conv2d):
                features = channels.through(conv, norm, features)
        for name in self.block_names():
            features = block_channels(channels, self.get_submodule(name), features)
        return features

    def block_names(self) -> list[str]:
        """The names of all residual blocks, in the order of forward."""
        return [f"stages.{at}.{block}" for at, number in enumerate(BLOCKS[self.depth]) for block in range(number)]


def make_stem(width: int, kind: str, ceil_mode: bool = False) -> nn.Sequential:
    """Convolutions with batch norm and ReLU, the first with stride 2, and a maximum with stride 2."""
    if kind == "single":
        convolutions = [nn.Conv2d(3, width, 7, 2, padding=3, bias=False)]
    else:
        convolutions = [conv3x3(3, width, 2), conv3x3(width, width), conv3x3(width, 2 * width)]
    layers: list[nn.Module] = []
    for conv in convolutions:
        layers += [conv, nn.BatchNorm2d(conv.out_channels), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers, nn.MaxPool2d(3, 2, padding=1, ceil_mode=ceil_mode))


def initialise(conv: nn.Conv2d) -> None:
    """He's initialisation, which keeps the variance of gradients."""
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")


def check_shape(depth: int, width: int, output_stride: int, stem: str) -> None:
    """Raise an InputError unless a ResNet of this shape is possible."""
    for name, value, kind in (
        ("depth", depth, Depth),
        ("output_stride", output_stride, OutputStride),
        ("stem", stem, Stem),
    ):
        choices = get_args(kind)
        if value not in choices:
            raise InputError(f"{name} of a ResNet: choose one of {', '.join(map(str, choices))}, not {value}")
    if width < NARROWEST:
        raise InputError(f"width of a ResNet: at least {NARROWEST}, not {width}")


def load_backbone(resnet: ResNet, path: str | Path) -> None:
    """Load the weights of a ResNet from a .safetensors file or a file of torch.save.

    Names of torchvision and timm are accepted, with a stem of three convolutions in timm's or the MIT CSAIL group's
    names. Prefixes (`module.`, `backbone.` …) and wrappers (`state_dict`, `model`) are removed. A classifier is
    ignored.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise InputError(f"{path}: no such file; backbone_weights names a .safetensors file or one of torch.save")
    weights = _unprefixed(read_weights(path))
    if not any(name.startswith("layer1.0.") for name in weights):
        raise InputError(
            f"{path}: no weights of a ResNet ({some_of(sorted(weights), KEYS_SHOWN) or 'it has no tensors'}); "
            "expected names as torchvision and timm have them: conv1.weight, bn1.weight, layer1.0.conv1.weight"
        )
    ignored = [name for name in weights if name.startswith(CLASSIFIER) or name.endswith(BOOKKEEPING)]
    weights = {name: tensor for name, tensor in weights.items() if name not in ignored}
    own = resnet.state_dict()
    names = {name: _their_name(name, _stem_naming(weights, resnet)) for name in own}
    expected = {names[name]: tensor for name, tensor in own.items()}
    kind = f"a ResNet{resnet.depth} of width {resnet.width} with stem={resnet.stem_kind}"
    check_fit(path, weights, expected, kind, _hints(weights, resnet))
    resnet.load_state_dict({name: weights.get(names[name], tensor) for name, tensor in own.items()})


def _unprefixed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return only the part behind a prefix, if any: other parts belong to a larger network."""
    while not any(name.startswith("layer1.") for name in weights):
        prefix = next((each for each in PREFIXES if any(name.startswith(each) for name in weights)), None)
        if prefix is None:
            break
        weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
    return weights


def _stem_of(weights: Mapping[str, Tensor]) -> str:
    """Return the naming of a file's stem."""
    return "timm" if "conv1.0.weight" in weights else "csail" if "conv3.weight" in weights else "torchvision"


def _stem_naming(weights: Mapping[str, Tensor], resnet: ResNet) -> str:
    """Return the naming of our stem for a file, also if the file has another stem."""
    if resnet.stem_kind == "single":
        return "torchvision"
    return "timm" if _stem_of(weights) == "timm" else "csail"


def _their_name(name: str, stem_naming: str) -> str:
    """Return the file's name of one of our parameters."""
    part, rest = name.split(".", 1)
    if part == "stem":
        position, kind = rest.split(".")
        return f"{STEM_NAMES[stem_naming][STEM_POSITIONS.index(int(position))]}.{kind}"
    stage, rest = rest.split(".", 1)
    return f"layer{int(stage) + 1}." + rest.replace("norm", "bn").replace("shortcut", "downsample")


def _hints(weights: Mapping[str, Tensor], resnet: ResNet) -> list[str]:
    """Return settings that make the file fit, as known from its keys and shapes."""
    hints = []
    stem = "single" if _stem_of(weights) == "torchvision" else "triple"
    if stem != resnet.stem_kind:
        number = "one convolution" if stem == "single" else "three convolutions"
        hints.append(f"the file has a stem of {number}: set network.stem={stem}")
    bottleneck = "layer1.0.conv3.weight" in weights
    stages = ([name for name in weights if name.startswith(f"layer{at}.")] for at in range(1, 5))
    blocks = tuple(len({name.split(".")[1] for name in stage}) for stage in stages)
    depths = [depth for depth in BLOCKS if BLOCKS[depth] == blocks and (depth in BOTTLENECKS) == bottleneck]
    if depths and depths[0] != resnet.depth:
        hints.append(f"the file holds a ResNet{depths[0]}: set network.depth={depths[0]}")
    last = weights.get("layer1.0.conv3.weight" if bottleneck else "layer1.0.conv2.weight")
    width = 0 if last is None or last.dim() != 4 else len(last) // (EXPANSION if bottleneck else 1)
    if width and width != resnet.width:
        hints.append(f"the file has width {width}: set network.width={width}")
    if any(".downsample.2." in name for name in weights):
        hints.append("the file is a ResNet-D, whose shortcuts average first: such weights cannot be used")
    return hints


def fold_batch_norm(network: nn.Module) -> None:
    """Fold batch norm behind a convolution, in a Sequential or in a pair of a module's `folds`.

    Only plain convolutions that are used once are folded. Shared layers, computed weights and layers with hooks, e.g.
    of inserted dropout, do not change.
    """
    uses = Counter(id(child) for module in network.modules() for child in module._modules.values())
    for module in list(network.modules()):
        for first, second in _pairs(module):
            conv, norm = getattr(module, first), getattr(module, second)
            if uses[id(conv)] == uses[id(norm)] == 1 and _foldable(conv, norm):
                _fold(conv, norm)
                setattr(module, second, nn.Identity())


def _pairs(module: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield names of two children, of which only the second takes the first one's output."""
    if type(module) is nn.Sequential:
        yield from itertools.pairwise(module._modules)
    else:
        yield from getattr(module, "folds", ())


def _foldable(conv: nn.Module, norm: nn.Module) -> bool:
    # Subclasses may compute anything.
    plain = type(conv) in (nn.Conv2d, nn.ConvTranspose2d, FarConv2d)
    plain = plain and type(norm) in (nn.BatchNorm2d, AbsoluteBatchNorm2d)
    if not plain or not isinstance(conv, Conv) or not isinstance(norm, nn.BatchNorm2d):
        return False
    hooks = conv._forward_hooks or conv._forward_pre_hooks or norm._forward_hooks or norm._forward_pre_hooks
    return not hooks and conv.groups == 1 and norm.running_var is not None and not norm.training


def _fold(conv: Conv, norm: nn.BatchNorm2d) -> None:
    """Fold (w * x + b − mean) · scale + shift into one convolution, in float64, rounded once."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    weight = torch.ones_like(norm.running_var) if norm.weight is None else norm.weight
    scale = scale_of(norm, weight.double()) / (norm.running_var.double() + norm.eps).sqrt()
    bias = 0.0 if conv.bias is None else conv.bias.double()
    shift = 0.0 if norm.bias is None else norm.bias.double()
    outputs = (1, -1, 1, 1) if isinstance(conv, nn.ConvTranspose2d) else (-1, 1, 1, 1)
    with torch.no_grad():  # new tensors: the old ones may belong to the caller or to a file
        for name, folded in (
            ("bias", (bias - norm.running_mean.double()) * scale + shift),
            ("weight", conv.weight.double() * scale.view(outputs)),
        ):
            setattr(conv, name, nn.Parameter(folded.to(conv.weight.dtype), requires_grad=conv.weight.requires_grad))
