"""BatchEnsemble (Wen, Tran, Ba 2020): many members in one network, with vectors around every layer.

Member j has the weights W ∘ s_j r_jᵀ. Only W is shared: a layer's inputs are multiplied by r_j, its outputs by s_j, and
each member has its own biases. A batch is split into consecutive parts, one for each member, so that all members run in
one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from epibench.errors import InputError

LAYERS = (nn.Conv2d, nn.ConvTranspose2d, nn.Linear)
CALLED = "called_for_members"
# Vectors along the first and the second axis of a layer's weight, and biases, of all members one after another. They
# are flat, so that weight decay does not act on them, as on all scales and biases.
ROWS, COLUMNS, BIAS = "member_rows", "member_columns", "member_bias"


def random_signs(size: int) -> Tensor:
    """Return 1 or −1, each with probability ½."""
    return torch.randint(0, 2, (size,)) * 2.0 - 1


def around_one(size: int, deviation: float) -> Tensor:
    """Return normal numbers with mean 1; all 1 without a deviation."""
    return 1 + deviation * torch.randn(size)


def share_among(network: nn.Module, members: int, draw: Callable[[int], Tensor]) -> nn.Module:
    """Let a network hold several members, in place.

    Every layer keeps its weight, which members share, and gets vectors for each member. Biases start as copies of the
    layer's. Batch norm is shared. Only called layers get vectors: attention that reads its last layer's weight directly
    shares this layer.

    Args:
        network: Network to change.
        members: Number of members.
        draw: Returns a number of initial entries of vectors.
    """
    for layer in network.modules():
        if isinstance(layer, LAYERS) and not isinstance(layer, NonDynamicallyQuantizableLinear):
            _share(layer, members, draw)
    return network


def _share(layer: nn.Conv2d | nn.ConvTranspose2d | nn.Linear, members: int, draw: Callable[[int], Tensor]) -> None:
    weight, groups = layer.weight, getattr(layer, "groups", 1)
    for name, size in ((ROWS, weight.shape[0]), (COLUMNS, weight.shape[1] * groups)):
        layer.register_parameter(name, nn.Parameter(draw(members * size).to(weight)))
    if layer.bias is not None:
        layer.register_parameter(BIAS, nn.Parameter(layer.bias.detach().repeat(members)))
        layer.register_parameter("bias", None)
    sides = (ROWS, COLUMNS) if isinstance(layer, nn.ConvTranspose2d) else (COLUMNS, ROWS)
    axis = -1 if isinstance(layer, nn.Linear) else 1
    if weight.requires_grad:
        weight.register_hook(partial(_check_called, layer))  # type: ignore[no-untyped-call]
    layer.register_forward_pre_hook(partial(_before, vectors=sides[0], members=members, axis=axis))
    layer.register_forward_hook(partial(_after, vectors=sides[1], members=members, axis=axis))


def _check_called(layer: nn.Module, _: Tensor) -> None:
    """Raise an error for a layer whose weight is trained without calling the layer: members would share it."""
    if not getattr(layer, CALLED, False):
        raise InputError(
            f"BatchEnsemble: the network takes the weight of {layer} without calling it, so that members cannot have "
            f"vectors there; call the layer, or take another method"
        )


def _before(layer: nn.Module, inputs: tuple[Any, ...], *, vectors: str, members: int, axis: int) -> tuple[Any, ...]:
    values, *others = inputs
    setattr(layer, CALLED, True)
    return (values * _by_image(getattr(layer, vectors), values, members, axis), *others)


def _after(layer: nn.Module, _: Any, values: Tensor, *, vectors: str, members: int, axis: int) -> Tensor:
    scaled = values * _by_image(getattr(layer, vectors), values, members, axis)
    bias = getattr(layer, BIAS, None)
    return scaled if bias is None else scaled + _by_image(bias, values, members, axis)


def _by_image(vectors: Tensor, values: Tensor, members: int, axis: int) -> Tensor:
    """Return the vector of each image's member, along an axis of values."""
    each, rest = divmod(len(values), members)
    if rest:
        raise InputError(
            f"a batch of {len(values)} images cannot be shared among the {members} members of one network; let "
            f"batch_size be a multiple of {members}"
        )
    shape = [1] * values.dim()
    shape[0], shape[axis] = len(values), -1
    by_member = vectors.view(members, 1, -1).to(values.dtype)
    return by_member.expand(-1, each, -1).reshape(shape)


def member_weights(weights: Mapping[str, Tensor], members: int, number: int) -> dict[str, Tensor]:
    """Return the weights of one member as a plain network."""
    plain = dict[str, Tensor]()
    for name, values in weights.items():
        layer, dot, kind = name.rpartition(".")
        if kind == BIAS:
            plain[f"{layer}{dot}bias"] = values.view(members, -1)[number]
        elif kind == "weight" and layer + dot + ROWS in weights:
            rows, columns = (weights[layer + dot + each].view(members, -1)[number] for each in (ROWS, COLUMNS))
            plain[name] = values * _outer(rows, columns, values.shape)
        elif kind not in (ROWS, COLUMNS):
            plain[name] = values
    return plain


def _outer(rows: Tensor, columns: Tensor, shape: torch.Size) -> Tensor:
    """Return rows · columnsᵀ in the shape of a weight.

    The weight's second axis has the columns of one group of rows.
    """
    groups = len(columns) // shape[1]
    product = rows.view(groups, -1, 1) * columns.view(groups, 1, -1)
    return product.reshape(shape[0], shape[1], *[1] * (len(shape) - 2))
