"""Pools whose members are networks in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from epibench.members.compiled import Speed
from epibench.members.networks import NetworkPool
from epibench.methods import Member, Method
from epibench.networks.deeplabv3 import DeepLabV3


def network_pool(
    method: Method,
    build: Callable[..., nn.Module],
    weights_of: Callable[[Member], Mapping[str, Tensor]],
    backend: str | Callable[..., Any] | None = None,
    **options: Any,
) -> NetworkPool:
    """All members of a method. weights_of: the weights of a member; backend: of torch.compile, None not to compile."""
    kind = "categorical" if getattr(build, "func", build) is DeepLabV3 else "gaussian"
    options = {"rate": method.dropout, "speed": Speed(backend), **options}
    return NetworkPool(kind, method.members(range(method.num_trained)), build, weights_of, method.name, **options)
