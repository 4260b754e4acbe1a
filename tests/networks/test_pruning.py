"""Networks that lose channels or weights: what goes, what stays, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from epibench.errors import InputError
from epibench.networks.batch_norm import AbsoluteBatchNorm2d
from epibench.networks.channels import Channels, Prunable
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.mlp import StackedMLP
from epibench.networks.pruning import (
    importance,
    num_kept,
    prune_channels,
    prune_stacked_weights,
    prune_units,
    prune_weights,
)
from epibench.networks.shaping import shape_like
from named_recipes import recipe_of

SMALL = {"width": 16, "head_width": 32, "rates": (1, 2)}
PUBLISHED = recipe_of("cityscapes-segmentation").network.published
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "basic": lambda: DeepLabV3(5, depth=18, stem="single", **SMALL),
    "basic, stem of three": lambda: DeepLabV3(5, depth=18, **SMALL),
    "bottleneck": lambda: DeepLabV3(5, depth=50, stem="single", output_stride=16, **SMALL),
    "bottleneck, as published": lambda: DeepLabV3(5, depth=50, **SMALL, **PUBLISHED),
    "depth": lambda: DepthCompletion(width=16, blocks=(1, 2, 1, 1), init_std=None),
    "depth, anchored": lambda: DepthCompletion(width=16, blocks=(2, 1, 1, 1), init_std=None, anchored=True, grey=True),
}
every_network = pytest.mark.parametrize("name", NETWORKS)


def make(name: str) -> nn.Module:
    """A network with statistics of batch norm that do something."""
    torch.manual_seed(len(name))
    network = NETWORKS[name]()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor, low, high in (
                (module.weight, -1.5, 1.5),
                (module.bias, -0.2, 0.2),
                (module.running_mean, -0.1, 0.1),
                (module.running_var, 0.5, 2.0),
            ):
                assert tensor is not None
                nn.init.uniform_(tensor, low, high)
    return network.eval()


def num_parameters(network: nn.Module) -> int:
    return sum(each.numel() for each in network.parameters())


def inputs_of(height: int = 48, width: int = 64) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8, generator=generator)
    return {"image": image, "sparse_depth": 20 * torch.rand(2, 1, height, width, generator=generator)}


def predicted(network: nn.Module) -> Tensor:
    with torch.inference_mode():
        outputs: Tensor = network(inputs_of())
    return outputs


def pruned(network: nn.Module, share: float, multiple: int = 1) -> nn.Module:
    """The network with fewer channels, in place."""
    weights = prune_channels(network.state_dict(), network, share, multiple)
    shape_like(network, weights).load_state_dict(weights)
    return network


def silence(network: nn.Module, share: float) -> None:
    """Let some channels of every group, drawn at random, be 0 for every image."""
    assert isinstance(network, Prunable)
    for group in network.channel_groups():
        silent = torch.randperm(group.size)[: group.size - num_kept(group.size, share)]
        for place in group.makers:
            assert place.norm is not None
            norm = network.get_submodule(place.norm)
            assert isinstance(norm, nn.BatchNorm2d)
            with torch.no_grad():
                norm.running_var[place.first + silent] = torch.inf  # a weight of 0 leaves a scale of 1e-5 in some
                norm.bias[place.first + silent] = 0


@every_network
class TestChannels:
    def test_that_are_silent_change_nothing_when_they_go(self, name: str) -> None:
        network = make(name)
        silence(network, 0.4)
        before, parameters = predicted(network), num_parameters(network)
        after = predicted(pruned(network, 0.4))
        torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5 * float(before.abs().max()))
        assert num_parameters(network) < 0.5 * parameters

    def test_none_of_them_is_the_same_network(self, name: str) -> None:
        network = make(name)
        weights = network.state_dict()
        found = prune_channels(weights, network, 0.0)
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[key], weights[key]) for key in weights)

    def test_every_channel_but_those_of_inputs_and_outputs_is_in_one_group(self, name: str) -> None:
        network = make(name)
        assert isinstance(network, Prunable)
        made, read = dict[str, set[int]](), dict[str, set[int]]()
        for group in network.channel_groups():
            for places, seen in ((group.makers, made), (group.readers, read)):
                for place in places:
                    channels = set(range(place.first, place.first + group.size))
                    assert not channels & seen.get(place.conv, set())
                    seen[place.conv] = seen.get(place.conv, set()) | channels
        heads = {"logits", "mean", "log_variance"}
        first = {"backbone.stem.0", "image_stem.0", "depth_stem.0"}
        for conv, module in network.named_modules():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                assert made.get(conv, set()) == (set() if conv in heads else set(range(module.out_channels)))
                assert read.get(conv, set()) == (set() if conv in first else set(range(module.in_channels)))

    def test_can_be_taken_again_from_what_is_left(self, name: str) -> None:
        twice = pruned(pruned(make(name), 0.25), 0.25)
        assert isinstance(twice, Prunable)
        whole = make(name)
        assert isinstance(whole, Prunable)
        sizes = [num_kept(num_kept(group.size, 0.25), 0.25) for group in whole.channel_groups()]
        assert [group.size for group in twice.channel_groups()] == sizes

    def test_networks_of_one_shape_keep_one(self, name: str) -> None:
        one, other = make(name), make(name)
        for parameter in other.parameters():
            nn.init.normal_(parameter)
        shapes = [{key: each.shape for key, each in pruned(n, 0.6, 8).state_dict().items()} for n in (one, other)]
        assert shapes[0] == shapes[1]

    def test_a_network_without_memory_takes_the_smaller_weights(self, name: str) -> None:
        network = pruned(make(name), 0.5)
        made = NETWORKS[name]()
        for module in made.modules():
            for key, parameter in module.named_parameters(recurse=False):
                setattr(module, key, nn.Parameter(parameter.to("meta")))
        empty = shape_like(made, network.state_dict())
        empty.load_state_dict(network.state_dict(), assign=True)
        assert torch.equal(predicted(empty.eval()), predicted(network))


def spatial(network: nn.Module) -> dict[str, tuple[int, int]]:
    """Positions at which the kernel of each convolution is applied to one image, and its own size."""
    found = dict[str, tuple[int, int]]()

    def note(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
            positions = given[0] if isinstance(module, nn.ConvTranspose2d) else output
            weight = module.weight
            assert isinstance(weight, Tensor)
            found[name] = (positions.shape[2] * positions.shape[3], weight.shape[2] * weight.shape[3])

        return hook

    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            module.register_forward_hook(note(name))
    predicted(network)
    return found


def expected_channels(name: str, conv: str, module: nn.Conv2d | nn.ConvTranspose2d, share: float) -> tuple[int, int]:
    """Inputs and outputs of a convolution in the pruned network, from those that it had."""

    def left(number: int) -> int:
        return max(8, round((1 - share) * number))

    inputs, outputs = module.in_channels, module.out_channels
    kept = outputs if conv in ("logits", "mean", "log_variance") else left(outputs)
    if conv in ("backbone.stem.0", "image_stem.0", "depth_stem.0"):
        return inputs, kept
    if conv == "pyramid.project.0":
        return inputs // 32 * left(32), kept
    if conv in ("decoder.4.0", "mean", "log_variance") or conv.startswith("encoder.0."):
        stems = 2 * left(16)  # those of image and depth, side by side, in all of the first stage
        within = {"decoder.4.0": left(32) + stems, "mean": left(32) + stems, "log_variance": left(32) + stems}
        inner = left(32) if conv.endswith("conv2") else stems
        return within.get(conv, inner), stems if conv.endswith("conv2") else kept
    if conv == "encoder.1.0.conv1" or conv == "encoder.1.0.shortcut.0":
        return 2 * left(16), kept
    if conv.startswith("decoder.") and conv != "decoder.0.0":
        up = {"decoder.1.0": 128, "decoder.2.0": 64, "decoder.3.0": 32}[conv]
        return left(up) + left(inputs - up), kept
    return left(inputs), kept


@every_network
@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.9])
def test_operations_and_parameters_are_those_of_the_sizes_that_are_left(name: str, share: float) -> None:
    network = make(name)
    places, flops, parameters = spatial(network), 0, 0
    for conv, module in network.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            inputs, outputs = expected_channels(name, conv, module, share)
            positions, kernel = places[conv]
            flops += 2 * inputs * outputs * kernel * positions
            parameters += inputs * outputs * kernel + (outputs if module.bias is not None else 2 * outputs)
    small = pruned(NETWORKS[name]().eval(), share)
    inputs = {key: each[:1] for key, each in inputs_of().items()}
    with torch.inference_mode(), FlopCounterMode(display=False) as counter:
        small(inputs)
    assert (num_parameters(small), counter.get_total_flops()) == (parameters, flops)


class TestNumberThatStays:
    @pytest.mark.parametrize(
        ("size", "share", "multiple", "kept"),
        [
            (64, 0.0, 1, 64),
            (64, 0.3, 1, 45),
            (64, 0.7, 1, 19),
            (64, 0.9, 1, 8),
            (64, 0.3, 8, 48),
            (64, 0.7, 8, 16),
            (256, 0.9, 8, 24),
            (20, 0.0, 8, 20),
            (20, 0.3, 8, 16),
            (8, 0.9, 8, 8),
            (5, 0.9, 8, 5),
        ],
    )
    def test_is_near_the_share(self, size: int, share: float, multiple: int, kept: int) -> None:
        assert num_kept(size, share, multiple) == kept


class TestImportance:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 16, 1), nn.BatchNorm2d(16)
            self.second = nn.Conv2d(16, 2, 1)

        def channel_groups(self) -> object:
            channels = Channels(self)
            channels.read(self.second, channels.through(self.first, self.norm))
            return channels.groups

        def forward(self, image: Tensor) -> Tensor:
            outputs: Tensor = self.second(torch.relu(self.norm(self.first(image))))
            return outputs

    @pytest.mark.parametrize("norm", [nn.BatchNorm2d, partial(AbsoluteBatchNorm2d, eps=0.5)])
    def test_is_that_of_the_filter_after_batch_norm(self, norm: Callable[[int], nn.BatchNorm2d]) -> None:
        network = self.Pair()
        network.norm = norm(16)
        nn.init.uniform_(network.norm.weight, -2, 2)
        assert network.norm.running_var is not None
        nn.init.uniform_(network.norm.running_var, 0.1, 4)
        (group,) = network.channel_groups()  # type: ignore[misc, attr-defined]
        found = importance(network.state_dict(), network, group)
        images = torch.zeros(4, 3, 1, 1)
        images[:3, :, 0, 0] = torch.eye(3)
        with torch.no_grad():
            outputs = network.norm.eval()(network.first(images)).flatten(1)
        acts = (outputs[:3] - outputs[3]).square().sum(0)
        torch.testing.assert_close(found, acts.double(), rtol=1e-4, atol=1e-5)

    def test_no_factor_of_a_filter_changes_which_channels_go(self) -> None:
        network, other = self.Pair(), self.Pair()
        other.load_state_dict(network.state_dict())
        factors = torch.linspace(0.1, 3, 16)
        assert other.norm.running_var is not None
        with torch.no_grad():
            nn.init.uniform_(network.norm.weight)
            other.norm.weight.copy_(network.norm.weight)
            for name in ("weight", "bias"):
                getattr(other.first, name).mul_(factors.view(-1, *(1,) * (getattr(other.first, name).ndim - 1)))
            other.norm.running_var.mul_(factors.square())
        weights = [prune_channels(each.state_dict(), each, 0.5) for each in (network, other)]
        assert torch.equal(weights[0]["norm.weight"], weights[1]["norm.weight"])
        assert len(weights[0]["norm.weight"]) == 8

    def test_the_strongest_stay_in_their_order(self) -> None:
        network = self.Pair()
        with torch.no_grad():
            network.first.weight.copy_(torch.tensor([3.0, 1.0] * 8).view(16, 1, 1, 1).expand(16, 3, 1, 1))
            network.first.bias.copy_(torch.arange(16.0))  # type: ignore[union-attr]
        weights = prune_channels(network.state_dict(), network, 0.5)
        assert weights["first.bias"].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
        assert torch.equal(weights["second.weight"], network.second.weight.detach()[:, ::2])


class Plain(nn.Module):
    """A network that says nothing of its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.Conv2d(16, 2, 1))


