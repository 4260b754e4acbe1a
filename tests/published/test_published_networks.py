"""Narrow published networks, in prediction and in training, against plain functions with the same weights and masks.

tests/given/test_published_checkpoints.py compares them at their published width.
"""

from __future__ import annotations

import pytest
import torch
from author_networks import KEYS, RATE, Masks, depth_network, segmentation_network
from torch import Tensor
from torch.nn import functional

from epibench.networks.dropout import SeededDropout, dropout_after
from epibench.published.checkpoints import published_name, reordered
from named_recipes import recipe_of


def author_weights(network: torch.nn.Module, task: str) -> dict[str, Tensor]:
    """The weights by the authors' names and in their order of channels."""
    weights = {}
    for name, values in network.state_dict().items():
        if task == "depth":  # exchanges the two stems, in either direction
            values = reordered(name, values, task)
        elif name == "pyramid.project.0.weight":
            values = values.roll(len(values), 1)
        weights[published_name(name, task)] = values
    return weights


def published_network(name: str, num_classes: int | None, **narrower) -> torch.nn.Module:
    """The network of a recipe, with weights and statistics that make everything matter."""
    torch.manual_seed(0)
    options = recipe_of(name).network.model_copy(update=narrower)
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


def predicted(network: torch.nn.Module, inputs: dict[str, Tensor], training: bool) -> Tensor:
    """The outputs of a network with dropout after its places, as in training and evaluation."""
    places, dropped = len(network.dropout_places), dropout_after(network, network.dropout_places, RATE)
    network.train(training)
    with torch.no_grad(), dropped, SeededDropout(KEYS, by_mode=True) as mode:
        outputs = network(inputs)
    assert mode.calls == places + (training and hasattr(network, "pyramid"))
    return outputs


def make_inputs(height: int, width: int) -> dict[str, Tensor]:
    image = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8)
    sparse = torch.where(torch.rand(2, 1, height, width) < 0.05, 80 * torch.rand(2, 1, height, width), 0.0)
    return {"image": image, "sparse_depth": sparse}


def assert_equal(found: Tensor, expected: Tensor) -> None:
    """To 1e-5 of the largest value."""
    assert float((found - expected).abs().max()) <= 1e-5 * float(expected.abs().max())
    assert float(expected.std()) > 1e-3 * float(expected.abs().max())  # something is predicted


@pytest.mark.parametrize("training", [False, True], ids=["prediction", "training"])
@pytest.mark.parametrize("size", [(32, 48), (64, 32), (96, 80)])
def test_depth_network_with_masks(size: tuple[int, int], training: bool) -> None:
    network = published_network("kitti-depth", None, width=8)
    inputs, drop = make_inputs(*size), Masks(stem_place=6)
    expected = depth_network(author_weights(network, "depth"), *inputs.values(), drop, training)
    assert drop.number == 7
    assert_equal(predicted(network, inputs, training), expected)


@pytest.mark.parametrize("training", [False, True], ids=["prediction", "training"])
@pytest.mark.parametrize("size", [(64, 96), (65, 97), (128, 72), (512, 512)])
def test_segmentation_network_with_masks(size: tuple[int, int], training: bool) -> None:
    network, image = published_network("cityscapes-segmentation", 19, width=8, head_width=16), make_inputs(*size)
    if training:  # batch norm of the means of two images divides by their difference, which magnifies rounding
        network.double()
    drop = Masks()
    expected = segmentation_network(author_weights(network, "segmentation"), image["image"], drop, training)
    assert drop.number == (5 if training else 4)
    logits = predicted(network, image, training)
    if size == (512, 512):
        assert logits.shape[2:] == (65, 65)
    assert_equal(functional.interpolate(logits, size, mode="bilinear", align_corners=True), expected)


@pytest.mark.parametrize(
    ("name", "num_classes", "expected"),
    [("kitti-depth", None, 26_107_458), ("cityscapes-segmentation", 19, 74_359_251)],
)
def test_parameters(name: str, num_classes: int | None, expected: int) -> None:
    with torch.device("meta"):
        network = recipe_of(name).network.build(num_classes)
    assert sum(each.numel() for each in network.parameters()) == expected
