"""Both published networks in plain functions of torch, on weights by the authors' names; no layer of ours is used."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from epibench.networks.dropout import dropout_mask

Shapes = dict[str, tuple[int, ...]]
Weights = Mapping[str, Tensor]
Drop = Callable[..., Tensor]
KEYS, RATE = torch.tensor([11, -5]), 0.5
RESNET34, RESNET101 = (3, 4, 6, 3), (3, 4, 23, 3)
MEANS = (102.9801, 115.9465, 122.7717)  # of B, G and R, which the authors take off R, G and B


def norm_shapes(name: str, channels: int) -> Shapes:
    return {f"{name}.{each}": (channels,) for each in ("weight", "bias", "running_mean", "running_var")}


def counted(shapes: Shapes) -> Shapes:
    """With the counters of batch norm, which PyTorch 0.4 did not have."""
    norms = [name.removesuffix("running_var") for name in shapes if name.endswith("running_var")]
    return {**shapes, **{f"{name}num_batches_tracked": () for name in norms}}


def depth_shapes() -> Shapes:
    shapes: Shapes = {}
    convs = [("conv1_d", 32, 1), ("conv1_img", 32, 1), ("conv6", 512, 512)]
    ups = [("convt5", 512, 256), ("convt4", 768, 128), ("convt3", 384, 64), ("convt2", 192, 64), ("convt1", 128, 64)]
    for name, outputs, inputs in convs:
        shapes |= {f"{name}.0.weight": (outputs, inputs, 3, 3), **norm_shapes(f"{name}.1", outputs)}
    for name, inputs, outputs in ups:  # transposed convolutions count their inputs first
        shapes |= {f"{name}.0.weight": (inputs, outputs, 3, 3), **norm_shapes(f"{name}.1", outputs)}
    for stage, (blocks, channels) in enumerate(zip(RESNET34, (64, 128, 256, 512), strict=True)):
        for block in range(blocks):
            name, inputs = f"conv{stage + 2}.{block}", channels // 2 if stage and not block else channels
            for conv, before in ((1, inputs), (2, channels)):
                shapes |= {f"{name}.conv{conv}.weight": (channels, before, 3, 3)}
                shapes |= norm_shapes(f"{name}.bn{conv}", channels)
            if inputs != channels:
                shapes |= {f"{name}.downsample.0.weight": (channels, inputs, 1, 1)}
                shapes |= norm_shapes(f"{name}.downsample.1", channels)
    for name in ("convtf_mean.0", "convtf_var.0"):
        shapes |= {f"{name}.weight": (1, 128, 1, 1), f"{name}.bias": (1,)}
    return shapes


def segmentation_shapes() -> Shapes:
    shapes: Shapes = {"cls.weight": (19, 512, 1, 1), "cls.bias": (19,)}
    for number, (outputs, inputs) in enumerate(((64, 3), (64, 64), (128, 64)), 1):
        shapes |= {f"conv{number}.weight": (outputs, inputs, 3, 3), **norm_shapes(f"bn{number}", outputs)}
    before = 128
    for stage, blocks in enumerate(RESNET101):
        inside = 64 * 2**stage
        for block in range(blocks):
            name = f"layer{stage + 1}.{block}"
            for conv, shape in (
                (1, (inside, before, 1, 1)),
                (2, (inside, inside, 3, 3)),
                (3, (4 * inside, inside, 1, 1)),
            ):
                shapes |= {f"{name}.conv{conv}.weight": shape, **norm_shapes(f"{name}.bn{conv}", shape[0])}
            if block == 0:
                shapes |= {f"{name}.downsample.0.weight": (4 * inside, before, 1, 1)}
                shapes |= norm_shapes(f"{name}.downsample.1", 4 * inside)
            before = 4 * inside
    layers = {"conv_img": (2048, 1), "conv1": (2048, 1), "conv2": (2048, 3), "conv3": (2048, 3), "conv4": (2048, 3)}
    for part, (inputs, size) in {**layers, "conv_bn_dropout": (5 * 512, 1)}.items():
        shapes |= {f"aspp.{part}.0.weight": (512, inputs, size, size), **norm_shapes(f"aspp.{part}.1", 512)}
    return shapes


SHAPES = {"depth": depth_shapes, "segmentation": segmentation_shapes}
FIRST = {"bn1.running_var": 3e4, "conv1_img.1.running_var": 3e4, "conv1_d.1.running_var": 3e2}
RESIDUAL = (".bn3.weight", ".bn2.weight")  # of blocks, whose outputs would grow from block to block


def random_weights(task: str, seed: int = 0) -> dict[str, Tensor]:
    """Weights and statistics such that each of them matters; scales of batch norm have both signs."""
    generator, weights = torch.Generator().manual_seed(seed), {}
    for name, shape in SHAPES[task]().items():
        if len(shape) == 4:
            inputs = shape[0] if name.startswith("convt") and "tf" not in name else shape[1]
            std = math.sqrt(2 / (inputs * shape[2] * shape[3]))
            weights[name] = torch.empty(shape).normal_(0, std, generator=generator)
        elif name.endswith("running_mean"):
            weights[name] = torch.empty(shape).normal_(0, 0.3, generator=generator)
        elif name.endswith("bias"):
            weights[name] = torch.empty(shape).normal_(0, 0.1, generator=generator)
        else:
            weights[name] = torch.empty(shape).uniform_(0.5, 1.5, generator=generator)
            if name.endswith("weight"):
                weights[name] *= torch.randint(0, 2, shape, generator=generator) * 2 - 1
        if name in FIRST:  # takes levels from 0 to 255, or metres, to values near 1, so that biases and means matter
            weights[name] *= FIRST[name]
        if name.endswith(RESIDUAL):
            weights[name] *= 0.2
    if task == "depth":  # some 20 m
        weights["convtf_mean.0.bias"].fill_(0.2)
        weights["convtf_mean.0.weight"] *= 0.05
    return weights


class Masks:
    """Dropout with the masks of `SeededDropout`, place by place.

    stem_place: where the stems' order matters: ours is (image, depth) where the authors' is (depth, image).
    """

    def __init__(self, stem_place: int | None = None) -> None:
        self.stem_place, self.number = stem_place, 0

    def __call__(self, values: Tensor, rate: float = RATE, channels: bool = False) -> Tensor:
        shape = (values.shape[1], 1, 1) if channels else tuple(values.shape[1:])
        mask = dropout_mask(KEYS, self.number, shape, rate)
        if self.number == self.stem_place:
            *before, image, depth = mask.chunk(4, 1)
            mask = torch.cat((*before, depth, image), 1)
        self.number += 1
        return values * mask


def identity(values: Tensor) -> Tensor:
    return values


def conv(weights: Weights, values: Tensor, name: str, stride: int = 1, dilation: int = 1) -> Tensor:
    weight = weights[f"{name}.weight"]
    padding = dilation * (weight.shape[-1] // 2)
    return functional.conv2d(values, weight, weights.get(f"{name}.bias"), stride, padding, dilation)


def batch_norm(weights: Weights, values: Tensor, name: str, absolute: bool, training: bool) -> Tensor:
    """By stored statistics, in training by statistics of the batch; absolute: |γ| + 1e-5, as in in-place ABN."""
    scale, mean, variance = (weights[f"{name}.{each}"] for each in ("weight", "running_mean", "running_var"))
    if training:
        mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3), correction=0)
    scale = (scale.abs() + 1e-5 if absolute else scale) / (variance + 1e-5).sqrt()
    return (values - mean[:, None, None]) * scale[:, None, None] + weights[f"{name}.bias"][:, None, None]


def depth_network(
    weights: Weights, image: Tensor, sparse: Tensor, drop: Drop = identity, training: bool = False
) -> Tensor:
    """Mean and log variance in metres, of an RGB image from 0 to 255 and sparse depth; dropout in seven places."""
    norm = partial(batch_norm, weights, absolute=False, training=training)

    def leaky(values: Tensor, name: str) -> Tensor:
        return functional.leaky_relu(norm(values, f"{name}.1"), 0.2)

    def down(values: Tensor, name: str, stride: int = 1) -> Tensor:
        return leaky(conv(weights, values, f"{name}.0", stride), name)

    def up(values: Tensor, name: str, stride: int = 2) -> Tensor:
        weight = weights[f"{name}.0.weight"]
        return leaky(functional.conv_transpose2d(values, weight, None, stride, 1, output_padding=stride - 1), name)

    def stage(values: Tensor, name: str, blocks: int, stride: int) -> Tensor:
        for block in range(blocks):
            step, inside = stride if block == 0 else 1, f"{name}.{block}"
            inner = conv(weights, values, f"{inside}.conv1", step)
            inner = conv(weights, norm(inner, f"{inside}.bn1").relu(), f"{inside}.conv2")
            if f"{inside}.downsample.0.weight" in weights:
                values = conv(weights, values, f"{inside}.downsample.0", step)
                values = norm(values, f"{inside}.downsample.1")
            values = (norm(inner, f"{inside}.bn2") + values).relu()
        return values

    red, green, blue = image.long().split(1, 1)
    grey = ((299 * red + 587 * green + 114 * blue + 500) // 1000).float()  # whole numbers
    conv1 = torch.cat((down(sparse, "conv1_d"), down(grey, "conv1_img")), 1)
    conv2 = stage(conv1, "conv2", 3, 1)
    conv3 = stage(conv2, "conv3", 4, 2)
    conv4 = drop(stage(conv3, "conv4", 6, 2))
    conv5 = drop(stage(conv4, "conv5", 3, 2))
    conv6 = drop(down(conv5, "conv6", 2))
    values = drop(torch.cat((up(conv6, "convt5"), conv5), 1))
    values = drop(torch.cat((up(values, "convt4"), conv4), 1))
    values = drop(torch.cat((up(values, "convt3"), conv3), 1))
    values = drop(torch.cat((up(values, "convt2"), conv2), 1))
    values = torch.cat((up(values, "convt1", 1), conv1), 1)
    return torch.cat((100 * conv(weights, values, "convtf_mean.0"), conv(weights, values, "convtf_var.0")), 1)


def segmentation_network(weights: Weights, image: Tensor, drop: Drop = identity, training: bool = False) -> Tensor:
    """Logits at the size of the image, which is RGB from 0 to 255; the head drops channels in training alone."""
    norm = partial(batch_norm, weights, absolute=True, training=training)

    def leaky(values: Tensor, name: str, dilation: int = 1) -> Tensor:
        return functional.leaky_relu(norm(conv(weights, values, f"{name}.0", 1, dilation), f"{name}.1"), 0.01)

    def normed(values: Tensor, conv_name: str, name: str, stride: int = 1, dilation: int = 1) -> Tensor:
        return norm(conv(weights, values, conv_name, stride, dilation), name)

    dtype = weights["cls.weight"].dtype
    values = image.to(dtype) - torch.tensor(MEANS, dtype=dtype).view(1, 3, 1, 1)
    for number, stride in ((1, 2), (2, 1), (3, 1)):
        values = normed(values, f"conv{number}", f"bn{number}", stride).relu()
    values = functional.max_pool2d(values, 3, 2, 1, ceil_mode=True)
    for stage, (blocks, stride, dilation) in enumerate(zip(RESNET101, (1, 2, 1, 1), (1, 1, 2, 4), strict=True), 1):
        for block in range(blocks):
            name, step = f"layer{stage}.{block}", stride if block == 0 else 1
            inner = normed(values, f"{name}.conv1", f"{name}.bn1").relu()
            inner = normed(inner, f"{name}.conv2", f"{name}.bn2", step, dilation).relu()
            inner = normed(inner, f"{name}.conv3", f"{name}.bn3")
            if block == 0:
                values = normed(values, f"{name}.downsample.0", f"{name}.downsample.1", step)
            values = (inner + values).relu()
        values = drop(values)
    pooled = leaky(values.mean((2, 3), keepdim=True), "aspp.conv_img")
    parts = [leaky(values, f"aspp.conv{number}", rate) for number, rate in ((1, 1), (2, 12), (3, 24), (4, 36))]
    values = leaky(torch.cat([pooled.expand_as(parts[0]), *parts], 1), "aspp.conv_bn_dropout")
    if training:
        values = drop(values, 0.1, channels=True)
    logits = conv(weights, values, "cls")
    return functional.interpolate(logits, image.shape[2:], mode="bilinear", align_corners=True)