def test_a_network_that_does_not_name_its_channels_is_refused_with_the_remedy() -> None:
    with pytest.raises(InputError, match=r"Plain does not say which channels can go .* structure=weights"):
        prune_channels(Plain().state_dict(), Plain(), 0.5)


def test_grouped_convolutions_are_no_part_of_a_group() -> None:
    network = nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8))
    with pytest.raises(InputError, match="groups=1"):
        Channels(network).through(network[0], network[1])


@pytest.mark.parametrize(
    "norm", [nn.GroupNorm(2, 8), nn.BatchNorm2d(8, affine=False), nn.BatchNorm2d(8, track_running_stats=False)]
)
def test_only_batch_norm_that_has_all_it_can_have_loses_channels(norm: nn.Module) -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 3), norm)
    with pytest.raises(InputError, match="is no batch norm with weights and statistics; leave the channels"):
        Channels(network).through(network[0], network[1])


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_the_smallest_weights_of_every_kernel_go(share: float) -> None:
    network = Plain()
    weights = network.state_dict()
    found = prune_weights(weights, network, share)
    kernels = ("layers.0.weight", "layers.2.weight")
    for name in kernels:
        before, after = weights[name].flatten(), found[name].flatten()
        number = round(share * len(before))
        order = before.abs().argsort()
        assert (after[order[:number]] == 0).all()
        assert torch.equal(after[order[number:]], before[order[number:]])
    assert all(torch.equal(found[name], weights[name]) for name in weights if name not in kernels)


