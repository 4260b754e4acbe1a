"""The segmentation network has the published layers, takes images of any size, and says logits in float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from epibench.errors import InputError
from epibench.networks.deeplabv3 import DeepLabV3, FarConv2d
from epibench.networks.dropout import SeededDropout, dropout_after, insert_dropout


def narrow(**options) -> DeepLabV3:
    torch.manual_seed(0)
    return DeepLabV3(5, **{"depth": 18, "width": 8, "head_width": 16, **options}).eval()


def make_inputs(height: int = 32, width: int = 64, images: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return {"image": torch.randint(0, 256, (images, 3, height, width), dtype=torch.uint8, generator=generator)}


def convolution(inputs: int, outputs: int, size: int = 1) -> int:
    """Parameters of a convolution without bias and of its batch norm."""
    return inputs * outputs * size**2 + 2 * outputs


def test_the_published_network_has_its_layers() -> None:
    with torch.device("meta"):
        network = DeepLabV3(19)
    backbone = sum(each.numel() for each in network.backbone.parameters())
    pyramid = 2 * convolution(2048, 512) + 3 * convolution(2048, 512, 3) + convolution(5 * 512, 512)
    logits = 19 * 512 + 19
    assert sum(each.numel() for each in network.parameters()) == backbone + pyramid + logits
    assert [branch[0].dilation[0] for branch in network.pyramid.branches] == [1, 12, 24, 36]
    assert network.pyramid.dropout.p == 0.1
    assert isinstance(network.pyramid.dropout, nn.Dropout2d)


@pytest.mark.parametrize(
    ("depth", "places"),
    [
        (101, ("stages.2.22", "stages.3.0", "stages.3.1", "stages.3.2")),
        (18, ("stages.2.0", "stages.2.1", "stages.3.0", "stages.3.1")),
    ],
)
def test_dropout_goes_after_stages_or_the_last_four_blocks_or_modules_by_name(
    depth: int, places: tuple[str, ...]
) -> None:
    with torch.device("meta"):
        published = DeepLabV3(5, depth, width=8, head_width=16)
        blocks = DeepLabV3(5, depth, width=8, head_width=16, dropout_places="blocks")
        own = DeepLabV3(5, depth, width=8, head_width=16, dropout_places=("pyramid.project",))
    assert published.dropout_places == tuple(f"backbone.stages.{stage}" for stage in range(4))
    assert blocks.dropout_places == tuple(f"backbone.{place}" for place in places)
    assert own.dropout_places == ("pyramid.project",)


@pytest.mark.parametrize("option", ["normalisation", "head_init", "dropout_places"])
def test_unknown_choices_are_refused_by_name(option: str) -> None:
    with pytest.raises(InputError, match=f"{option} of DeepLabV3: choose one of .*, not wrong"):
        narrow(**{option: "wrong"})


def test_normalisations_are_those_of_the_files_that_weights_come_from() -> None:
    seen: list[Tensor] = []
    inputs = make_inputs()
    red, green, blue = inputs["image"].float().unbind(1)
    for kind in ("imagenet", "gustafsson2020", "none"):
        network = narrow(normalisation=kind)
        network.backbone.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
        network(inputs)
    channels = ((red, 0.485, 0.229), (green, 0.456, 0.224), (blue, 0.406, 0.225))
    expected = torch.stack([(values / 255 - mean) / std for values, mean, std in channels], 1)
    torch.testing.assert_close(seen[0], expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(seen[1], torch.stack([red - 102.9801, green - 115.9465, blue - 122.7717], 1))
    assert torch.equal(seen[2], inputs["image"].float())


def test_the_head_starts_from_he_or_as_pytorch_does() -> None:
    he, default = narrow(head_width=256), narrow(head_width=256, head_init="default")
    assert float(he.logits.weight.detach().abs().max()) < 0.06  # N(0, 0.01²)
    bound = 1 / 256**0.5  # uniform within it
    assert 0.9 * bound < float(default.logits.weight.detach().abs().max()) <= bound
    inputs = default.pyramid.project[0].in_channels
    assert 0.9 < float(default.pyramid.project[0].weight.detach().abs().max()) * inputs**0.5 <= 1
    assert float(he.pyramid.project[0].weight.detach().std()) == pytest.approx((2 / 256) ** 0.5, rel=0.02)


@pytest.mark.parametrize("output_stride", [8, 16, 32])
@pytest.mark.parametrize("size", [(32, 64), (33, 65), (31, 47), (1, 1), (104, 203)])
def test_logits_are_coarse_and_rounded_up(size: tuple[int, int], output_stride: int) -> None:
    with torch.inference_mode():
        logits = narrow(output_stride=output_stride)(make_inputs(*size))
    assert logits.shape == (2, 5, *(-(-each // output_stride) for each in size))
    assert logits.isfinite().all()


def test_images_are_normalised_as_imagenet_s() -> None:
    network, inputs, seen = narrow(), make_inputs(), []
    network.backbone.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    with torch.inference_mode():
        network(inputs)
    mean, std = (torch.tensor(each).view(3, 1, 1) for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    torch.testing.assert_close(seen[0], (inputs["image"] / 255 - mean) / std, rtol=1e-5, atol=1e-5)


def test_the_normalisation_is_not_among_the_weights() -> None:
    assert not [name for name in narrow().state_dict() if "image" in name]


def test_an_image_is_predicted_the_same_in_any_batch() -> None:
    inputs, network = make_inputs(), narrow()
    with torch.inference_mode():
        both, alone = network(inputs), network({"image": inputs["image"][1:]})
    torch.testing.assert_close(both[1:], alone, rtol=1e-4, atol=1e-6)


def test_pooling_tells_every_pixel_of_the_whole_image() -> None:
    pyramid = narrow(rates=()).pyramid  # without dilated convolutions only the mean sees beyond a pixel
    features = torch.randn(1, 64, 6, 40, requires_grad=True)
    pyramid(features)[0, :, 0, 0].sum().backward()
    assert features.grad is not None
    assert (features.grad.abs().sum(1) > 0).all()


@pytest.mark.parametrize("size", [(12, 12), (12, 40), (40, 12), (13, 13), (4, 8), (1, 1), (30, 30)])
def test_what_a_distant_convolution_leaves_out_is_padding(size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    conv = FarConv2d(8, 8, 12).double()
    features = torch.randn(2, 8, *size, dtype=torch.float64)
    expected = functional.conv2d(features, conv.weight, padding=12, dilation=12)
    torch.testing.assert_close(conv(features), expected)


def test_gradients_reach_every_parameter() -> None:
    network = narrow().train()
    functional.cross_entropy(network(make_inputs()), torch.randint(0, 5, (2, 4, 8))).backward()
    without = [name for name, each in network.named_parameters() if each.grad is None or not each.grad.abs().sum() > 0]
    assert without == []


def test_it_begins_with_nearly_equal_probabilities() -> None:
    with torch.inference_mode():
        probs = narrow()(make_inputs()).softmax(1)
    assert float((probs - 0.2).abs().max()) < 0.1


def test_training_on_one_image_is_refused() -> None:
    with pytest.raises(InputError, match=r"batch of one image.*set batch_size to 2 or more"):
        narrow().train()(make_inputs(images=1))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"head_width": 4}, "head_width of DeepLabV3: at least 8, not 4"),
        ({"width": 4}, "width of a ResNet: at least 8, not 4"),
        ({"rates": (0, 2)}, r"rates of DeepLabV3: dilations of 1 or more, not \[0, 2\]"),
        ({"head_dropout": 1.0}, "head_dropout of DeepLabV3: from 0 to below 1, not 1.0"),
        ({"num_classes": 1}, "num_classes of DeepLabV3: at least 2, not 1"),
    ],
)
def test_what_cannot_be_built_is_said(options: dict, words: str) -> None:
    with pytest.raises(InputError, match=words):
        DeepLabV3(**{"num_classes": 5, **options})


def seeded(network: nn.Module, inputs: dict[str, Tensor], keys: list[int]) -> Tensor:
    with torch.inference_mode(), SeededDropout(torch.tensor(keys)):
        return network(inputs)


def test_dropout_acts_at_every_place_and_in_the_head_unless_it_goes_by_mode() -> None:
    network = narrow()
    insert_dropout(network, network.dropout_places, 0.5)
    with torch.inference_mode(), SeededDropout(torch.arange(2)) as dropout:
        network(make_inputs())
    assert dropout.calls == 4 + 1
    with torch.inference_mode(), SeededDropout(torch.arange(2), by_mode=True) as dropout:
        network(make_inputs())
    assert dropout.calls == 4  # the head's acts in training alone


def test_seeded_dropout_is_a_function_of_the_keys_alone() -> None:
    network, inputs = narrow(), make_inputs()
    with dropout_after(network, network.dropout_places, 0.5):
        both = seeded(network, inputs, [3, 4])
        assert torch.equal(both, seeded(network, inputs, [3, 4]))
        assert not torch.equal(both, seeded(network, inputs, [3, 5]))
        alone = seeded(network, {"image": inputs["image"][1:]}, [4])
    torch.testing.assert_close(both[1:], alone, rtol=1e-4, atol=1e-6)


def test_without_seeds_evaluation_drops_nothing() -> None:
    network, inputs = narrow(head_dropout=0.5), make_inputs()
    with torch.inference_mode():
        assert torch.equal(network(inputs), network(inputs))


@pytest.fixture
def mixed() -> dict[str, torch.dtype]:
    """The types of what modules put out in a training step under autocast."""
    network, seen = narrow().train(), dict[str, torch.dtype]()
    for name in ("backbone.stem.0", "backbone.stages.3.1.conv2", "pyramid.branches.1.0", "logits"):
        network.get_submodule(name).register_forward_hook(
            lambda module, given, output, name=name: seen.update({name: output.dtype})
        )
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(make_inputs())
    logits.sum().backward()
    seen["network"] = logits.dtype
    return seen


def test_mixed_precision_puts_out_float32(mixed: dict[str, torch.dtype]) -> None:
    assert mixed.pop("network") == torch.float32
    assert set(mixed.values()) == {torch.bfloat16}


def test_weights_that_were_cast_before_give_what_autocast_gives() -> None:
    network, inputs = narrow(), make_inputs()
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        expected = network(inputs)
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module.to(torch.bfloat16)
        assert torch.equal(network(inputs), expected)


def test_it_compiles_as_one_graph() -> None:
    network, inputs = narrow(), make_inputs()
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(inputs), network(inputs))
