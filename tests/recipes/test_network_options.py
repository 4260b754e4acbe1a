"""Networks as options of a recipe: what can be asked for is what there is."""

from typing import get_args

from epibench.networks.depth_completion import PUBLISHED_STD
from epibench.networks.resnet import Depth, OutputStride, Stem
from epibench.recipes.dense import DepthNetwork, SegmentationNetwork


def test_options_of_the_segmentation_network_are_those_of_its_backbone() -> None:
    fields = SegmentationNetwork.model_fields
    for name, known in (("depth", Depth), ("output_stride", OutputStride), ("stem", Stem)):
        assert get_args(fields[name].annotation) == get_args(known)


def test_weights_start_at_the_published_spread() -> None:
    assert DepthNetwork().init_std == PUBLISHED_STD