def test_a_layer_of_small_weights_does_not_lose_all_of_them() -> None:
    """As the output layers of trained networks are: without any weight they would predict the same everywhere."""
    network = Plain()
    weights = dict(network.state_dict())
    weights["layers.2.weight"] = weights["layers.2.weight"] / 1e6
    last = prune_weights(weights, network, 0.9)["layers.2.weight"]
    assert int((last != 0).sum()) == last.numel() - round(0.9 * last.numel()) > 0


def test_one_weight_of_a_layer_always_stays() -> None:
    network = Plain()
    found = prune_weights(network.state_dict(), network, 0.99999)
    assert [int((found[f"layers.{number}.weight"] != 0).sum()) for number in (0, 2)] == [1, 1]


def test_of_equal_weights_the_last_go() -> None:
    network = Plain()
    weights = {name: torch.ones_like(each) for name, each in network.state_dict().items()}
    flat = prune_weights(weights, network, 0.5)["layers.0.weight"].flatten()
    half = len(flat) // 2
    assert (flat[:half] == 1).all()
    assert (flat[half:] == 0).all()


STACK = StackedMLP(1, 1, heads=2, hidden=(10, 6))


class TestStacked:
    def parameters(self) -> Tensor:
        return STACK.initialise(torch.tensor([3]))[0]

    def test_units_go_with_all_that_leads_to_them_and_from_them(self) -> None:
        before, after = self.parameters(), prune_units(self.parameters(), STACK, 0.3)
        old, new = STACK.layers(before), STACK.layers(after)
        for number, (size, lost) in enumerate(((10, 3), (6, 2))):
            norms = old[number].weight.square().sum(2)
            for head in range(2):
                weakest = norms[head].argsort()[:lost]
                assert (new[number].weight[head, weakest] == 0).all()
                assert (new[number].bias[head, weakest] == 0).all()
                assert (new[number + 1].weight[head][:, weakest] == 0).all()
                others = [unit for unit in range(size) if unit not in weakest.tolist()]
                assert torch.equal(new[number].bias[head, others], old[number].bias[head, others])
        assert torch.equal(new[-1].bias, old[-1].bias)

    def test_a_unit_of_each_layer_stays(self) -> None:
        layers = STACK.layers(prune_units(self.parameters(), STACK, 0.99))
        assert all(((layer.bias != 0).sum(1) == 1).all() for layer in layers[:-1])

    def test_the_smallest_weights_of_every_layer_and_head_go_and_no_bias(self) -> None:
        before, after = self.parameters(), prune_stacked_weights(self.parameters(), STACK, 0.5)
        for one, other in zip(STACK.layers(before), STACK.layers(after), strict=True):
            assert torch.equal(one.bias, other.bias)
            for old, new in zip(one.weight.flatten(1), other.weight.flatten(1), strict=True):
                order, number = old.abs().argsort(), round(0.5 * len(old))
                assert (new[order[:number]] == 0).all()
                assert torch.equal(new[order[number:]], old[order[number:]])

    def test_what_was_given_is_left_as_it_was(self) -> None:
        parameters = self.parameters()
        for prune in (prune_units, prune_stacked_weights):
            prune(parameters, STACK, 0.5)
            assert torch.equal(parameters, self.parameters())
