"""Members that share a network: each is the plain network that its weights fold to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.batch_ensemble import around_one, member_weights, random_signs, share_among
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.dropout import SeededDropout

SIZE = (24, 40)


class Perceptron(nn.Module):
    """A user's network with layers of every kind: grouped, transposed, and linear on the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.grouped = nn.Conv2d(8, 4, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(4, 6, 2, stride=2, groups=2)
        self.last = nn.Linear(6, 2)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        features = torch.relu(self.first(inputs["image"].to(self.first.weight.dtype) / 255))
        features = torch.relu(self.up(self.grouped(features)))
        return self.last(features.movedim(1, -1)).movedim(-1, 1)


NETWORKS = {
    "own": Perceptron,
    "depth": partial(DepthCompletion, width=8, blocks=(1, 1, 1, 1), init_std=None, anchored=True),
    "segmentation": partial(DeepLabV3, num_classes=5, depth=18, width=8, head_width=16, head_init="default"),
}


def make_inputs(images: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (images, 3, *SIZE), dtype=torch.uint8, generator=generator)
    sparse = 30 * torch.rand((images, 1, *SIZE), generator=generator)
    return {"image": image, "sparse_depth": sparse * (sparse > 25)}


def distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).norm() / other.norm())


@pytest.fixture(params=NETWORKS)
def name(request: pytest.FixtureRequest) -> str:
    torch.manual_seed(0)
    return str(request.param)


def farthest_from_folded(make: Callable[[], nn.Module], draw: Callable[[int], Tensor], dtype: torch.dtype) -> float:
    """How far what three members predict together is from the plain networks that they fold to."""
    shared = share_among(make(), 3, draw).to(dtype).eval()
    with torch.no_grad():
        for each in shared.parameters():  # so that also biases of members differ
            each.add_(0.01 * torch.randn_like(each))
        inputs = make_inputs(6)
        together, distances = shared(inputs), []
        for number in range(3):
            plain = make().to(dtype).eval()
            plain.load_state_dict(member_weights(shared.state_dict(), 3, number))
            part = slice(2 * number, 2 * number + 2)
            distances.append(distance(together[part], plain({key: each[part] for key, each in inputs.items()})))
        others = plain({key: each[:2] for key, each in inputs.items()})
        assert distance(together[:2], others) > 1e-3
    return max(distances)


def test_a_member_is_the_plain_network_that_it_folds_to(name: str) -> None:
    assert farthest_from_folded(NETWORKS[name], random_signs, torch.float32) < 1e-6


def test_vectors_of_any_size_fold_up_to_rounding() -> None:
    torch.manual_seed(0)
    assert farthest_from_folded(Perceptron, partial(around_one, deviation=0.5), torch.float64) < 1e-14


def test_one_member_with_vectors_of_ones_is_the_plain_network(name: str) -> None:
    torch.manual_seed(3)
    plain = NETWORKS[name]()
    torch.manual_seed(3)
    shared = share_among(NETWORKS[name](), 1, partial(around_one, deviation=0))
    folded = member_weights(shared.state_dict(), 1, 0)
    assert folded.keys() == plain.state_dict().keys()
    assert all(torch.equal(folded[key], each) for key, each in plain.state_dict().items())
    inputs = make_inputs(2)
    for training in (True, False):
        outputs = []
        for network in (plain, shared):
            with torch.no_grad(), SeededDropout(torch.arange(2)):
                outputs.append(network.train(training)(inputs))
        assert torch.equal(*outputs)


def test_initial_vectors_are_signs_or_lie_around_one() -> None:
    torch.manual_seed(0)
    signs, normal = random_signs(4000), around_one(4000, 0.5)
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(float(signs.mean())) < 0.05
    assert abs(float(normal.mean()) - 1) < 0.03
    assert abs(float(normal.std()) - 0.5) < 0.03


def test_a_batch_that_members_cannot_share_is_refused() -> None:
    with pytest.raises(InputError, match="batch of 4 images cannot be shared among the 3 members"):
        share_among(Perceptron(), 3, random_signs)(make_inputs(4))


def test_every_member_learns_from_its_own_images_and_all_from_each() -> None:
    torch.manual_seed(0)
    network = share_among(Perceptron(), 2, random_signs)
    network(make_inputs(4))[:2].sum().backward()
    rows, bias = (getattr(network.first, key).grad.view(2, -1) for key in ("member_rows", "member_bias"))
    assert bool(rows[0].any())
    assert bool(bias[0].any())
    assert not rows[1].any()
    assert not bias[1].any()
    assert bool(network.first.weight.grad.any())


def test_weight_decay_leaves_vectors_alone() -> None:
    plain, shared = Perceptron(), share_among(Perceptron(), 4, random_signs)
    shapes = [[each.shape for each in network.parameters() if each.ndim > 1] for network in (shared, plain)]
    assert shapes[0] == shapes[1]  # decay acts on matrices alone


def test_attention_that_takes_the_weight_of_its_last_layer_keeps_it() -> None:
    attention = share_among(nn.MultiheadAttention(4, 2, batch_first=True), 2, random_signs)
    assert member_weights(attention.state_dict(), 2, 1).keys() == nn.MultiheadAttention(4, 2).state_dict().keys()
    values = torch.rand(2, 3, 4)
    assert attention(values, values, values)[0].shape == values.shape


def test_packed_ensembles_are_narrow_networks_side_by_side() -> None:
    """Grouped convolutions compute members that share nothing, which a narrow ensemble has too (docs/methods.md)."""
    torch.manual_seed(0)
    members, narrow = 3, 4
    apart = [nn.Sequential(nn.Conv2d(3, narrow, 3), nn.ReLU(), nn.Conv2d(narrow, 2, 3)) for _ in range(members)]
    packed = nn.Sequential(
        nn.Conv2d(3, members * narrow, 3), nn.ReLU(), nn.Conv2d(members * narrow, members * 2, 3, groups=members)
    )
    with torch.no_grad():
        for layer in (0, 2):
            for key in ("weight", "bias"):
                values = torch.cat([getattr(network[layer], key) for network in apart])
                getattr(packed[layer], key).copy_(values)
        image = torch.rand(2, 3, *SIZE)
        expected = torch.cat([network(image) for network in apart], 1)
        assert distance(packed(image), expected) < 1e-6


class Functional(nn.Module):
    """A user's network that takes the weight of a layer instead of calling it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 2, 1)

    def forward(self, inputs: dict[str, Tensor]) -> Tensor:
        return nn.functional.conv2d(self.first(inputs["image"] / 255), self.last.weight)


def test_a_layer_that_is_trained_without_being_called_is_refused() -> None:
    network = share_among(Functional(), 2, random_signs)
    with pytest.raises(InputError, match=r"takes the weight of Conv2d\(4, 2, .* without calling it"):
        network(make_inputs(2)).sum().backward()
    unused = share_among(Perceptron(), 2, random_signs)
    unused.aside = nn.Linear(2, 2)
    unused(make_inputs(2)).sum().backward()  # a layer that nothing is done with is none of its business
