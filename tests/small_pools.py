"""Methods by their names, and pools whose members are networks in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from epibench.members.compiled import Speed
from epibench.members.maps import WindowMaps, whole
from epibench.members.networks import NetworkPool
from epibench.methods import METHODS, Member, Method


def method_of(name: str, **options: Any) -> Method:
    """A method with its options."""
    return METHODS[name](**options)


def network_pool(
    method: Method,
    build: Callable[..., nn.Module],
    weights_of: Callable[[Member], Mapping[str, Tensor]],
    kind: str = "gaussian",
    backend: str | Callable[..., Any] | None = None,
    **options: Any,
) -> NetworkPool:
    """All members of a method. weights_of: the weights of a member; backend: of torch.compile, None not to compile."""
    options = {"rate": method.dropout, "views": method.member_views, "speed": Speed(backend), **options}
    return NetworkPool(kind, method.members(range(method.num_trained)), build, weights_of, method.name, **options)


def maps_of(size: tuple[int, int], values: Mapping[str, Tensor]) -> WindowMaps:
    """Outputs of members, (member, image, …, row, column), as a pool gives them."""
    return WindowMaps(size, whole(size), dict(values))
