"""Folded networks are the same function."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.dropout import SeededDropout, insert_dropout
from epibench.networks.resnet import fold_batch_norm


def used(network: nn.Module) -> nn.Module:
    """With statistics and scales as training leaves them."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for values, low, high in ((module.running_mean, -1, 1), (module.running_var, 0.2, 2)):
                values.copy_(low + (high - low) * torch.rand(values.shape, generator=generator))
            for values in (module.weight, module.bias):
                values.data.copy_(0.3 + torch.rand(values.shape, generator=generator))
            module.weight.data[::2] *= -1
    return network.eval().requires_grad_(False)


def norms(network: nn.Module) -> int:
    return sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (2, 3, 32, 48), dtype=torch.uint8, generator=generator)
    return {"image": image, "sparse_depth": 20 * torch.rand(2, 1, 32, 48, generator=generator)}


@pytest.mark.parametrize(
    "make",
    [
        lambda: DeepLabV3(5, depth=18, width=8, head_width=8, rates=(1, 9), stem="single"),
        lambda: DeepLabV3(5, depth=50, width=8, head_width=8, rates=(2,), stem="triple"),
        lambda: DeepLabV3(5, depth=50, width=8, head_width=8, rates=(2,), absolute_scale=True),
        lambda: DepthCompletion(width=8, blocks=(1, 1, 1, 1), init_std=None),
    ],
    ids=["basic blocks", "bottlenecks", "absolute scale", "depth, transposed convolutions"],
)
def test_a_folded_network_predicts_the_same_without_any_batch_norm(make) -> None:
    network = used(make())
    folded = copy.deepcopy(network)
    fold_batch_norm(folded)
    assert norms(network) > norms(folded) == 0
    expected = network(inputs())
    torch.testing.assert_close(folded(inputs()), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_what_drops_in_between_is_kept() -> None:
    network = used(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)))
    insert_dropout(network, ("0",), 0.5)
    folded = copy.deepcopy(network)
    fold_batch_norm(folded)
    assert norms(folded) == 1  # the first: dropout acts before it
    image = inputs()["image"].float()
    found = []
    for each in (network, folded):
        with SeededDropout(torch.tensor([3, 4])):
            found.append(each(image))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)


def test_neighbours_that_are_not_in_a_row_are_left_alone() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.norm1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

        def forward(self, image: Tensor) -> Tensor:
            return self.norm1(torch.relu(self.conv1(image)))

    network = used(Own())
    fold_batch_norm(network)
    assert norms(network) == 1


class Standardised(nn.Conv2d):
    """A convolution whose weights are made of what is stored."""

    def forward(self, image: Tensor) -> Tensor:
        weight = (self.weight - self.weight.mean((1, 2, 3), keepdim=True)) / self.weight.std((1, 2, 3), keepdim=True)
        return nn.functional.conv2d(image, weight)


class Squared(nn.BatchNorm2d):
    """A batch norm that computes more than its weights tell."""

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features).square()


def sharing() -> nn.Module:
    conv = nn.Conv2d(3, 8, 3)
    return nn.ModuleList([nn.Sequential(conv, nn.BatchNorm2d(8)), nn.Sequential(conv, nn.BatchNorm2d(8))])


@pytest.mark.parametrize(
    "make",
    [
        sharing,
        lambda: nn.ModuleList(
            [nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8))]
        ),
        lambda: nn.ModuleList(
            [nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)), nn.BatchNorm2d(8))]
        ),
        lambda: nn.ModuleList([nn.Sequential(Standardised(3, 8, 3), nn.BatchNorm2d(8))]),
        lambda: nn.ModuleList([nn.Sequential(nn.Conv2d(3, 8, 3), *[nn.BatchNorm2d(8)] * 2)]),
        lambda: nn.ModuleList([nn.Sequential(nn.Conv2d(3, 8, 3), Squared(8))]),
    ],
    ids=["shared", "spectral norm", "weight norm", "standardised", "norm twice", "own norm"],
)
def test_convolutions_that_are_more_than_that_predict_the_same(make) -> None:
    branches = used(make())
    image = inputs()["image"].float()
    expected = [branch(image) for branch in branches]
    fold_batch_norm(branches)
    for branch, before in zip(branches, expected, strict=True):
        torch.testing.assert_close(branch(image), before, rtol=1e-4, atol=1e-4)
