"""Weights in everyone's naming land where they belong; a misfit is named, and nothing in a file is executed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from epibench.errors import InputError
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.resnet import ResNet, load_backbone

State = dict[str, Tensor]


class PlainBlock(nn.Module):
    """A residual block with torchvision's names, written for these tests alone."""

    def __init__(self, inputs: int, inside: int, outputs: int, stride: int):
        super().__init__()
        bottleneck = inside != outputs
        shapes = (
            [(inputs, inside, 1, 1), (inside, inside, 3, stride), (inside, outputs, 1, 1)]
            if bottleneck
            else [(inputs, outputs, 3, stride), (outputs, outputs, 3, 1)]
        )
        for number, (before, after, size, step) in enumerate(shapes, 1):
            self.add_module(f"conv{number}", nn.Conv2d(before, after, size, step, size // 2, bias=False))
            self.add_module(f"bn{number}", nn.BatchNorm2d(after))
        self.count, self.downsample = len(shapes), None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Tensor:
        inner = features
        for number in range(1, self.count + 1):
            inner = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(inner))
            if number < self.count:
                inner = inner.relu()
        return (inner + (features if self.downsample is None else self.downsample(features))).relu()


class Plain(nn.Module):
    """A ResNet of stride 32 with the names of torchvision, or with a stem of three as timm or CSAIL name it."""

    def __init__(self, depth: int = 18, stem: str = "torchvision", width: int = 8):
        super().__init__()
        self.kind, expansion = stem, 1 if depth < 50 else 4
        if stem == "timm":
            layers: list[nn.Module] = []
            for before, after, stride in ((3, width, 2), (width, width, 1)):
                layers += [nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            self.conv1: nn.Module = nn.Sequential(*layers, nn.Conv2d(width, 2 * width, 3, 1, 1, bias=False))
            self.bn1 = nn.BatchNorm2d(2 * width)
        elif stem == "csail":
            sizes = ((3, width, 2), (width, width, 1), (width, 2 * width, 1))
            for number, (before, after, stride) in enumerate(sizes, 1):
                self.add_module(f"conv{number}", nn.Conv2d(before, after, 3, stride, 1, bias=False))
                self.add_module(f"bn{number}", nn.BatchNorm2d(after))
        else:
            self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        channels = width if stem == "torchvision" else 2 * width
        for stage, number in enumerate({18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}[depth]):
            blocks = []
            for block in range(number):
                inside = width * 2**stage
                stride = 2 if stage and not block else 1
                blocks.append(PlainBlock(channels, inside, expansion * inside, stride))
                channels = expansion * inside
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, 10)
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):  # so that every tensor of it matters
                nn.init.uniform_(module.weight, 0.5, 1)
                nn.init.normal_(module.bias, std=0.1)
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 2)
                module.num_batches_tracked.fill_(7)

    def forward(self, image: Tensor) -> Tensor:
        features = self.bn1(self.conv1(image)).relu()
        if self.kind == "csail":
            features = self.bn3(self.conv3(self.bn2(self.conv2(features)).relu())).relu()
        features = nn.functional.max_pool2d(features, 3, 2, 1)
        for stage in range(1, 5):
            features = getattr(self, f"layer{stage}")(features)
        return features


def plain(depth: int = 18, stem: str = "torchvision", width: int = 8) -> Plain:
    torch.manual_seed(0)
    return Plain(depth, stem, width).eval()


def ours(depth: int = 18, stem: str = "single", width: int = 8) -> ResNet:
    torch.manual_seed(1)
    return ResNet(depth, width, 32, stem).eval()


def saved(path: Path, state: object) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return path


def message(resnet: ResNet, path: Path) -> str:
    with pytest.raises(InputError) as error:
        load_backbone(resnet, path)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    return str(error.value).removeprefix(f"{path}: ")


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize(("stem", "own"), [("torchvision", "single"), ("timm", "triple"), ("csail", "triple")])
@pytest.mark.parametrize("depth", [18, 50])
def test_every_naming_gives_the_same_features(tmp_path: Path, depth: int, stem: str, own: str, suffix: str) -> None:
    theirs, network = plain(depth, stem), ours(depth, own)
    load_backbone(network, saved(tmp_path / f"weights{suffix}", theirs.state_dict()))
    image = torch.randn(1, 3, 70, 65)
    with torch.inference_mode():
        torch.testing.assert_close(network(image), theirs(image), rtol=1e-4, atol=1e-5)
    counters = [each for name, each in network.state_dict().items() if name.endswith("num_batches_tracked")]
    assert {int(each) for each in counters} == {7}


