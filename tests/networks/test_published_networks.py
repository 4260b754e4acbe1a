"""Both published networks against a second writing-down of them, in plain functions of torch with the same weights.

What they are is said by the paper and its code (docs/dense.md): no class of ours is used below but the networks that
are tested. Dropout masks are given by a function, so that both drop the same elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from epibench.networks.dropout import SeededDropout, dropout_mask, insert_dropout
from epibench.recipes import RECIPES
from epibench.training.network import upsampled

Weights = Mapping[str, Tensor]
RATE, KEYS = 0.5, torch.tensor([11, -5])
RESNET34, RESNET101 = (3, 4, 6, 3), (3, 4, 23, 3)


class Masks:
    """What dropout multiplies with, one after another."""

    def __init__(self) -> None:
        self.number = 0

    def __call__(self, values: Tensor, rate: float = RATE, channels: bool = False) -> Tensor:
        shape = (*values.shape[1:2], 1, 1) if channels else tuple(values.shape[1:])
        self.number += 1
        return values * dropout_mask(KEYS, self.number - 1, shape, rate)


class Plain:
    """The layers that both networks are made of, on weights by name."""

    def __init__(self, weights: Weights, training: bool, absolute_scale: bool = False):
        self.weights, self.training, self.absolute_scale = weights, training, absolute_scale

    def norm(self, values: Tensor, name: str) -> Tensor:
        mean, variance = self.weights[f"{name}.running_mean"], self.weights[f"{name}.running_var"]
        if self.training:  # by the batch, each pixel of each image counting once
            mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3), correction=0)
        scale = self.weights[f"{name}.weight"]
        scale = (scale.abs() + 1e-5 if self.absolute_scale else scale) / (variance + 1e-5).sqrt()
        return (values - mean[:, None, None]) * scale[:, None, None] + self.weights[f"{name}.bias"][:, None, None]

    def conv(self, values: Tensor, name: str, stride: int = 1, dilation: int = 1) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        padding = dilation * (weight.shape[-1] // 2)
        return functional.conv2d(values, weight, self.weights.get(f"{name}.bias"), stride, padding, dilation)

    def basic(self, values: Tensor, name: str, stride: int) -> Tensor:
        inner = self.norm(self.conv(values, f"{name}.conv1", stride), f"{name}.norm1").relu()
        inner = self.norm(self.conv(inner, f"{name}.conv2"), f"{name}.norm2")
        return (inner + self.shortcut(values, name, stride)).relu()

    def bottleneck(self, values: Tensor, name: str, stride: int, dilation: int) -> Tensor:
        inner = self.norm(self.conv(values, f"{name}.conv1"), f"{name}.norm1").relu()
        inner = self.norm(self.conv(inner, f"{name}.conv2", stride, dilation), f"{name}.norm2").relu()
        inner = self.norm(self.conv(inner, f"{name}.conv3"), f"{name}.norm3")
        return (inner + self.shortcut(values, name, stride)).relu()

    def shortcut(self, values: Tensor, name: str, stride: int) -> Tensor:
        if f"{name}.shortcut.0.weight" not in self.weights:
            return values
        return self.norm(self.conv(values, f"{name}.shortcut.0", stride), f"{name}.shortcut.1")


def depth_completion(weights: Weights, image: Tensor, sparse: Tensor, drop: Callable[..., Tensor] | None) -> Tensor:
    """Mean and log variance; dropout in seven places; the skips carry what was dropped."""
    plain = Plain(weights, drop is not None and getattr(drop, "training", False))
    dropped = drop or (lambda values: values)

    def layer(values: Tensor, name: str, stride: int = 1) -> Tensor:
        return functional.leaky_relu(plain.norm(plain.conv(values, f"{name}.0", stride), f"{name}.1"), 0.2)

    def up(values: Tensor, name: str, stride: int) -> Tensor:
        weight = weights[f"{name}.0.weight"]
        larger = functional.conv_transpose2d(values, weight, None, stride, 1, output_padding=stride - 1)
        return functional.leaky_relu(plain.norm(larger, f"{name}.1"), 0.2)

    red, green, blue = image.long().split(1, 1)
    grey = (299 * red + 587 * green + 114 * blue + 500) // 1000  # 0 … 255, rounded
    first = torch.cat((layer(grey.float(), "image_stem"), layer(sparse, "depth_stem")), 1)
    outputs = [first]
    for stage, (blocks, stride) in enumerate(zip(RESNET34, (1, 2, 2, 2), strict=True)):
        values = outputs[-1]
        for block in range(blocks):
            values = plain.basic(values, f"encoder.{stage}.{block}", stride if block == 0 else 1)
        outputs.append(dropped(values) if stage >= 2 else values)
    deepest = dropped(layer(outputs[-1], "encoder.4", 2))
    values = dropped(torch.cat((up(deepest, "decoder.0", 2), outputs[4]), 1))
    values = dropped(torch.cat((up(values, "decoder.1", 2), outputs[3]), 1))
    values = dropped(torch.cat((up(values, "decoder.2", 2), outputs[2]), 1))
    values = dropped(torch.cat((up(values, "decoder.3", 2), outputs[1]), 1))
    values = torch.cat((up(values, "decoder.4", 1), outputs[0]), 1)
    return torch.cat((100 * plain.conv(values, "mean"), plain.conv(values, "log_variance")), 1)


def deeplabv3(weights: Weights, image: Tensor, drop: Callable[..., Tensor] | None) -> Tensor:
    """Logits at the size of the image; dropout after each stage; that of channels in the head only in training."""
    plain = Plain(weights, drop is not None and getattr(drop, "training", False), absolute_scale=True)
    dropped = drop or (lambda values: values)

    def leaky(values: Tensor, name: str, dilation: int = 1) -> Tensor:
        return functional.leaky_relu(plain.norm(plain.conv(values, f"{name}.0", 1, dilation), f"{name}.1"), 0.01)

    red, green, blue = image.to(weights["logits.weight"].dtype).split(1, 1)
    values = torch.cat((red - 102.9801, green - 115.9465, blue - 122.7717), 1)
    for number, stride in ((0, 2), (3, 1), (6, 1)):
        values = plain.conv(values, f"backbone.stem.{number}", stride)
        values = plain.norm(values, f"backbone.stem.{number + 1}").relu()
    values = functional.max_pool2d(values, 3, 2, 1, ceil_mode=True)
    for stage, (blocks, stride, dilation) in enumerate(zip(RESNET101, (1, 2, 1, 1), (1, 1, 2, 4), strict=True)):
        for block in range(blocks):
            name = f"backbone.stages.{stage}.{block}"
            values = plain.bottleneck(values, name, stride if block == 0 else 1, dilation)
        values = dropped(values)
    size = values.shape[2:]
    parts = [leaky(values, "pyramid.branches.0")]
    parts += [leaky(values, f"pyramid.branches.{number}", rate) for number, rate in ((1, 12), (2, 24), (3, 36))]
    pooled = leaky(values.mean((2, 3), keepdim=True), "pyramid.mean")
    values = leaky(torch.cat([*parts, pooled.expand(-1, -1, *size)], 1), "pyramid.project")
    if plain.training:
        values = dropped(values, 0.1, channels=True)
    logits = plain.conv(values, "logits")
    return functional.interpolate(logits, image.shape[2:], mode="bilinear", align_corners=True)


def published_network(name: str, num_classes: int | None, **narrower) -> torch.nn.Module:
    """The network of a recipe, with weights and statistics that make everything matter."""
    torch.manual_seed(0)
    options = RECIPES[name].network.model_copy(update=narrower)
    network = options.build(num_classes)
    for parameter_name, values in network.state_dict().items():
        if parameter_name.endswith("running_mean"):
            values.normal_(0, 0.3)
        elif parameter_name.endswith("running_var"):
            values.uniform_(0.5, 2.0)
        elif values.dim() == 4:
            torch.nn.init.kaiming_normal_(values)
        elif values.is_floating_point():
            values.add_(torch.randn(values.shape), alpha=0.1)
            values.mul_(2 * torch.randint(0, 2, values.shape) - 1)  # of both signs
    return network


def predicted(network: torch.nn.Module, inputs: dict[str, Tensor], training: bool, rate: float) -> Tensor:
    """What a network says with dropout after its places, as training and evaluation have it."""
    handles = insert_dropout(network, network.dropout_places, rate) if rate else []
    network.train(training)
    with torch.no_grad(), SeededDropout(KEYS, by_mode=True) as mode:
        outputs = network(inputs)
    assert mode.calls == (len(handles) + (1 if training and "pyramid" in dict(network.named_children()) else 0))
    for handle in handles:
        handle.remove()
    return outputs


def make_inputs(height: int, width: int) -> dict[str, Tensor]:
    image = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
    sparse = torch.where(torch.rand(2, 1, height, width) < 0.05, 80 * torch.rand(2, 1, height, width), 0.0)
    return {"image": image, "sparse_depth": sparse}


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """To 1e-5 of what is largest."""
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
    assert float(expected.std()) > 1e-3 * float(expected.abs().max())  # something is predicted


def masks(training: bool) -> Masks:
    drop = Masks()
    drop.training = training
    return drop


@pytest.mark.parametrize("training", [False, True], ids=["prediction", "training"])
@pytest.mark.parametrize("size", [(32, 48), (64, 32), (96, 80)])
def test_depth_network_with_masks(size: tuple[int, int], training: bool) -> None:
    network = published_network("kitti-depth", None, width=8)
    inputs, drop = make_inputs(*size), masks(training)
    expected = depth_completion(network.state_dict(), inputs["image"], inputs["sparse_depth"], drop)
    assert drop.number == 7
    assert_equal(predicted(network, inputs, training, RATE), expected)


def test_depth_network_at_its_published_width() -> None:
    network, inputs = published_network("kitti-depth", None), make_inputs(32, 48)
    expected = depth_completion(network.state_dict(), inputs["image"], inputs["sparse_depth"], masks(False))
    assert_equal(predicted(network, inputs, False, RATE), expected)
    without = depth_completion(network.state_dict(), inputs["image"], inputs["sparse_depth"], None)
    assert_equal(predicted(network, inputs, False, 0.0), without)
    assert float((without - expected).abs().max()) > 1e-2 * float(without.abs().max())


@pytest.mark.parametrize("training", [False, True], ids=["prediction", "training"])
@pytest.mark.parametrize("size", [(64, 96), (65, 97), (128, 72), (512, 512)])
def test_segmentation_network_with_masks(size: tuple[int, int], training: bool) -> None:
    network, image = published_network("cityscapes-segmentation", 19, width=8, head_width=16), make_inputs(*size)
    if training:  # batch norm of the means of two images divides by their difference, which magnifies rounding
        network.double()
    drop = masks(training)
    expected = deeplabv3(network.state_dict(), image["image"], drop)
    assert drop.number == (5 if training else 4)
    logits = predicted(network, image, training, RATE)
    if size == (512, 512):
        assert logits.shape[2:] == (65, 65)
    assert_equal(upsampled(logits, size), expected)


def test_segmentation_network_at_its_published_width() -> None:
    network, image = published_network("cityscapes-segmentation", 19), make_inputs(48, 64)
    expected = deeplabv3(network.state_dict(), image["image"], masks(False))
    assert_equal(upsampled(predicted(network, image, False, RATE), (48, 64)), expected)


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [("kitti-depth", None, 26_107_458), ("cityscapes-segmentation", 19, 74_359_251)],
)
def test_parameters(name: str, num_classes: int | None, expected: int) -> None:
    with torch.device("meta"):
        network = RECIPES[name].network.build(num_classes)
    assert sum(each.numel() for each in network.parameters()) == expected
