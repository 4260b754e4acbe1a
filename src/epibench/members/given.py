"""Pools of models that were trained elsewhere: each one a member, or several passes of each with its own dropout, or
several views of each image."""

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
    """A model as it was given. open: loads it, as a module or anything that can be called.

    name: what to call it in messages; fingerprint: of everything that decides what it predicts, None where that cannot
    be known; classes: those that it says it predicts; facts: what is to be said of it in results; convention: the
    default for its metrics.
    """

    name: str
    open: Callable[[], Any]
    read_as: ModelFormat
    fingerprint: str | None = None
    classes: ClassTable | None = None
    facts: Mapping[str, Any] | None = None
    convention: Convention = "pooled"
    in_python: bool = False  # an object of the user's, and no text
    module: nn.Module | None = None  # an object of the user's, which is to be left as it was


@dataclass
class GivenPool(ImagePool):
    """Members that are given models: each by itself, or passes of each with its dropout, or views of each image.

    passes: of each model with dropout, 0 for none; the masks are a function of (seed, model, pass, image). rate: of
    all dropout, None for what the model has.
    """

    in_parallel: ClassVar[bool] = False  # a model may keep something between its layers

    models: Sequence[GivenModel]
    _: KW_ONLY
    passes: int = 0
    rate: float | None = None
    classes: bool = False  # whether models predict classes, also where they only rank

    def shares(self, member: Member) -> Member:
        """All members of a model share it."""
        return Member(member.network, 0)

    def plain_network(self) -> nn.Module:
        """The first model."""
        return self.network(self.table.members[0])

    def num_bytes(self, member: Member) -> int:
        """What its parameters and buffers take up, where it has any that we see."""
        return module_bytes(self.network(member))

    def load_network(self, member: Member) -> nn.Module:
        """The model, opened."""
        given = self.models[member.network]
        model = given.open()
        network = GivenNetwork(model, self.kind, given.read_as, given.name, self.classes, given.in_python)
        return network.to(self.device).eval()

    def passing(self, member: Member, images: range) -> AbstractContextManager[object]:
        """With the dropout of the model, in its passes."""
        if not self.passes:
            return nullcontext()
        return SeededDropout(pass_keys(self.seed, "given", [member], images, self.device)[0], self.rate)

    def predict(self, member: Member, network: nn.Module, inputs: Inputs) -> Outputs:
        """What the model makes of the member's view."""
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
    """The memory that parameters and buffers take up."""
    return sum(int(each.nbytes) for each in (*module.parameters(), *module.buffers()))


def given_members(num_models: int, each: int = 1) -> MemberTable:
    """One member of each model, or so many passes or views of it, which are drawn in their order."""
    members = tuple(Member(model, 0, number) for model in range(num_models) for number in range(each))
    plan: Plan = "random" if each == 1 else "prefix"
    return MemberTable(members, plan, None if each == 1 else tuple(member.network for member in members))


def check_dropout(network: nn.Module, inputs: Inputs, name: str, rate: float | None) -> None:
    """Refuse passes of a model whose dropout never acts: they would all be the same."""
    images = len(next(iter(inputs.values())))
    device = next(iter(inputs.values())).device
    with torch.inference_mode(), SeededDropout(torch.arange(images, device=device), rate) as mode:
        network(inputs)
        calls = mode.calls
    if not calls:
        raise InputError(f"{name}: no dropout acts in it, all its passes would be alike; leave out MC-dropout")