WRAPPINGS: dict[str, Callable[[State], object]] = {
    "state_dict": lambda state: {"state_dict": state, "epoch": 90},
    "model": lambda state: {"model": state},
    "both": lambda state: {"model": {"state_dict": state}},
    "module": lambda state: {f"module.{name}": tensor for name, tensor in state.items()},
    "encoder": lambda state: {f"encoder.{name}": tensor for name, tensor in state.items()},
    "part of a network": lambda state: {
        **{f"module.backbone.{name}": tensor for name, tensor in state.items()},
        "module.classifier.weight": torch.zeros(3),
    },
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_prefixes_and_wrappers_are_taken_off(tmp_path: Path, wrapping: str) -> None:
    state, network = plain().state_dict(), ours()
    load_backbone(network, saved(tmp_path / "weights.pt", WRAPPINGS[wrapping](state)))
    assert torch.equal(network.stages[3][1].conv2.weight, state["layer4.1.conv2.weight"])


def test_a_file_of_the_old_format_is_read(tmp_path: Path) -> None:
    state, network = plain().state_dict(), ours()
    torch.save(state, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    load_backbone(network, tmp_path / "old.pth")
    assert torch.equal(network.stem[0].weight, state["conv1.weight"])


def test_counters_of_batch_norm_are_optional(tmp_path: Path) -> None:
    state = {name: each for name, each in plain().state_dict().items() if "num_batches" not in name}
    network = ours()
    load_backbone(network, saved(tmp_path / "weights.pth", state))
    assert torch.equal(network.stem[1].running_var, state["bn1.running_var"])


def test_what_a_synchronised_batch_norm_keeps_is_ignored(tmp_path: Path) -> None:
    state, network = plain(stem="csail").state_dict(), ours(stem="triple")
    extra = {"bn1._tmp_running_mean": torch.ones(8), "layer1.0.bn1._running_iter": torch.ones(1)}
    load_backbone(network, saved(tmp_path / "weights.pth", {**state, **extra}))
    assert torch.equal(network.stem[1].running_mean, state["bn1.running_mean"])


def test_half_precision_becomes_the_network_s(tmp_path: Path) -> None:
    state = {name: each.half() if each.is_floating_point() else each for name, each in plain().state_dict().items()}
    network = ours()
    load_backbone(network, saved(tmp_path / "weights.safetensors", state))
    assert torch.equal(network.stem[0].weight, state["conv1.weight"].float())


def test_deeplabv3_takes_the_file(tmp_path: Path) -> None:
    state = plain(stem="csail").state_dict()
    path = saved(tmp_path / "weights.pth", state)
    network = DeepLabV3(5, 18, width=8, head_width=16, backbone_weights=str(path))
    assert torch.equal(network.backbone.stem[6].weight, state["conv3.weight"])


def test_another_depth_is_named(tmp_path: Path) -> None:
    found = message(ours(18), saved(tmp_path / "weights.pth", plain(50).state_dict()))
    assert found.startswith(
        "not the weights of a ResNet18 of width 8 with stem=single; the file holds a ResNet50: set network.depth=50; "
    )
    assert "unexpected: layer1.0.conv3.weight, layer1.0.bn3.weight, layer1.0.bn3.bias and " in found


@pytest.mark.parametrize(
    ("stem", "own", "hint"),
    [
        ("timm", "single", "the file has a stem of three convolutions: set network.stem=triple"),
        ("csail", "single", "the file has a stem of three convolutions: set network.stem=triple"),
        ("torchvision", "triple", "the file has a stem of one convolution: set network.stem=single"),
    ],
)
def test_another_stem_is_named(tmp_path: Path, stem: str, own: str, hint: str) -> None:
    found = message(ours(18, own), saved(tmp_path / "weights.pth", plain(18, stem).state_dict()))
    assert f"with stem={own}; {hint}; " in found
    assert "network.depth" not in found


def test_another_width_is_named(tmp_path: Path) -> None:
    found = message(ours(50), saved(tmp_path / "weights.pth", plain(50, width=16).state_dict()))
    assert (
        "; the file has width 16: set network.width=16; of another shape: conv1.weight (16, 3, 7, 7) instead" in found
    )
    assert "missing" not in found


@pytest.mark.parametrize(("dropped", "listed"), [(2, ""), (5, " and 2 more")])
def test_missing_keys_are_named_in_the_file_s_words(tmp_path: Path, dropped: int, listed: str) -> None:
    state = plain().state_dict()
    names = [name for name in state if name.startswith("layer3.0.") and "num_batches" not in name][:dropped]
    for name in names:
        del state[name]
    found = message(ours(), saved(tmp_path / "weights.pth", state))
    assert (
        found == f"not the weights of a ResNet18 of width 8 with stem=single; missing: {', '.join(names[:3])}{listed}"
    )


def test_unexpected_keys_are_named(tmp_path: Path) -> None:
    state = {**plain().state_dict(), "layer1.0.se.weight": torch.zeros(3)}
    assert message(ours(), saved(tmp_path / "weights.pth", state)).endswith("; unexpected: layer1.0.se.weight")


def test_averaging_shortcuts_are_named(tmp_path: Path) -> None:
    state = plain().state_dict()
    state["layer2.0.downsample.2.weight"] = state.pop("layer2.0.downsample.1.weight")
    assert "the file is a ResNet-D" in message(ours(), saved(tmp_path / "weights.pth", state))


def test_a_misfit_leaves_the_network_as_it_was(tmp_path: Path) -> None:
    state, network = plain().state_dict(), ours()
    before = network.stem[0].weight.clone()
    del state["layer4.1.conv2.weight"]
    message(network, saved(tmp_path / "weights.pth", state))
    assert torch.equal(network.stem[0].weight, before)


def test_values_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    state = plain().state_dict()
    state["layer2.0.conv1.weight"][0, 0, 0, 0] = torch.nan
    expected = "layer2.0.conv1.weight holds NaN or infinite values; the file is damaged"
    assert message(ours(), saved(tmp_path / "weights.pth", state)) == expected


def test_weights_of_something_else_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "weights.pth", nn.Linear(2, 2).state_dict())
    assert message(ours(), path).startswith("no weights of a ResNet (bias, weight); expected names as torchvision")


def test_a_file_without_names_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path / "weights.pth", [torch.zeros(3)])
    assert message(ours(), path) == "holds a list, not tensors by name; save a state_dict"


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert message(ours(), tmp_path / "weights.pth").startswith("no such file; ")


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"PK\x03\x04 cut off"])
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    assert message(ours(), tmp_path / name).startswith("not a readable ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (Tensor.to_sparse, "conv1.weight is sparse"),
        (lambda tensor: tensor.to(torch.complex64), "conv1.weight is complex"),
        (Tensor.long, "conv1.weight is int64 in the file and float32 in the network"),
    ],
)
def test_weights_of_another_kind_are_refused(tmp_path: Path, change: Callable[[Tensor], Tensor], words: str) -> None:
    weights = plain().state_dict()
    path = saved(tmp_path / "weights.pth", {**weights, "conv1.weight": change(weights["conv1.weight"])})
    assert message(ours(), path).startswith(words)


