"""Networks in stages are the same function, and their passes with dropout the same passes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce

import pytest
import torch
from torch import Tensor, nn

from epibench import randomness
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.dropout import SeededDropout, dropout_after
from epibench.networks.stages import DropoutPasses, repeated, stages_before_dropout

depth = partial(DepthCompletion, 8, (1, 1, 1, 1), init_std=None)
segmentation = partial(DeepLabV3, 5, depth=18, width=8, head_width=8, rates=(2, 9), stem="single")
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "depth": depth,
    "depth, grey and anchored": partial(depth, grey=True, anchored=True),
    "depth, decoder": partial(depth, dropout_places="decoder"),
    "segmentation": segmentation,
    "segmentation, bottlenecks": partial(segmentation, depth=50, stem="triple"),
    "segmentation, blocks": partial(segmentation, dropout_places="blocks"),
    "segmentation, one place twice": partial(
        segmentation, dropout_places=("backbone.stages.1", "backbone.stages.1.1", "pyramid")
    ),
}
KEYS = torch.tensor([randomness.key(0, "pass", image) for image in range(2)])
anyone = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


def inputs() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (2, 3, 40, 56), dtype=torch.uint8, generator=generator)
    return {"image": image, "sparse_depth": 20 * torch.rand(2, 1, 40, 56, generator=generator)}


def made(make: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return make().eval().requires_grad_(False)


def passes_of(network: nn.Module, rate: float = 0.4) -> DropoutPasses:
    passes = DropoutPasses.of(network, rate)
    assert passes is not None
    return passes


@anyone
def test_all_stages_in_a_row_are_the_network(make: Callable[[], nn.Module]) -> None:
    network = made(make)
    found = reduce(lambda state, step: step(state), network.stages().values(), inputs())
    assert torch.equal(found, network(inputs()))


@anyone
def test_passes_in_two_parts_are_the_passes_of_the_network(make: Callable[[], nn.Module]) -> None:
    network = made(make)
    passes = passes_of(network)
    state = passes.shared(inputs())
    found = [passes.rest(state, KEYS + number) for number in range(2)]
    with dropout_after(network, network.dropout_places, 0.4):
        for number in range(2):
            with SeededDropout(KEYS + number, by_mode=True):
                assert torch.equal(found[number], network(inputs()))
    assert not torch.equal(found[0], found[1])


@anyone
def test_passes_of_one_batch_are_those_of_many(make: Callable[[], nn.Module]) -> None:
    passes = passes_of(made(make))
    state = passes.shared(inputs())
    alone = torch.cat([passes.rest(state, KEYS + number) for number in range(3)])
    together = passes.rest(repeated(state, 3), torch.cat([KEYS + number for number in range(3)]))
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5 * float(alone.abs().max()))


@pytest.mark.parametrize(
    ("places", "expected"),
    [
        (("a",), [2]),
        (("a.1", "b"), [2, 3]),
        (("b", "a.0"), [1, 3]),
        (("a", "a.1"), [2, 2]),
        (("a.1.conv",), None),
        (("elsewhere", "a"), None),
    ],
)
def test_places_are_found_among_stages(places: tuple[str, ...], expected: list[int] | None) -> None:
    assert stages_before_dropout(["a.0", "a.1", "b", "c"], places) == expected


@pytest.mark.parametrize("places", [("backbone.stages.1.0.conv1",), ("logits",), ()])
def test_dropout_within_a_stage_or_at_the_end_is_not_split(places: tuple[str, ...]) -> None:
    assert DropoutPasses.of(made(partial(segmentation, dropout_places=places)), 0.4) is None


def test_a_network_without_stages_is_not_split() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 1))
    network.dropout_places = ("0",)
    assert DropoutPasses.of(network, 0.4) is None
