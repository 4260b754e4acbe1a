"""The depth network has the published layers, takes images of any size, and says metres in float32."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.depth_completion import DepthCompletion, spread
from epibench.networks.dropout import SeededDropout, insert_dropout

Inputs = dict[str, Tensor]


def narrow(**options) -> DepthCompletion:
    torch.manual_seed(0)
    return DepthCompletion(8, (1, 1, 1, 1), **{"init_std": None, **options}).eval()


def make_inputs(height: int = 16, width: int = 32, images: int = 2) -> Inputs:
    generator = torch.Generator().manual_seed(1)
    image = torch.randint(0, 256, (images, 3, height, width), dtype=torch.uint8, generator=generator)
    depth = 80 * torch.rand(images, 1, height, width, generator=generator)
    sparse = torch.where(torch.rand(depth.shape, generator=generator) < 0.1, depth, 0.0)
    return {"image": image, "sparse_depth": sparse}


def convolution(inputs: int, outputs: int, size: int = 3) -> int:
    """Parameters of a convolution without bias and of its batch norm."""
    return inputs * outputs * size**2 + 2 * outputs


def stage(inputs: int, outputs: int, blocks: int) -> int:
    """Parameters of a stage of basic blocks (He et al. 2016); a change of channels needs a 1×1 shortcut."""
    first = convolution(inputs, outputs) + convolution(outputs, outputs)
    shortcut = convolution(inputs, outputs, 1) if inputs != outputs else 0
    return first + shortcut + 2 * (blocks - 1) * convolution(outputs, outputs)


def published_parameters(image_channels: int) -> int:
    stems = convolution(image_channels, 32) + convolution(1, 32)
    resnet34 = stage(64, 64, 3) + stage(64, 128, 4) + stage(128, 256, 6) + stage(256, 512, 3)
    deepest = convolution(512, 512)
    # Each is concatenated with the encoder's output of its resolution: 512, 256, 128, 64, and 64 of the stems.
    decoder = (
        convolution(512, 256)
        + convolution(256 + 512, 128)
        + convolution(128 + 256, 64)
        + convolution(64 + 128, 64)
        + convolution(64 + 64, 64)
    )
    heads = 2 * (64 + 64 + 1)
    return stems + resnet34 + deepest + decoder + heads


@pytest.fixture(scope="module")
def published() -> DepthCompletion:
    torch.manual_seed(0)
    return DepthCompletion()


@pytest.mark.parametrize(("grey", "expected"), [(False, 26_108_034), (True, 26_107_458)])
def test_the_published_network_has_as_many_parameters(grey: bool, expected: int) -> None:
    network = DepthCompletion(grey=grey)
    assert expected == published_parameters(1 if grey else 3)
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


def test_the_published_layers_have_their_shapes(published: DepthCompletion) -> None:
    seen: dict[str, tuple[int, ...]] = {}

    def note(name: str):
        return lambda module, inputs, output: seen.update({name: tuple(output.shape[1:])})

    names = [
        "image_stem",
        "depth_stem",
        *(f"{part}.{number}" for part in ("encoder", "decoder") for number in range(5)),
    ]
    handles = [published.get_submodule(name).register_forward_hook(note(name)) for name in names]
    with torch.inference_mode():
        published.eval()(make_inputs(32, 64, 1))
    for handle in handles:
        handle.remove()
    assert seen == {
        "image_stem": (32, 32, 64),
        "depth_stem": (32, 32, 64),
        "encoder.0": (64, 32, 64),
        "encoder.1": (128, 16, 32),
        "encoder.2": (256, 8, 16),
        "encoder.3": (512, 4, 8),
        "encoder.4": (512, 2, 4),
        "decoder.0": (256, 4, 8),
        "decoder.1": (128, 8, 16),
        "decoder.2": (64, 16, 32),
        "decoder.3": (64, 32, 64),
        "decoder.4": (64, 32, 64),
    }


def test_the_stages_have_the_blocks_of_a_resnet34(published: DepthCompletion) -> None:
    assert [len(published.encoder[number]) for number in range(4)] == [3, 4, 6, 3]


def test_stems_and_decoder_have_batch_norm_and_leaky_relu(published: DepthCompletion) -> None:
    for layer in (published.image_stem, published.depth_stem, published.encoder[4], *published.decoder):
        _, norm, activation = layer
        assert isinstance(norm, nn.BatchNorm2d)
        assert isinstance(activation, nn.LeakyReLU)
        assert activation.negative_slope == 0.2


def test_published_weights_begin_with_their_standard_deviation(published: DepthCompletion) -> None:
    for name, module in published.named_modules():
        if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
            # The standard error of an estimate from n numbers is 1/√(2n).
            tolerance = 5 / (2 * module.weight.numel()) ** 0.5
            assert float(module.weight.detach().std()) == pytest.approx(1e-3, rel=tolerance), name


def test_biases_begin_at_zero(published: DepthCompletion) -> None:
    biases = [each for name, each in published.named_parameters() if name.endswith("bias")]
    assert biases
    assert not any(bool(bias.any()) for bias in biases)


def test_he_initialisation_leaves_the_heads_as_published() -> None:
    network = DepthCompletion(32, (1, 1, 1, 1), init_std=None)
    assert float(network.encoder[4][0].weight.detach().std()) == pytest.approx(
        (2 / ((1 + 0.2**2) * 512 * 9)) ** 0.5, rel=0.01
    )
    heads = torch.cat([network.mean.weight.flatten(), network.log_variance.weight.flatten()])
    assert float(heads.detach().std()) == pytest.approx(1e-3, rel=0.3)


@pytest.mark.parametrize("size", [(16, 32), (17, 33), (31, 47), (1, 1), (5, 80)])
def test_the_output_has_the_size_of_the_image(size: tuple[int, int]) -> None:
    with torch.inference_mode():
        raw = narrow()(make_inputs(*size))
    assert raw.shape == (2, 2, *size)


def test_an_image_is_predicted_the_same_in_any_batch() -> None:
    inputs, network = make_inputs(20, 40), narrow()
    with torch.inference_mode():
        both = network(inputs)
        alone = network({name: values[1:] for name, values in inputs.items()})
    torch.testing.assert_close(both[1:], alone, rtol=1e-5, atol=1e-4)  # a mean has a hundred times its head's rounding


def grey_seen(network: DepthCompletion, inputs: Inputs) -> Tensor:
    seen: list[Tensor] = []
    network.image_stem.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    with torch.inference_mode():
        network(inputs)
    return seen[0]


def test_a_grey_network_sees_the_luma_in_whole_levels() -> None:
    inputs = make_inputs()
    red, green, blue = inputs["image"].double().unbind(1)
    exact = (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]
    found = grey_seen(narrow(grey=True, image_max=255), inputs)
    assert torch.equal(found, found.round())
    assert float((found - exact).abs().max()) <= 0.5 + 1e-9


def test_grey_is_rounded_before_it_is_scaled() -> None:
    inputs = make_inputs()
    levels = grey_seen(narrow(grey=True, image_max=255), inputs)
    torch.testing.assert_close(grey_seen(narrow(grey=True), inputs), levels / 255)


@pytest.mark.parametrize(("colour", "grey"), [((80, 80, 80), 80), ((255, 255, 255), 255), ((0, 0, 250), 29)])
def test_a_half_is_rounded_up(colour: tuple[int, int, int], grey: int) -> None:
    image = torch.tensor(colour, dtype=torch.uint8).view(1, 3, 1, 1)
    inputs = {"image": image, "sparse_depth": torch.zeros(1, 1, 1, 1)}
    assert float(grey_seen(narrow(grey=True, image_max=255), inputs)[0, 0, 0, 0]) == grey


def test_a_colour_network_sees_three_channels_from_0_to_1() -> None:
    network, inputs, seen = narrow(), make_inputs(), []
    network.image_stem.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    with torch.inference_mode():
        network(inputs)
    torch.testing.assert_close(seen[0], inputs["image"].float() / 255)


def test_the_mean_is_scaled_by_a_hundred_and_the_log_variance_is_not() -> None:
    network, seen = narrow(), {}
    for name in ("mean", "log_variance"):
        head = getattr(network, name)
        head.register_forward_hook(lambda module, given, output, name=name: seen.update({name: output}))
    with torch.inference_mode():
        raw = network(make_inputs())
    assert torch.equal(raw[:, 0], 100 * seen["mean"][:, 0])
    assert torch.equal(raw[:, 1], seen["log_variance"][:, 0])


def test_the_sparse_depth_matters() -> None:
    network, inputs = narrow(), make_inputs()
    with torch.inference_mode():
        one = network(inputs)
        other = network({**inputs, "sparse_depth": torch.zeros_like(inputs["sparse_depth"])})
    assert not torch.allclose(one, other)


def test_dropout_goes_after_the_encoder_and_the_concatenations_or_the_decoder_or_modules_by_name() -> None:
    encoder = tuple(f"encoder.{number}" for number in (2, 3, 4))
    assert narrow().dropout_places == (*encoder, *(f"joined.{number}" for number in range(4)))
    assert narrow(dropout_places="decoder").dropout_places == (*encoder, *(f"decoder.{number}" for number in range(4)))
    assert narrow(dropout_places=("encoder.4",)).dropout_places == ("encoder.4",)
    with pytest.raises(InputError, match="dropout_places of DepthCompletion: choose one of concatenations, decoder"):
        narrow(dropout_places="stages")


def test_the_image_is_seen_from_0_to_1_or_to_255() -> None:
    seen: list[Tensor] = []
    for largest in (1.0, 255.0):
        network = narrow(image_max=largest)
        network.image_stem.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
        network(make_inputs())
    torch.testing.assert_close(255 * seen[0], seen[1])
    torch.testing.assert_close(seen[1], make_inputs()["image"].float())


def test_dropout_acts_at_every_place() -> None:
    network = narrow()
    insert_dropout(network, network.dropout_places, 0.5)
    with torch.inference_mode(), SeededDropout(torch.arange(2)) as dropout:
        network(make_inputs())
    assert dropout.calls == 7


@pytest.fixture
def mixed() -> dict[str, torch.dtype]:
    """The types of what modules put out under autocast."""
    network, seen = narrow(), dict[str, torch.dtype]()
    for name in ("encoder.0.0.conv1", "decoder.4.0", "mean", "log_variance"):
        network.get_submodule(name).register_forward_hook(
            lambda module, given, output, name=name: seen.update({name: output.dtype})
        )
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        seen["network"] = network(make_inputs()).dtype
    return seen


def test_mixed_precision_puts_out_float32(mixed: dict[str, torch.dtype]) -> None:
    assert mixed["network"] == torch.float32


def test_the_heads_stay_in_float32_in_mixed_precision(mixed: dict[str, torch.dtype]) -> None:
    assert {mixed["mean"], mixed["log_variance"]} == {torch.float32}


def test_the_layers_before_the_heads_use_mixed_precision(mixed: dict[str, torch.dtype]) -> None:
    assert {mixed["encoder.0.0.conv1"], mixed["decoder.4.0"]} == {torch.bfloat16}


def test_sparse_depth_is_spread_over_the_picture_by_its_nearest_points() -> None:
    sparse = torch.zeros(1, 1, 40, 70)
    sparse[0, 0, 5, 5], sparse[0, 0, 30, 60] = 10.0, 40.0
    found = spread(sparse)[0, 0]
    assert found.min() > 9.9
    assert found.max() < 40.1
    torch.testing.assert_close(found[[5, 30], [5, 60]], torch.tensor([10.0, 40.0]), rtol=0.2, atol=0)
    assert found[6, 8] < 15 < 30 < found[28, 62]


def test_nothing_is_spread_where_there_is_no_sparse_depth() -> None:
    assert torch.equal(spread(torch.zeros(2, 1, 16, 16)), torch.zeros(2, 1, 16, 16))


def test_an_anchored_network_begins_with_the_spread_sparse_depth() -> None:
    network = DepthCompletion(8, (1, 1, 1, 1), anchored=True).eval()
    torch.nn.init.zeros_(network.mean.weight)
    sparse = torch.where(torch.rand(1, 1, 32, 48) < 0.1, torch.rand(1, 1, 32, 48) * 50 + 1, 0.0)
    image = torch.randint(0, 256, (1, 3, 32, 48), dtype=torch.uint8)
    with torch.inference_mode():
        mean = network({"image": image, "sparse_depth": sparse})[:, :1]
    torch.testing.assert_close(mean, spread(sparse))
