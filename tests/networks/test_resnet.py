"""Residual networks have the published sizes, and trade resolution for dilation without changing what they compute."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.resnet import BLOCKS, BasicBlock, Bottleneck, ResNet

Shape = tuple[int, int, int]


def narrow(depth: int = 18, output_stride: int = 8, stem: str = "triple", width: int = 8) -> ResNet:
    torch.manual_seed(0)
    return ResNet(depth, width, output_stride, stem).eval()


def noise(height: int, width: int, images: int = 1) -> Tensor:
    return torch.randn(images, 3, height, width, generator=torch.Generator().manual_seed(1))


def num_parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


# torchvision's published totals, less 1000 × channels + 1000 of the classifier.
@pytest.mark.parametrize(
    ("depth", "total"), [(18, 11_176_512), (34, 21_284_672), (50, 23_508_032), (101, 42_500_160), (152, 58_143_808)]
)
def test_published_networks_have_as_many_parameters(depth: int, total: int) -> None:
    with torch.device("meta"):
        assert num_parameters(ResNet(depth, stem="single")) == total


def test_three_convolutions_replace_the_first_and_widen_what_follows() -> None:
    with torch.device("meta"):
        difference = num_parameters(ResNet(50, stem="triple")) - num_parameters(ResNet(50, stem="single"))
    single = 3 * 64 * 49 + 2 * 64
    triple = 9 * (3 * 64 + 64 * 64 + 64 * 128) + 2 * (64 + 64 + 128)
    first_block = (128 - 64) * (64 + 256)  # its first convolution and its shortcut see twice the channels
    assert difference == triple - single + first_block


@pytest.mark.parametrize("stem", ["single", "triple"])
@pytest.mark.parametrize("output_stride", [8, 16, 32])
@pytest.mark.parametrize("depth", [18, 50])
def test_features_have_their_channels_and_size(depth: int, output_stride: int, stem: str) -> None:
    with torch.device("meta"):
        network = ResNet(depth, 8, output_stride, stem)
        features = network(torch.empty(2, 3, 64, 96))
    channels = 64 if depth < 50 else 256
    assert network.channels == channels
    assert features.shape == (2, channels, 64 // output_stride, 96 // output_stride)


@pytest.mark.parametrize("output_stride", [8, 16, 32])
@pytest.mark.parametrize("size", [(1, 1), (33, 65), (47, 31), (40, 8)])
def test_sizes_that_are_no_multiple_are_rounded_up(size: tuple[int, int], output_stride: int) -> None:
    with torch.inference_mode():
        features = narrow(output_stride=output_stride)(noise(*size))
    assert features.shape[2:] == tuple(-(-each // output_stride) for each in size)


@pytest.mark.parametrize("depth", [18, 50])
@pytest.mark.parametrize(
    ("output_stride", "strides", "dilations"),
    [(8, (1, 2, 1, 1), (1, 1, 2, 4)), (16, (1, 2, 2, 1), (1, 1, 1, 2)), (32, (1, 2, 2, 2), (1, 1, 1, 1))],
)
def test_stages_stride_or_dilate(
    depth: int, output_stride: int, strides: tuple[int, ...], dilations: tuple[int, ...]
) -> None:
    for stage, stride, dilation in zip(narrow(depth, output_stride).stages, strides, dilations, strict=True):
        kernels = [conv for conv in stage.modules() if isinstance(conv, nn.Conv2d) and conv.kernel_size == (3, 3)]
        assert [conv.stride[0] for conv in kernels] == [stride] + [1] * (len(kernels) - 1)
        assert {conv.dilation for conv in kernels} == {(dilation, dilation)}


def test_the_stride_of_a_bottleneck_is_in_its_middle_and_its_shortcut() -> None:
    block = Bottleneck(16, 32, stride=2)
    strides = [conv.stride[0] for conv in (block.conv1, block.conv2, block.conv3, block.shortcut[0])]
    assert strides == [1, 2, 1, 2]


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_block_without_change_of_size_adds_its_input(block: type[BasicBlock] | type[Bottleneck]) -> None:
    network = block(32, 32).eval()
    last = network.norm3 if isinstance(network, Bottleneck) else network.norm2
    nn.init.zeros_(last.weight)
    features = torch.randn(1, 32, 5, 6)
    with torch.inference_mode():
        torch.testing.assert_close(network(features), features.relu())


@pytest.mark.parametrize("block", [BasicBlock, Bottleneck])
def test_a_dilated_block_sees_every_other_pixel_as_one_that_is_not_sees_all(
    block: type[BasicBlock] | type[Bottleneck],
) -> None:
    torch.manual_seed(0)
    dense, dilated = block(32, 32).eval(), block(32, 32, dilation=2).eval()
    dilated.load_state_dict(dense.state_dict())
    features = torch.randn(1, 32, 10, 12)
    with torch.inference_mode():
        for row in range(2):
            for column in range(2):
                expected = dense(features[:, :, row::2, column::2])
                torch.testing.assert_close(dilated(features)[:, :, row::2, column::2], expected, rtol=1e-4, atol=1e-5)


def reach(network: ResNet, size: int) -> int:
    """Rows of the input that the feature in the middle depends on."""
    image = noise(size, 16).requires_grad_()
    features = network(image)
    features[0, :, features.shape[2] // 2].abs().sum().backward()
    assert image.grad is not None
    return int(image.grad.abs().sum((0, 1, 3)).count_nonzero())


def test_dilation_keeps_the_receptive_field_where_stride_made_it() -> None:
    # Without convolutions in the shortcuts' way: 2 · Σ (convolutions × dilation × stride so far) + 1, from the stem's 7
    # (stride 2) and 3 (stride 4). Stage 1: 4 convolutions at stride 4; stage 2: one at 4 and three at 8; at output
    # stride 8 stages 3 and 4 have four at 8 · 2 and four at 8 · 4.
    expected = 2 * (3 + 2 + 4 * 4 + 4 + 3 * 8 + 4 * 16 + 4 * 32) + 1
    assert reach(narrow(18, 8, "single"), expected + 120) == expected


def test_the_stem_of_three_scales_with_the_width() -> None:
    convolutions = [layer for layer in narrow(width=16).stem if isinstance(layer, nn.Conv2d)]
    assert [conv.out_channels for conv in convolutions] == [16, 16, 32]
    assert [conv.stride[0] for conv in convolutions] == [2, 1, 1]


def test_weights_begin_as_he_says() -> None:
    torch.manual_seed(0)
    for name, conv in ResNet(18, 32, stem="single").named_modules():
        if isinstance(conv, nn.Conv2d):
            expected = (2 / (conv.out_channels * conv.kernel_size[0] ** 2)) ** 0.5
            tolerance = 5 / (2 * conv.weight.numel()) ** 0.5  # the standard error is 1/√(2n)
            assert float(conv.weight.detach().std()) == pytest.approx(expected, rel=tolerance), name


@pytest.mark.parametrize("depth", [18, 101])
def test_blocks_are_named_in_order(depth: int) -> None:
    with torch.device("meta"):
        network = ResNet(depth, 8)
    names = [name for name, module in network.named_modules() if isinstance(module, BasicBlock | Bottleneck)]
    assert network.block_names() == names
    assert len(names) == sum(BLOCKS[depth])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depth": 20}, "depth of a ResNet: choose one of 18, 34, 50, 101, 152, not 20"),
        ({"width": 7}, "width of a ResNet: at least 8, not 7"),
        ({"output_stride": 4}, "output_stride of a ResNet: choose one of 8, 16, 32, not 4"),
        ({"stem": "double"}, "stem of a ResNet: choose one of single, triple, not double"),
    ],
)
def test_what_cannot_be_built_is_said(options: dict, words: str) -> None:
    with pytest.raises(InputError) as error:
        ResNet(**options)
    assert str(error.value) == words
