"""Pools of given models: each one a member, or several dropout passes or views of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from epibench.conventions import Convention
from epibench.data.classes import ClassTable
from epibench.errors import InputError
from epibench.imported import error_in_words
from epibench.members.formats import GivenNetwork, ModelFormat
from epibench.members.networks import ImagePool, Inputs, Outputs, pass_keys
from epibench.members.views import mapped_back, seen
from epibench.methods.contract import Member, MemberTable
from epibench.networks.dropout import SeededDropout
from epibench.plans import Plan


@dataclass(frozen=True)
class GivenModel:
    """A given model.

    Args:
        name: Name in messages.
        open: Loads the model, as a module or another callable.
        read_as: Format of the model.
        fingerprint: Fingerprint of everything that decides its predictions; None if unknown.
        classes: Its declared classes.
        facts: Facts for results.
        convention: Default convention of its metrics.
        in_python: Whether it is a Python object, not a text.
        module: A user's module, whose mode is restored afterwards.
    """

    name: str
    open: Callable[[], Any]
    read_as: ModelFormat
    fingerprint: str | None = None
    classes: ClassTable | None = None
    facts: Mapping[str, Any] | None = None
    convention: Convention = "pooled"
    in_python: bool = False  # a Python object, not a text
    module: nn.Module | None = None  # an object of the user's, which is to be left as it was


@dataclass
class GivenPool(ImagePool):
    """Members that are given models: plain, or dropout passes or views of each.

    Args:
        models: The models.
        passes: Passes of each model with dropout, 0 for none. Masks are a function of (seed, model, pass, image).
        rate: Rate of all dropout; None: the model's own rate.
        classes: Whether models predict classes, also if they only rank.
    """

    in_parallel: ClassVar[bool] = False  # a model may keep state between its layers

    models: Sequence[GivenModel]
    _: KW_ONLY
    passes: int = 0
    rate: float | None = None
    classes: bool = False  # also if models only rank

    def shares(self, member: Member) -> Member:
        """Return the member of the shared model."""
        return Member(member.network, 0)

    def plain_network(self) -> nn.Module:
        """Return the first model."""
        return self.network(self.table.members[0])

    def num_bytes(self, member: Member) -> int:
        """Return the bytes of its parameters and buffers, if any are visible."""
        return module_bytes(self.network(member))

    def load_network(self, member: Member) -> nn.Module:
        """Open the model."""
        given = self.models[member.network]
        model = given.open()
        network = GivenNetwork(model, self.kind, given.read_as, given.name, self.classes, given.in_python)
        return network.to(self.device).eval()

    def passing(self, member: Member, images: range) -> AbstractContextManager[object]:
        """Return a context with the model's dropout, in its passes."""
        if not self.passes:
            return nullcontext()
        return SeededDropout(pass_keys(self.seed, "given", [member], images, self.device)[0], self.rate)

    def predict(self, member: Member, network: nn.Module, inputs: Inputs) -> Outputs:
        """Return the model's prediction for the member's view."""
        view = self.view(member)
        inputs = seen(view, inputs)
        try:
            outputs: Outputs = network(inputs)
        except InputError:
            raise
        except Exception as error:
            shapes = ", ".join(f"{name} {tuple(values.shape)}" for name, values in inputs.items())
            name = self.models[member.network].name
            raise InputError(f"{name}: fails on an image ({shapes}): {error_in_words(error)}") from None
        return mapped_back(view, outputs)


def module_bytes(module: nn.Module) -> int:
    """Return the memory of parameters and buffers in bytes."""
    return sum(int(each.nbytes) for each in (*module.parameters(), *module.buffers()))


def given_members(num_models: int, each: int = 1) -> MemberTable:
    """Return one member of each model, or `each` passes or views of it in fixed order."""
    members = tuple(Member(model, 0, number) for model in range(num_models) for number in range(each))
    plan: Plan = "random" if each == 1 else "prefix"
    return MemberTable(members, plan, None if each == 1 else tuple(member.network for member in members))


def check_dropout(network: nn.Module, inputs: Inputs, name: str, rate: float | None) -> None:
    """Raise an InputError if the model's dropout never acts, so that all passes would be equal."""
    images = len(next(iter(inputs.values())))
    device = next(iter(inputs.values())).device
    with torch.inference_mode(), SeededDropout(torch.arange(images, device=device), rate) as mode:
        network(inputs)
        calls = mode.calls
    if not calls:
        raise InputError(f"{name}: no dropout acts in it, all its passes would be alike; leave out MC-dropout")
