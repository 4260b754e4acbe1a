"""Flat parameters: views of one tensor, and training with them equals torch.optim on the network as it was."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.training.network import ALIGNED, FlatParameters, copy_buffers
from epibench.training.rules import SGD, Adam, AdamW, Pace, Rule, Step, decay

RATE, DECAY = 0.02, 0.3


def make_network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Parameters with one, two and four axes, in sizes that are no multiple of the alignment."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 9, 3), nn.BatchNorm2d(9), nn.ReLU(), nn.Flatten(), nn.Linear(9 * 2 * 3, 5))
    return nn.Sequential(*layers).to(dtype)


def make_images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(4, 3, 4, 5, generator=torch.Generator().manual_seed(1), dtype=dtype)


def test_the_network_predicts_as_before() -> None:
    network, images = make_network().eval(), make_images()
    before = network(images)
    FlatParameters(network)
    assert torch.equal(network(images), before)


def test_a_change_of_the_values_shows_in_the_module() -> None:
    network = make_network()
    flat = FlatParameters(network)
    flat.values.fill_(0.25)
    assert all(bool((parameter == 0.25).all()) for parameter in network.parameters())


def test_a_change_of_the_module_shows_in_the_values() -> None:
    network = make_network()
    flat = FlatParameters(network)
    before = float(flat.values.sum())
    with torch.no_grad():
        network[4].bias.add_(1.0)
    assert float(flat.values.sum()) == pytest.approx(before + 5)


def test_backward_fills_the_gradient() -> None:
    network, images = make_network(), make_images()
    plain = deepcopy(network)
    flat = FlatParameters(network)
    network(images).square().sum().backward()
    plain(images).square().sum().backward()
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
    torch.testing.assert_close(
        flat.gradient.square().sum(), sum(each.grad.square().sum() for each in plain.parameters())
    )


def test_the_gradient_is_that_of_the_parameters_at_any_later_step() -> None:
    network, images = make_network(), make_images()
    flat = FlatParameters(network)
    for _ in range(2):
        flat.gradient.zero_()
        network(images).sum().backward()
    assert all(
        each.grad.untyped_storage().data_ptr() == flat.gradient.untyped_storage().data_ptr()
        for each in network.parameters()
    )


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_layout_in_memory_is_kept(layout: torch.memory_format) -> None:
    network = make_network().to(memory_format=layout)
    FlatParameters(network)
    weight = network[0].weight
    assert weight.is_contiguous(memory_format=layout)
    assert weight.grad.is_contiguous(memory_format=layout)


def test_channels_last_holds_the_same_numbers() -> None:
    plain, network = make_network(), make_network().to(memory_format=torch.channels_last)
    FlatParameters(network)
    for ours, theirs in zip(network.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_parameters_begin_at_multiples_of_the_alignment() -> None:
    network = make_network()
    flat = FlatParameters(network)
    assert all(parameter.storage_offset() % ALIGNED == 0 for parameter in network.parameters())
    assert flat.values.data_ptr() % 64 == 0


def test_what_is_decayed_are_the_parameters_with_two_axes_or_more() -> None:
    network = make_network()
    flat = FlatParameters(network)
    flat.decayed[0].zero_()
    shrunk = {name for name, each in network.named_parameters() if not bool(each.any())}
    assert shrunk == {"0.weight", "4.weight", "1.bias"}  # the bias of batch norm starts at 0


def test_the_decayed_gradient_belongs_to_the_decayed_values() -> None:
    network, images = make_network(), make_images()
    flat = FlatParameters(network)
    network(images).square().sum().backward()
    flat.decayed[1].zero_()
    left = {name for name, each in network.named_parameters() if bool(each.grad.any())}
    assert left == {name for name, each in network.named_parameters() if each.ndim < 2}


def test_frozen_parameters_are_left_alone() -> None:
    network = make_network()
    network[4].weight.requires_grad_(False)
    before = network[4].weight.clone()
    FlatParameters(network).values.zero_()
    assert torch.equal(network[4].weight, before)


def test_a_network_without_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="Flatten has no parameters to train"):
        FlatParameters(nn.Flatten())


def test_buffers_are_put_in_their_places() -> None:
    network, other = make_network(), make_network()
    other(make_images())
    copy_buffers(network, dict(other.named_buffers()))
    assert torch.equal(network[1].running_mean, other[1].running_mean)


OPTIMISERS = {
    "adam": (Adam(), lambda groups: torch.optim.Adam(groups, lr=RATE)),
    "sgd": (SGD(), lambda groups: torch.optim.SGD(groups, lr=RATE)),
    "momentum": (SGD(0.9), lambda groups: torch.optim.SGD(groups, lr=RATE, momentum=0.9)),
    "adamw": (AdamW(), lambda groups: torch.optim.AdamW(groups, lr=RATE)),
}


@pytest.mark.parametrize("weight_decay", [0.0, DECAY])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", OPTIMISERS)
def test_training_equals_pytorch_step_by_step(name: str, layout: torch.memory_format, weight_decay: float) -> None:
    rule: Rule = OPTIMISERS[name][0]
    images = make_images(torch.float64)
    theirs, ours = (make_network(torch.float64).to(memory_format=layout) for _ in range(2))
    flat = FlatParameters(ours)
    state = rule.start(flat.values)
    decayed = [each for each in theirs.parameters() if each.ndim > 1]
    others = [each for each in theirs.parameters() if each.ndim < 2]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimiser = OPTIMISERS[name][1](groups)
    for number in range(1, 9):
        flat.gradient.zero_()
        ours(images).square().mean().backward()
        decay(*flat.decayed, weight_decay, rule, Pace(RATE))
        rule.update(flat.values, flat.gradient, state, Step(number, Pace(RATE), 1000, None))
        optimiser.zero_grad()
        theirs(images).square().mean().backward()
        optimiser.step()
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_gaps_between_parameters_stay_zero(name: str) -> None:
    rule: Rule = OPTIMISERS[name][0]
    network, images = make_network(), make_images()
    flat = FlatParameters(network)
    state = rule.start(flat.values)
    for number in range(1, 4):
        flat.gradient.zero_()
        network(images).square().mean().backward()
        rule.update(flat.values, flat.gradient, state, Step(number, Pace(RATE), 1000, None))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.zero_()
    assert not bool(flat.values.any())


def test_all_can_be_decayed() -> None:
    network = make_network()
    FlatParameters(network, decay_all=True).decayed[0].zero_()
    assert not any(bool(each.any()) for each in network.parameters())
