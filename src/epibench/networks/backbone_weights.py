"""Weights of a ResNet from a file that other software has written; nothing in the file is executed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from epibench.errors import InputError
from epibench.networks.resnet import BLOCKS, BOTTLENECKS, EXPANSION, ResNet

WRAPPERS = ("state_dict", "model")
PREFIXES = ("module.", "model.", "backbone.", "encoder.")
# What others call our stem's convolutions and batch norms, in order.
STEM_NAMES = {
    "torchvision": ("conv1", "bn1"),
    "csail": ("conv1", "bn1", "conv2", "bn2", "conv3", "bn3"),
    "timm": ("conv1.0", "conv1.1", "conv1.3", "conv1.4", "conv1.6", "bn1"),
}
STEM_PLACES = (0, 1, 3, 4, 6, 7)  # of those in ours, where ReLUs lie between
CLASSIFIER = "fc."
BOOKKEEPING = ("._tmp_running_mean", "._tmp_running_var", "._running_iter")  # of a synchronised batch norm
COUNTER = "num_batches_tracked"  # batch norm needs it only for averages over all batches
SHOWN = 3  # keys that a message names


def load_backbone(resnet: ResNet, path: str | Path) -> None:
    """Load the weights of a ResNet from a .safetensors file or a file of torch.save.

    Known are the names of torchvision and timm, and of a stem of three convolutions in timm's and the MIT CSAIL group's
    way; around them prefixes (`module.`, `backbone.` …) and wrappers (`state_dict`, `model`). A classifier is ignored.
    """
    path = Path(path).expanduser()
    found = _unprefixed(_read(path))
    if not any(name.startswith("layer1.0.") for name in found):
        raise InputError(
            f"{path}: no weights of a ResNet ({_listed(sorted(found))}); "
            "expected names as torchvision and timm have them: conv1.weight, bn1.weight, layer1.0.conv1.weight"
        )
    found = {
        name: tensor
        for name, tensor in found.items()
        if not name.startswith(CLASSIFIER) and not name.endswith(BOOKKEEPING)
    }
    own = resnet.state_dict()
    names = {name: _their_name(name, _stem_naming(found, resnet)) for name in own}
    _check_fit(path, found, {names[name]: tensor for name, tensor in own.items()}, resnet)
    resnet.load_state_dict({name: found.get(names[name], tensor) for name, tensor in own.items()})


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; backbone_weights names a .safetensors file or one of torch.save")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    while isinstance(content, Mapping):
        inner = next((content[name] for name in WRAPPERS if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            break
        content = inner
    if not isinstance(content, Mapping):
        raise InputError(f"{path}: holds a {type(content).__name__}, not tensors by name; save a state_dict")
    return {str(name): tensor for name, tensor in content.items() if isinstance(tensor, Tensor)}


def _read_safetensors(path: Path) -> object:
    try:
        return safetensors.torch.load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None


def _read_torch(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can raise anything
        needed = re.search(r"GLOBAL ([\w.]+)", str(error))
        if needed:
            raise InputError(
                f"{path}: needs {needed[1]} to be read, and nothing in a file is executed; "
                "save the tensors alone: torch.save(network.state_dict(), …)"
            ) from None
        reason = (str(error).splitlines() or [""])[0].strip()
        raise InputError(f"{path}: not a readable file of torch.save ({type(error).__name__}: {reason})") from None


def _unprefixed(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """Only what lies behind a prefix, where there is one: the rest belongs to other parts of a larger network."""
    while not any(name.startswith("layer1.") for name in found):
        prefix = next((each for each in PREFIXES if any(name.startswith(each) for name in found)), None)
        if prefix is None:
            break
        found = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}
    return found


def _stem_of(found: Mapping[str, Tensor]) -> str:
    """Whose names the stem in a file has."""
    if "conv1.0.weight" in found:
        return "timm"
    return "csail" if "conv3.weight" in found else "torchvision"


def _stem_naming(found: Mapping[str, Tensor], resnet: ResNet) -> str:
    """Whose names our stem has in terms of a file, also where the file's stem is another one."""
    if resnet.stem_kind == "single":
        return "torchvision"
    return "timm" if _stem_of(found) == "timm" else "csail"


def _their_name(name: str, stem_naming: str) -> str:
    """What others call a parameter of ours."""
    part, rest = name.split(".", 1)
    if part == "stem":
        place, kind = rest.split(".")
        return f"{STEM_NAMES[stem_naming][STEM_PLACES.index(int(place))]}.{kind}"
    stage, rest = rest.split(".", 1)
    return f"layer{int(stage) + 1}." + rest.replace("norm", "bn").replace("shortcut", "downsample")


def _check_fit(path: Path, found: Mapping[str, Tensor], expected: Mapping[str, Tensor], resnet: ResNet) -> None:
    """Every weight is there, in its shape, and no other, or an InputError."""
    shapes = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    missing = [name for name in expected if name not in found and not name.endswith(COUNTER)]
    unexpected = [name for name in found if name not in expected]
    kinds = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    problems = [f"{kind}: {_listed(keys)}" for kind, keys in kinds if keys]
    if problems:
        raise InputError(
            f"{path}: not the weights of {_described(resnet)}; {'; '.join((*_hints(found, resnet), *problems))}"
        )
    for name in expected:
        if name in found and not name.endswith(COUNTER) and not bool(torch.isfinite(found[name]).all()):
            raise InputError(f"{path}: {name} holds NaN or infinite values; the file is damaged")


def _hints(found: Mapping[str, Tensor], resnet: ResNet) -> list[str]:
    """What to set so that the file fits, as far as its keys and shapes tell."""
    hints = []
    stem = "single" if _stem_of(found) == "torchvision" else "triple"
    if stem != resnet.stem_kind:
        number = "one convolution" if stem == "single" else "three convolutions"
        hints.append(f"the file has a stem of {number}: set network.stem={stem}")
    bottleneck = "layer1.0.conv3.weight" in found
    blocks = tuple(len({name.split(".")[1] for name in found if name.startswith(f"layer{at}.")}) for at in range(1, 5))
    depths = [depth for depth in BLOCKS if BLOCKS[depth] == blocks and (depth in BOTTLENECKS) == bottleneck]
    if depths and depths[0] != resnet.depth:
        hints.append(f"the file holds a ResNet{depths[0]}: set network.depth={depths[0]}")
    last = found.get("layer1.0.conv3.weight" if bottleneck else "layer1.0.conv2.weight")
    width = 0 if last is None or last.dim() != 4 else len(last) // (EXPANSION if bottleneck else 1)
    if width and width != resnet.width:
        hints.append(f"the file has width {width}: set network.width={width}")
    if any(".downsample.2." in name for name in found):
        hints.append("the file is a ResNet-D, whose shortcuts average first: such weights cannot be used")
    return hints


def _described(resnet: ResNet) -> str:
    return f"a ResNet{resnet.depth} of width {resnet.width} with stem={resnet.stem_kind}"


def _listed(keys: Sequence[str]) -> str:
    """The first few, and how many more."""
    if not keys:
        return "it has no tensors"
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    return ", ".join(keys[:SHOWN]) + more