@pytest.mark.parametrize("name", ["weights.pth", "weights.safetensors"])
def test_a_file_that_was_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    path = saved(tmp_path / name, plain().state_dict())
    path.write_bytes(path.read_bytes()[:-1000])
    assert message(ours(), path).startswith("not a readable ")


class Malicious:
    """What runs code when an ordinary unpickler reads it."""

    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return exec, (f"open({str(self.trace)!r}, 'w').close()",)


@pytest.mark.parametrize("old", [False, True])
def test_code_in_a_file_is_not_executed(tmp_path: Path, old: bool) -> None:
    path, trace = tmp_path / "weights.pth", tmp_path / "trace"
    state = {**plain().state_dict(), "more": Malicious(trace)}
    torch.save(state, path, _use_new_zipfile_serialization=not old)
    assert re.match(r"needs (\S+\.)?exec to be read, and nothing in a file is executed; save", message(ours(), path))
    assert not trace.exists()
    torch.load(path, weights_only=False)
    assert trace.exists()  # it would have been


def test_a_file_with_other_objects_says_how_to_save_it(tmp_path: Path) -> None:
    path = saved(tmp_path / "weights.pth", {"state_dict": plain().state_dict(), "args": argparse.Namespace(rate=1)})
    found = message(ours(), path)
    assert found.startswith("needs argparse.Namespace to be read")
    assert "torch.save(network.state_dict(), …)" in found


def test_any_shape_is_refused_in_words(tmp_path: Path) -> None:
    state = {name: torch.tensor(0.0) for name in plain().state_dict()}
    assert "of another shape: conv1.weight () instead of (8, 3, 7, 7)" in message(
        ours(), saved(tmp_path / "weights.pth", state)
    )
