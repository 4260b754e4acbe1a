"""Pools of large networks: members whose weights are files, as many of them on the device as fit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from epibench import randomness
from epibench.errors import InputError
from epibench.likelihoods import LIKELIHOODS
from epibench.members.draws import Plan
from epibench.members.maps import Size, Window, WindowMaps, whole, windows_over
from epibench.methods.contract import Member, Roll
from epibench.networks.dropout import SeededDropout, insert_dropout
from epibench.networks.folding import fold_batch_norm
from epibench.parallel import in_threads

Inputs = Mapping[str, Tensor]
Weights = Mapping[str, Tensor]


@dataclass
class NetworkPool:
    """Members that are trained networks, snapshots of them, or passes of them with dropout.

    load: the weights of a member's network and snapshot. rate: of dropout, 0 for none; the masks of a pass are a
    function of (seed, method, network, pass, image). resident: so many networks are kept on the device at once. With
    a `precision` of bfloat16 they predict in mixed precision. window: the size of the parts of an image that networks
    see one at a time, None for all of it; overlap: the share of their sides that neighbours have in common.
    """

    kind: str
    build: Callable[[], nn.Module]
    load: Callable[[Member], Weights]
    roll: Roll
    seed: int
    method: str
    rate: float = 0.0
    resident: int = 64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: torch.dtype = torch.float32
    window: Size | None = None
    overlap: float = 0.0
    _networks: OrderedDict[tuple[int, int], nn.Module] = field(default_factory=OrderedDict)

    @property
    def num_members(self) -> int:
        """Every pass of every snapshot of every network."""
        return len(self.roll.members)

    @property
    def group(self) -> tuple[int, ...] | None:
        """The network or chain behind each member."""
        return self.roll.group

    @property
    def plan(self) -> Plan:
        """How draws are made from it."""
        return self.roll.plan

    def groups(self, members: slice) -> Iterator[slice]:
        """Members in stretches whose networks fit onto the device together."""
        start, seen = members.start, set[tuple[int, int]]()
        for number in range(members.start, members.stop):
            member = self.roll.members[number]
            seen.add((member.network, member.snapshot))
            if len(seen) > self.resident:
                yield slice(start, number)
                start, seen = number, {(member.network, member.snapshot)}
        yield slice(start, members.stop)

    def weight_bytes(self, members: slice) -> int:
        """The memory that the weights of members take up; passes of one network share theirs."""
        distinct = {(member.network, member.snapshot) for member in self.roll.members[members]}
        weights = self.build().state_dict().values()
        return len(distinct) * sum(int(each.numel()) * int(each.element_size()) for each in weights)

    def windows(self, size: Size) -> tuple[Window, ...]:
        """The parts of an image of that size that networks see one at a time."""
        return whole(size) if self.window is None else windows_over(size, self.window, self.overlap)

    def outputs(self, inputs: Inputs, members: slice, images: range) -> WindowMaps:
        """What members predict; images: their numbers in the data set, so that dropout does not depend on batches."""
        chosen = self.roll.members[members]
        networks = [self._network(member) for member in chosen]  # loaded one after another, before threads begin
        size = image_size(inputs)
        windows = self.windows(size)
        tasks = list(zip(chosen, networks, strict=True))

        def predict(task: tuple[Member, nn.Module]) -> dict[str, Tensor]:
            found = [self._predict(*task, cut(inputs, window), images) for window in windows]
            return {name: torch.stack([each[name] for each in found], 1) for name in found[0]}

        found = in_threads(predict, tasks) if self.device.type == "cpu" else [predict(task) for task in tasks]
        return WindowMaps(size, windows, {name: torch.stack([each[name] for each in found]) for name in found[0]})

    def _predict(self, member: Member, network: nn.Module, inputs: Inputs, images: range) -> dict[str, Tensor]:
        mixed = self.precision != torch.float32
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, self.precision, enabled=mixed),
            self._dropout(member, images),
        ):
            raw = network(inputs)
        outputs = LIKELIHOODS[self.kind].image_outputs(raw.float())
        return {name: values.contiguous() for name, values in outputs.items()}

    def _dropout(self, member: Member, images: range) -> AbstractContextManager[object]:
        if not self.rate:
            return nullcontext()
        names = (self.method, member.network, "pass", member.dropout_pass)
        keys = torch.tensor([randomness.key(self.seed, *names, image) for image in images], device=self.device)
        # With places of its own the network has hooks that know the rate; otherwise its own dropout acts at it.
        return SeededDropout(keys, None if self.places else self.rate)

    @property
    def places(self) -> tuple[str, ...]:
        """After which modules dropout was inserted."""
        network = next(iter(self._networks.values()))
        return tuple(getattr(network, "dropout_places", ()))

    def _network(self, member: Member) -> nn.Module:
        name = (member.network, member.snapshot)
        if name in self._networks:
            self._networks.move_to_end(name)
            return self._networks[name]
        network = self.build()
        try:
            network.load_state_dict(dict(self.load(member)))
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f"{self.method}: the weights of network {member.network} do not fit ({reason})") from None
        network.to(self.device).eval().requires_grad_(False)
        if self.device.type == "cuda":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.rate and (places := getattr(network, "dropout_places", ())):
            insert_dropout(network, places, self.rate)
        if self.precision == torch.float32:  # in mixed precision it gains nothing
            fold_batch_norm(network)
        self._networks[name] = network
        while len(self._networks) > self.resident:
            self._networks.popitem(last=False)
        return network


def image_size(inputs: Inputs) -> Size:
    """Height and width of the images."""
    height, width = next(iter(inputs.values())).shape[-2:]
    return height, width


def cut(inputs: Inputs, window: Window) -> Inputs:
    """A window of every image."""
    rows = slice(window.top, window.top + window.height)
    columns = slice(window.left, window.left + window.width)
    return {name: values[..., rows, columns] for name, values in inputs.items()}
