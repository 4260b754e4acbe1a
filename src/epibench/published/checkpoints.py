"""Published checkpoints of Gustafsson, Danelljan and Schön (2020), loaded into our networks.

A checkpoint is a file of tensors with the authors' names, which identify the depth network or the segmentation network.
If our networks concatenate channels in another order, the channels of the weights are moved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from epibench.data.source import Task
from epibench.errors import InputError, some_of
from epibench.networks.resnet import STEM_NAMES, STEM_POSITIONS
from epibench.networks.weight_files import KEYS_SHOWN, check_fit, read_weights

PREFIX = "module."  # of DataParallel
# Our modules and the authors' names. In blocks, their `bn` is our `norm` and their `downsample` is our `shortcut`.
MODULES: Mapping[Task, Mapping[str, str]] = {
    "depth": {
        "image_stem": "conv1_img",
        "depth_stem": "conv1_d",
        **{f"encoder.{number}": f"conv{number + 2}" for number in range(5)},
        **{f"decoder.{number}": f"convt{5 - number}" for number in range(5)},
        "mean": "convtf_mean.0",
        "log_variance": "convtf_var.0",
    },
    "segmentation": {
        **{f"backbone.stem.{at}": name for at, name in zip(STEM_POSITIONS, STEM_NAMES["csail"], strict=True)},
        **{f"backbone.stages.{number}": f"layer{number + 1}" for number in range(4)},
        **{f"pyramid.branches.{number}": f"aspp.conv{number + 1}" for number in range(4)},
        "pyramid.mean": "aspp.conv_img",
        "pyramid.project": "aspp.conv_bn_dropout",
        "logits": "cls",
    },
}
# The authors' depth network concatenates its stems as (depth, image), ours as (image, depth). Identity shortcuts carry
# this order through the first stage to the layers that read its output. By our names: the axis of the channels,
# and the number of equal parts in it. The stems are the last two parts.
STEM_PARTS = {
    r"encoder\.(0\.\d|1\.0)\.(conv1|shortcut\.0)\.weight": (1, 2),
    r"encoder\.0\.\d\.(conv2\.weight|norm2\.(weight|bias|running_mean|running_var))": (0, 2),
    r"decoder\.4\.0\.weight": (0, 4),
    r"(mean|log_variance)\.weight": (1, 4),
}


def published_name(name: str, task: Task) -> str:
    """Return the authors' name of one of our tensors."""
    module = next(each for each in MODULES[task] if name.startswith(f"{each}."))
    return MODULES[task][module] + name.removeprefix(module).replace("norm", "bn").replace("shortcut", "downsample")


def read_checkpoint(path: Path) -> tuple[Task, dict[str, Tensor]]:
    """Return the task of a checkpoint, and its tensors by the authors' names without `module.`."""
    weights = read_weights(path)
    if all(name.startswith(PREFIX) for name in weights):
        weights = {name.removeprefix(PREFIX): tensor for name, tensor in weights.items()}
    known = {
        task: sum(name.startswith(tuple(f"{module}." for module in MODULES[task].values())) for name in weights)
        for task in get_args(Task)
    }
    task: Task = max(known, key=known.__getitem__)
    if known[task] <= len(weights) / 2:
        raise InputError(
            f"{path}: no checkpoint of the authors ({some_of(sorted(weights), KEYS_SHOWN) or 'it has no tensors'}); "
            "expected the depth network (conv1_d.0.weight …) or the segmentation network (aspp.conv1.0.weight …)"
        )
    return task, weights


def load_checkpoint(network: nn.Module, path: Path, task: Task) -> None:
    """Load a checkpoint of the task into our network of the published size."""
    found, weights = read_checkpoint(path)
    if found != task:
        raise InputError(f"{path}: a checkpoint of the {found} network; expected one of the {task} network")
    own = network.state_dict()
    names = {name: published_name(name, task) for name in own}
    expected = {names[name]: tensor for name, tensor in own.items()}
    check_fit(path, weights, expected, f"the published {task} network")
    network.load_state_dict(
        {name: reordered(name, weights.get(names[name], tensor), task) for name, tensor in own.items()}
    )


def reordered(name: str, tensor: Tensor, task: Task) -> Tensor:
    """Return the authors' tensor with its channels in our order. `name` is ours."""
    if task == "segmentation":  # image pooling comes first in the authors' network, last in ours
        return tensor.roll(-len(tensor), 1) if name == "pyramid.project.0.weight" else tensor
    for pattern, (axis, parts) in STEM_PARTS.items():
        if re.fullmatch(pattern, name):
            *before, depth, image = tensor.chunk(parts, axis)
            return torch.cat((*before, image, depth), axis)
    return tensor
