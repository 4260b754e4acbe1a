"""Batch norm with the scale |weight| + eps equals the formula, in a network and in training."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from epibench.networks.batch_norm import AbsoluteBatchNorm2d
from epibench.networks.deeplabv3 import DeepLabV3

EPS = 0.1  # large, so that it matters


def features() -> Tensor:
    return 3 + 2 * torch.randn(4, 6, 5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def absolute(momentum: float | None = 0.1) -> AbsoluteBatchNorm2d:
    """Batch norm with weights of both signs, and one of 0."""
    norm = AbsoluteBatchNorm2d(6, EPS, momentum).double()
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([-2.0, -0.5, 0.0, 0.3, 1.0, 2.0]))
        norm.bias.copy_(torch.linspace(-1, 1, 6))
    return norm


def plain(norm: AbsoluteBatchNorm2d) -> nn.BatchNorm2d:
    """PyTorch's own batch norm with the same scale."""
    same = nn.BatchNorm2d(6, EPS, norm.momentum).double()
    same.load_state_dict(norm.state_dict())
    with torch.no_grad():
        same.weight.copy_(norm.weight.abs() + EPS)
    return same.train(norm.training)


@pytest.mark.parametrize("training", [True, False])
def test_the_scale_is_positive(training: bool) -> None:
    norm, values = absolute().train(training), features()
    mean, variance = torch.zeros(6), torch.ones(6)
    if training:
        mean, variance = values.mean((0, 2, 3)), values.var((0, 2, 3), correction=0)
    scale = (norm.weight.abs() + EPS) / (variance + EPS).sqrt()
    expected = (values - mean.view(-1, 1, 1)) * scale.view(-1, 1, 1) + norm.bias.view(-1, 1, 1)
    torch.testing.assert_close(norm(values), expected)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics_are_those_of_pytorch(momentum: float | None) -> None:
    norm = absolute(momentum)
    same = plain(norm)
    for values in (features(), 2 * features()):
        norm(values)
        same(values)
    assert all(torch.equal(own, other) for own, other in zip(norm.buffers(), same.buffers(), strict=True))


def test_statistics_can_be_made_again() -> None:
    norm = absolute()
    same = plain(norm)
    assert isinstance(norm, nn.modules.batchnorm._BatchNorm)  # by which training finds it
    for each in (norm, same):
        each(3 * features())
        each.reset_running_stats()
        each.momentum = None  # the mean of all batches
        for values in (features(), 2 * features()):
            each(values)
    assert all(torch.equal(own, other) for own, other in zip(norm.buffers(), same.buffers(), strict=True))


def test_the_gradient_has_the_sign_of_the_weight() -> None:
    norm = absolute()
    same, cotangent = plain(norm), torch.randn(4, 6, 5, 7, dtype=torch.float64)
    for each in (norm, same):
        each(features()).backward(cotangent)
    assert norm.weight.grad is not None
    assert same.weight.grad is not None
    torch.testing.assert_close(norm.weight.grad, same.weight.grad * norm.weight.detach().sign())


def narrow(**options) -> DeepLabV3:
    torch.manual_seed(0)
    return DeepLabV3(5, depth=18, width=8, head_width=16, **options)


def test_every_batch_norm_of_the_network_has_it() -> None:
    norms = [module for module in narrow(absolute_scale=True).modules() if isinstance(module, nn.BatchNorm2d)]
    assert {type(norm) for norm in norms} == {AbsoluteBatchNorm2d}


def test_the_network_has_the_same_weights_under_the_same_names() -> None:
    assert list(narrow(absolute_scale=True).state_dict()) == list(narrow().state_dict())


def test_gradients_reach_every_parameter() -> None:
    network = narrow(absolute_scale=True)
    image = torch.randint(0, 256, (2, 3, 32, 64), dtype=torch.uint8)
    functional.cross_entropy(network({"image": image}), torch.randint(0, 5, (2, 4, 8))).backward()
    assert all(each.grad is not None and each.grad.abs().sum() > 0 for each in network.parameters())


@pytest.mark.parametrize("training", [True, False])
def test_it_compiles_as_one_graph(training: bool) -> None:
    network = narrow(absolute_scale=True, head_dropout=0.0).train(training)
    inputs = {"image": torch.randint(0, 256, (2, 3, 32, 64), dtype=torch.uint8)}
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(inputs), network(inputs))
