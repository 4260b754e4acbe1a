"""Statistics of batch norm that are computed anew: those of the given batches, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from epibench.training.statistics import batch_norm_statistics


class Normed(nn.Module):
    """Two layers with batch norm, dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
        self.dropout, self.second, self.last = nn.Dropout(0.5), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2, momentum=0.3)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        hidden = torch.relu(self.norm(self.first(inputs["image"])))
        output: Tensor = self.last(self.second(self.dropout(hidden)))
        return output


def make_network() -> Normed:
    torch.manual_seed(0)
    network = Normed()
    nn.init.normal_(network.norm.weight)
    nn.init.normal_(network.norm.running_mean)  # of earlier weights: they must not matter
    return network


def make_batches() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [{"image": number + torch.randn(2, 3, 6, 5, generator=generator)} for number in range(4)]


def test_they_are_the_means_over_the_batches_of_what_each_layer_sees() -> None:
    network, batches = make_network(), make_batches()
    first, norm, second = network.first, network.norm, network.second
    expected: dict[str, list[Tensor]] = {name: [] for name in ("norm.mean", "norm.var", "last.mean", "last.var")}
    with torch.no_grad():
        for batch in batches:
            seen = first(batch["image"])
            mean, variance = (seen.mean((0, 2, 3)), seen.var((0, 2, 3), correction=0))
            scaled = (seen - mean[:, None, None]) / (variance[:, None, None] + norm.eps).sqrt()
            then = second(torch.relu(norm.weight[:, None, None] * scaled + norm.bias[:, None, None]))
            for name, values in (("norm", seen), ("last", then)):
                expected[f"{name}.mean"].append(values.mean((0, 2, 3)))
                expected[f"{name}.var"].append(values.var((0, 2, 3)))
    found = batch_norm_statistics(make_network(), batches)
    for name, values in expected.items():
        layer, _, kind = name.partition(".")
        torch.testing.assert_close(found[f"{layer}.running_{kind}"], torch.stack(values).mean(0), rtol=1e-5, atol=1e-6)
    assert found["last.num_batches_tracked"] == 4


def test_they_are_the_same_when_asked_again() -> None:
    one, other = (batch_norm_statistics(make_network(), make_batches()) for _ in range(2))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_they_fit_into_the_weights_and_change_no_parameter() -> None:
    network = make_network()
    before = {name: each.clone() for name, each in network.named_parameters()}
    found = batch_norm_statistics(network, make_batches())
    assert set(found) == {name for name, _ in network.named_buffers()}
    assert all(torch.equal(each, before[name]) for name, each in network.named_parameters())


def test_a_network_without_batch_norm_has_none() -> None:
    def unused() -> Mapping[str, Tensor]:
        raise AssertionError("no batch is needed")

    assert batch_norm_statistics(nn.Conv2d(3, 2, 1), (unused() for _ in range(2))) == {}
