"""The last layers of networks: where they are, what they see, and what their outputs are multiplied by."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import MEAN_SCALE, DepthCompletion
from epibench.networks.last_layer import LastLayers, last_layers_of
from epibench.networks.mlp import StackedMLP


def inputs(height: int = 24, width: int = 40, number: int = 2) -> dict[str, Tensor]:
    random = torch.Generator().manual_seed(0)
    return {
        "image": torch.randint(256, (number, 3, height, width), dtype=torch.uint8, generator=random),
        "sparse_depth": 60.0 * (torch.rand(number, 1, height, width, generator=random) > 0.9),
    }


def deeplab() -> DeepLabV3:
    return DeepLabV3(5, depth=18, width=8, head_width=8, rates=(1, 2), stem="single").eval()


def depth(anchored: bool = False) -> DepthCompletion:
    network = DepthCompletion(8, (1, 1, 1, 1), init_std=None, anchored=anchored).eval()
    for head in (network.mean, network.log_variance):
        nn.init.normal_(head.weight, std=0.1)
    return network


def assert_outputs_follow(network: nn.Module, found: LastLayers) -> None:
    """Other weights of the last layers change raw outputs as their features say."""
    weights, given = network.state_dict(), inputs()
    features, raw = found.see(given)
    changed, expected = weights, []
    for layer, seen in zip(found.layers, features, strict=True):
        values = layer.read(weights)
        change = torch.randn(values.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        changed = layer.write(changed, values + change)
        ones = torch.cat((seen, torch.ones_like(seen[:, :1])), 1)[:, : layer.shape[1]].double()
        moved = torch.einsum("kf,nfhw->nkhw", change, ones)
        expected.append(torch.tensor(layer.scale).view(-1, 1, 1) * moved)
    network.load_state_dict(changed)
    with torch.no_grad():
        difference = network(given).double() - raw.double()
    torch.testing.assert_close(difference, torch.cat(expected, 1), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("anchored", [False, True])
@pytest.mark.parametrize("size", [(32, 48), (24, 40), (17, 33)])
def test_depth_has_two_with_a_scaled_mean(anchored: bool, size: tuple[int, int]) -> None:
    """Also where the network fills images up, and crops what it predicts."""
    network = depth(anchored)
    found = last_layers_of(network, inputs(*size))
    assert [layer.scale for layer in found.layers] == [(MEAN_SCALE,), (1.0,)]
    assert [layer.weight.name for layer in found.layers] == ["mean.weight", "log_variance.weight"]
    seen = found.see(inputs(*size))
    assert {each.shape[2:] for each in (*seen.features, seen.raw)} == {size}
    assert_outputs_follow(network, found)


def test_deeplab_has_one_on_its_coarse_grid() -> None:
    network = deeplab()
    found = last_layers_of(network, inputs())
    (layer,) = found.layers
    assert (layer.shape, layer.scale) == ((5, 9), (1.0,) * 5)
    assert found.see(inputs()).features[0].shape == (2, 8, 3, 5)
    assert found.align_corners
    assert_outputs_follow(network, found)


def test_the_network_is_left_as_it_was() -> None:
    network, given = deeplab(), inputs()
    with torch.no_grad():
        before = network(given)
        last_layers_of(network, given).see(given)
        assert torch.equal(network(given), before)


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("hidden", [(6,), (5, 4), ()])
def test_of_stacked_networks_each_head_has_its_own(heads: int, hidden: tuple[int, ...]) -> None:
    network = StackedMLP(3, 2, heads, hidden)
    parameters, points = network.initialise(torch.tensor([7]))[0], torch.randn(11, 3)
    found = network.last_layers(parameters)
    features, raw = found.see(points)
    outputs = network.outputs(parameters[None], points.T[None])[0]  # (head, output, point)
    assert torch.equal(raw[:, :, 0, 0], outputs.flatten(0, 1).T)
    for head, (layer, seen) in enumerate(zip(found.layers, features, strict=True)):
        ones = torch.cat((seen[:, :, 0, 0], torch.ones(11, 1)), 1).double()
        torch.testing.assert_close(layer.read({"parameters": parameters}) @ ones.T, outputs[head].double())
        changed = layer.write({"parameters": parameters}, layer.read({"parameters": parameters}) + 1)["parameters"]
        assert int((changed != parameters).sum()) == layer.shape[0] * layer.shape[1]


class Own(nn.Module):
    """A user's network: features, a 1×1 convolution, and what is done to its outputs."""

    def __init__(self, last: nn.Module, after: nn.Module | None = None):
        super().__init__()
        self.after = after or nn.Identity()  # made before what is run before it
        self.last = last
        self.first = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        raw: Tensor = self.after(self.last(self.first(inputs["image"].float() / 255).relu()))
        return raw


class Halved(nn.Module):
    def forward(self, raw: Tensor) -> Tensor:
        return 3 - raw / 2


def test_of_a_network_that_names_none_it_is_the_last_convolution_that_is_run() -> None:
    network = Own(nn.Conv2d(4, 2, 1, bias=False), Halved())
    found = last_layers_of(network, inputs())
    (layer,) = found.layers
    assert (layer.weight.name, layer.bias, layer.scale) == ("last.weight", None, (-0.5, -0.5))
    assert_outputs_follow(network, found)


class Convolved(Own):
    last_layers = ("nothing",)


@pytest.mark.parametrize(
    ("network", "words"),
    [
        (Own(nn.Conv2d(4, 2, 1), nn.Softplus()), r"Own: its raw outputs are not those of its last layers \(last\)"),
        (Own(nn.Conv2d(4, 2, 1), nn.Upsample(scale_factor=2)), "at the resolution of the layers"),
        (Own(nn.Conv2d(4, 2, 1), nn.AvgPool2d(3, 1, 1)), "up to a factor"),
        (Own(nn.Conv2d(4, 2, 1), nn.PixelShuffle(1)), None),
        (Own(nn.Conv2d(4, 2, 3)), "its last layer 'last' is Conv2d.*not a 1×1 convolution"),
        (Own(nn.Conv2d(4, 2, 1, groups=2)), "not a plain one"),
        (Own(nn.Conv2d(4, 2, 1, padding=1)), "not a plain one"),
        (Convolved(nn.Conv2d(4, 2, 1)), "its last layer 'nothing' is not there"),
    ],
)
def test_what_is_no_last_layer_is_refused(network: nn.Module, words: str | None) -> None:
    if words is None:
        assert len(last_layers_of(network, inputs()).layers) == 1
        return
    with pytest.raises(InputError, match=words) as error:
        last_layers_of(network, inputs())
    assert "`last_layers`" in str(error.value)


def test_a_last_layer_is_in_the_last_stage() -> None:
    class InTwo(Own):
        def stages(self) -> dict[str, Callable[..., Tensor]]:
            return {"last": lambda inputs: inputs, "after": lambda state: state}

    with pytest.raises(InputError, match="InTwo: its last layer 'last' is not in its last stage"):
        last_layers_of(InTwo(nn.Conv2d(4, 2, 1)), inputs())


def test_a_network_without_convolutions_has_none() -> None:
    class Bare(nn.Module):
        def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
            return inputs["image"].float()

    with pytest.raises(InputError, match="Bare runs no convolution"):
        last_layers_of(Bare(), inputs())
