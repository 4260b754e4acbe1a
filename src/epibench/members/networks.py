"""Pools of large networks on images: weights are files, and as many as fit are on the device."""

from __future__ import annotations

import copy
import itertools
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from epibench import randomness
from epibench.errors import InputError
from epibench.interpolation import aligned_corners
from epibench.likelihoods import LIKELIHOODS
from epibench.members.compiled import OPTIONS, PLAIN, CompiledNetwork, Speed, check_equal, failure, negative
from epibench.members.maps import Size, Window, WindowMaps, joined, whole, windows_over
from epibench.members.pool import Pool
from epibench.members.views import mapped_back, seen
from epibench.methods.contract import Member, MemberTable
from epibench.networks.dropout import SeededDropout, insert_dropout
from epibench.networks.resnet import fold_batch_norm
from epibench.networks.shaping import shape_like
from epibench.networks.stages import DropoutPasses, Parts, Staged, State, first_modules, repeated
from epibench.parallel import in_threads
from epibench.plans import consecutive
from epibench.training.state import Weights
from epibench.views import IDENTITY, View

Inputs = Mapping[str, Tensor]
Outputs = dict[str, Tensor]
PASS_PIXELS = 2**21  # a GPU runs passes of one network together up to this number of pixels


@dataclass
class ImagePool(Pool, ABC):
    """Members that are networks on images, each with its own weights or as one of several passes.

    Args:
        kind: Kind of the predictions.
        table: Table of members.
        seed: Seed of dropout masks.
        resident: Largest number of networks on the device.
        device: Device of the networks.
        precision: With bfloat16, networks predict in mixed precision.
        window: Size of the windows that networks see one at a time; None: the whole image.
        overlap: Share of their sides that neighbouring windows have in common.
        views: Views of a network's members, by their numbers; empty: plain images.
    """

    kind: str
    table: MemberTable
    _: KW_ONLY
    seed: int = 0
    resident: int = 64
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    precision: torch.dtype = torch.float32
    window: Size | None = None
    overlap: float = 0.0
    views: tuple[View, ...] = ()
    in_parallel: ClassVar[bool] = True  # whether several passes of one network can run at once
    _networks: OrderedDict[Member, nn.Module] = field(default_factory=OrderedDict, init=False)

    @abstractmethod
    def load_network(self, member: Member) -> nn.Module:
        """Return the network of a member on the device, ready to predict."""

    @abstractmethod
    def plain_network(self) -> nn.Module:
        """Return an unchanged network on the device, whose parameters can be counted."""

    @abstractmethod
    def num_bytes(self, member: Member) -> int:
        """Return the memory of the weights of a member's network in bytes."""

    @abstractmethod
    def shares(self, member: Member) -> Member:
        """Return the member whose network this member shares. Passes of one network share theirs."""

    def passing(self, member: Member, images: range) -> AbstractContextManager[object]:
        """Return the context of a member's prediction, e.g. of a dropout pass. `images`: indices in the data set."""
        return nullcontext()

    def predict(self, member: Member, network: nn.Module, inputs: Inputs) -> Outputs:
        """Return a member's prediction by name, (image, …, row, column), possibly on a coarse grid."""
        view = self.view(member)
        raw = network(seen(view, inputs))
        return mapped_back(view, LIKELIHOODS[self.kind].image_outputs(raw.float()))

    def view(self, member: Member) -> View:
        """Return a member's view of images."""
        return self.views[member.number] if self.views else IDENTITY

    def resident_slices(self, members: slice) -> Iterator[slice]:
        """Yield slices of members whose networks fit onto the device together."""
        start, networks = members.start, set[Member]()
        for number in range(members.start, members.stop):
            loaded = self.shares(self.table.members[number])
            networks.add(loaded)
            if len(networks) > self.resident:
                yield slice(start, number)
                start, networks = number, {loaded}
        yield slice(start, members.stop)

    def slices_of(self, drawn: Sequence[int]) -> Iterator[slice]:
        """Yield the members of a draw in such slices. Neighbours compute their common part once."""
        for numbers in consecutive(drawn):
            yield from self.resident_slices(slice(numbers.start, numbers.stop))

    def weight_bytes(self, drawn: Sequence[int]) -> int:
        """Return the memory of members' weights during prediction; shared tensors count once."""
        total = 0
        for part in self.slices_of(drawn):
            networks = [self.network(member) for member in self.table.members[part]]
            tensors = (each for network in networks for each in (*network.parameters(), *network.buffers()))
            total += sum({each.data_ptr(): each.nbytes for each in tensors}.values())
        return total

    def windows(self, size: Size) -> tuple[Window, ...]:
        """Return the windows of an image of this size."""
        return whole(size) if self.window is None else windows_over(size, self.window, self.overlap)

    def outputs(self, inputs: Inputs, members: slice, images: range, size: Size | None = None) -> WindowMaps:
        """Return the predictions of members.

        Args:
            inputs: Inputs by name.
            members: Members to run.
            images: Indices of the images in the data set, so that dropout does not depend on batches.
            size: Size of the targets; by default the size of the images.
        """
        chosen = self.table.members[members]
        self.load_all(chosen)  # before threads begin
        size = size or image_size(inputs)
        windows = self.windows(size)
        if len(windows) > 1 and any(values.shape[-2:] != size for values in inputs.values()):
            raise InputError("window: inputs are not of the size of the target, and cannot be cut alike; leave it out")
        parts = [inputs] if len(windows) == 1 else [cut(inputs, window) for window in windows]
        by_window = [self.predictions(chosen, part, images) for part in parts]

        def maps_of(member: Member, outputs: Sequence[Outputs]) -> WindowMaps:
            values = {name: by_windows([each[name] for each in outputs])[None] for name in outputs[0]}
            return WindowMaps(size, windows, values, aligned_corners(self.network(member)))

        return joined([maps_of(*each) for each in zip(chosen, zip(*by_window, strict=True), strict=True)])

    def predictions(self, members: Sequence[Member], inputs: Inputs, images: range) -> list[Outputs]:
        """Return each member's predictions for a window of images."""

        def predict(task: tuple[Member, nn.Module]) -> Outputs:
            member, network = task
            with self.predicting(), self.passing(member, images):
                return contiguous(self.predict(member, network, inputs))

        tasks = [(member, self.network(member)) for member in members]
        at_once = self.in_parallel and self.device.type == "cpu"
        return in_threads(predict, tasks) if at_once else [predict(task) for task in tasks]

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Run networks operation by operation, so that operations can be counted."""
        yield

    @contextmanager
    def predicting(self) -> Iterator[None]:
        """Predict without gradients, in the pool's precision. The context acts on its thread."""
        autocast = torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32)
        with torch.inference_mode(), autocast:
            yield

    def load_all(self, members: Sequence[Member]) -> None:
        """Load the networks that are not on the device."""
        for member in members:
            self.network(member)

    def forget(self) -> None:
        """Free the memory of all networks."""
        self._networks.clear()

    def network(self, member: Member) -> nn.Module:
        """Return the network of a member, loaded if needed."""
        name = self.shares(member)
        if name not in self._networks:
            self.make_room(1)
            self._networks[name] = self.load_network(name)
        self._networks.move_to_end(name)
        return self._networks[name]

    def keep_within(self, memory: float) -> None:
        """Set the number of networks on the device: as many as fit into this memory, at least one."""
        self.resident = max(1, int(memory / max(1, self.num_bytes(self.table.members[0]))))

    def make_room(self, number: int) -> None:
        """Remove the least recently used networks until `number` more fit on the device."""
        while self._networks and len(self._networks) + number > self.resident:
            self._networks.popitem(last=False)


@dataclass
class NetworkPool(ImagePool):
    """Members that are networks trained here, their snapshots, or their dropout passes.

    Masks of a pass are a function of (seed, method, network, pass, image). Passes of one network share the part before
    the first dropout.

    Args:
        build: Returns a network.
        load: Returns the weights of a member.
        method: Name of the method, for dropout masks.
        rate: Dropout rate; 0 for none.
        shared_stages: Returns, from the names of the network's stages, how many first stages members of one trained
            network share. These are loaded once, and computed once for an image.
        pruned: Whether members may have fewer channels than built networks.
        speed: Whether networks are compiled or recorded. The first ones are then compared with the plain network.
        loaded_at_once: Number of files that are read in parallel.
    """

    build: Callable[[], nn.Module]
    load: Callable[[Member], Weights]
    method: str
    rate: float = 0.0
    _: KW_ONLY
    shared_stages: Callable[[Sequence[str]], int] = lambda names: 0
    pruned: bool = True
    speed: Speed = PLAIN
    loaded_at_once: int = 1
    compiled: CompiledNetwork | None = field(default=None, init=False)  # after its check

    def shares(self, member: Member) -> Member:
        """Return the member whose network is shared: passes and views share one."""
        return Member(member.network, member.snapshot) if self.rate or self.views else member

    def plain_network(self) -> nn.Module:
        """Return a network with the sizes of the members, without their weights."""
        return shape_like(self.build(), self.sizes).to(self.device).eval()

    def num_bytes(self, member: Member) -> int:
        """Return the bytes of a network; all have the same sizes."""
        return sum(int(each.nbytes) for each in self.sizes.values())

    @cached_property
    def sizes(self) -> Weights:
        """The shapes and types of every member's weights."""
        if not self.pruned:
            return self.skeleton.state_dict()
        first = self.shares(self.table.members[0])
        return {name: each.to("meta") for name, each in self.load(first).items()}

    @cached_property
    def skeleton(self) -> nn.Module:
        """A built network. With stages, its weights take no memory."""
        network = self.build()
        return without_weights(network) if isinstance(network, Staged) else network

    @cached_property
    def trunk(self) -> int:
        """The number of first stages that members of one trained network share."""
        return self.shared_stages(list(self.skeleton.stages())) if isinstance(self.skeleton, Staged) else 0

    @property
    def splits(self) -> bool:
        """Whether the passes of a network share a part of it."""
        return DropoutPasses.of(self.skeleton, self.rate) is not None

    def passing(self, member: Member, images: range) -> AbstractContextManager[object]:
        """Return the context of dropout, if the method has any."""
        if not self.rate:
            return nullcontext()
        keys = pass_keys(self.seed, self.method, [member], images, self.device)[0]
        # A network with named places has hooks with the rate, and only they act; otherwise its own dropout
        # acts at this rate.
        places = getattr(next(iter(self._networks.values())), "dropout_places", ())
        return SeededDropout(keys, by_mode=True) if places else SeededDropout(keys, self.rate)

    def load_all(self, members: Sequence[Member]) -> None:
        """Load the networks that are not on the device, several in parallel."""
        wanted = dict.fromkeys(map(self.shares, members))
        missing = [name for name in wanted if name not in self._networks][: self.resident]
        if self.loaded_at_once > 1 and len(missing) > 1:
            _ = self.skeleton  # made once, not by each thread
            for name in wanted.keys() & self._networks.keys():
                self._networks.move_to_end(name)
            self.make_room(len(missing))
            with ThreadPoolExecutor(self.loaded_at_once) as executor:
                self._networks.update(zip(missing, executor.map(self.load_network, missing), strict=True))
        super().load_all(members)

    def load_network(self, member: Member) -> nn.Module:
        """Return a new network with the weights of a member."""
        empty, weights = isinstance(self.skeleton, Staged), dict(self.load(member))
        network = shape_like(copy.deepcopy(self.skeleton) if empty else self.build(), weights)
        try:
            network.load_state_dict(weights, assign=empty)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f"{self.method}: the weights of network {member.network} do not fit ({reason})") from None
        self._share_trunk(member, network)
        network.to(self.device).eval().requires_grad_(False)
        if self.device.type == "cuda":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if self.rate and (places := getattr(network, "dropout_places", ())):
            hooks = insert_dropout(network, places, self.rate)
            for hook in hooks if self.splits else ():  # they have checked that the places exist
                hook.remove()
        if self.precision == torch.float32:  # in mixed precision it gains nothing
            fold_batch_norm(network)
        return network

    def _share_trunk(self, member: Member, network: nn.Module) -> None:
        """Let a network use the first stages of a loaded network of the same training.

        This happens only if members share these stages.
        """
        others = (each for other, each in list(self._networks.items()) if same_network(other) == same_network(member))
        if self.trunk and (loaded := next(others, None)) is not None:
            assert isinstance(network, Staged)
            for name in first_modules(network, self.trunk):
                network.set_submodule(name, loaded.get_submodule(name))

    def predictions(self, members: Sequence[Member], inputs: Inputs, images: range) -> list[Outputs]:
        """Return each member's predictions for a window of images."""
        if not self.speed.any and not self.splits and not self.trunk:
            return super().predictions(members, inputs, images)
        sharing = same_network if self.trunk else self.shares
        groups = [list(group) for _, group in itertools.groupby(members, sharing)]
        if self.speed.any and self.compiled is None:
            self.compiled = self._tried(groups[0], inputs, images)
        return [outputs for group in groups for outputs in self._of_network(group, inputs, images, self.compiled)]

    @contextmanager
    def uncompiled(self) -> Iterator[None]:
        """Use the plain networks within the context."""
        compiled, speed = self.compiled, self.speed
        self.compiled, self.speed = None, PLAIN
        try:
            yield
        finally:
            self.compiled, self.speed = compiled, speed

    def _tried(self, group: Sequence[Member], inputs: Inputs, images: range) -> CompiledNetwork:
        """Return the compiled network, after a comparison of its first predictions with the plain network's."""
        if self.rate and not self.splits:
            raise InputError(
                f"{OPTIONS}: {self.method} drops within the stages of this network, or it has none, and such passes "
                "cannot be compiled (docs/networks.md); leave these options out"
            )
        # A recording that does nothing still holds its first outputs: only other inputs reveal that.
        tried = {"the first image": inputs, "the negative of the first image": negative(inputs)}
        plain = [self._of_network(group, given, images, None) for given in tried.values()]
        try:
            compiled = CompiledNetwork.like(self.network(group[0]), self.rate, self.speed, self.trunk)
            found = [self._of_network(group, given, images, compiled) for given in tried.values()]
        except (InputError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # compilers raise any exception
            raise failure(error) from error
        for image, fast, expected in zip(tried, found, plain, strict=True):
            for own, others in zip(fast, expected, strict=True):
                check_equal(own, others, self.precision, image)
        return compiled

    def _of_network(
        self, members: Sequence[Member], inputs: Inputs, images: range, compiled: CompiledNetwork | None
    ) -> list[Outputs]:
        """Return the predictions of members that share a network or a part of it."""
        if self.trunk:
            return self._of_trunk(members, inputs, compiled)
        name = self.shares(members[0])
        network = self.network(name)
        if compiled is not None:
            compiled.hold(name, network)
        if self.rate:
            return self._of_passes(network, members, inputs, images, compiled)
        return self._of_views(compiled.forward if compiled else network, members, inputs)

    def _of_views(
        self, forward: Callable[[Inputs], Tensor], members: Sequence[Member], inputs: Inputs
    ) -> list[Outputs]:
        """Return one network's predictions for the views of its members."""
        views = [self.view(member) for member in members]
        given = [seen(view, inputs) for view in views]  # as inputs are made elsewhere: else it compiles once more
        with self.predicting():
            raw = [self._outputs(forward(each)) for each in given]
            return [mapped_back(view, outputs) for view, outputs in zip(views, raw, strict=True)]

    def _of_passes(
        self,
        network: nn.Module,
        members: Sequence[Member],
        inputs: Inputs,
        images: range,
        compiled: CompiledNetwork | None,
    ) -> list[Outputs]:
        """Return predictions of dropout passes of one network, which share the part before the first dropout."""
        passes = compiled or DropoutPasses.of(network, self.rate)
        assert passes is not None
        keys = pass_keys(self.seed, self.method, members, images, self.device)

        def share(given: Inputs) -> State:
            with self.predicting():
                return passes.shared(given)

        def go_on(several: Tensor) -> list[Outputs]:
            with self.predicting():
                outputs = self._outputs(passes.rest(repeated(state, len(several)), several.flatten()))
            split = {key: values.view(*several.shape, *values.shape[1:]) for key, values in outputs.items()}
            return [{key: values[number] for key, values in split.items()} for number in range(len(several))]

        alone = self.device.type != "cpu" or compiled is not None
        state = share(inputs) if alone else in_threads(share, [inputs])[0]
        batched = keys.view(-1, self._passes_at_once(len(members), inputs), len(images)).unbind()
        done = [go_on(each) for each in batched] if alone else in_threads(go_on, batched)
        return [outputs for each in done for outputs in each]

    def _of_trunk(self, members: Sequence[Member], inputs: Inputs, compiled: CompiledNetwork | None) -> list[Outputs]:
        """Return predictions of members with common first stages, which are computed once."""
        networks = {member: self.network(member) for member in members}  # before threads start

        def parts_of(member: Member) -> Parts | CompiledNetwork:
            network = networks[member]
            if compiled is None:
                assert isinstance(network, Staged)
                return Parts.of(network, self.trunk)
            compiled.hold(member, network)
            return compiled

        def share(given: Inputs) -> State:
            with self.predicting():
                state: State = parts_of(members[0]).shared(given)
                return state

        def go_on(member: Member) -> Outputs:
            with self.predicting():
                return self._outputs(parts_of(member).rest(state))

        if self.device.type != "cpu" or compiled is not None:
            state = share(inputs)
            return [go_on(member) for member in members]
        (state,) = in_threads(share, [inputs])
        return in_threads(go_on, members)

    def _passes_at_once(self, passes: int, inputs: Inputs) -> int:
        """Return the passes in one batch: a divisor of all passes, so that batches have one size."""
        height, width = image_size(inputs)
        pixels = len(next(iter(inputs.values()))) * height * width
        most = max(1, PASS_PIXELS // pixels) if self.device.type == "cuda" else 1
        return max(number for number in range(1, passes + 1) if passes % number == 0 and number <= most)

    def _outputs(self, raw: Tensor) -> Outputs:
        return contiguous(LIKELIHOODS[self.kind].image_outputs(raw.float()))


def by_windows(outputs: Sequence[Tensor]) -> Tensor:
    """Join outputs on several windows, (image, …) each, to (image, window, …); one window is not copied."""
    return outputs[0][:, None] if len(outputs) == 1 else torch.stack(list(outputs), 1)


def same_network(member: Member) -> tuple[int, int]:
    """Return the trained network behind a member, and the index of its kept weights."""
    return member.network, member.snapshot


def contiguous(outputs: Outputs) -> Outputs:
    """Return the outputs with memory in the order of their axes."""
    return {name: values.contiguous() for name, values in outputs.items()}


def without_weights(network: nn.Module) -> nn.Module:
    """Remove the memory of a network's parameters and saved buffers, for loading by assignment."""
    for module in network.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = nn.Parameter(parameter.to("meta"), requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                module._buffers[name] = buffer.to("meta")
    return network


def pass_keys(seed: int, method: str, members: Sequence[Member], images: range, device: torch.device) -> Tensor:
    """Return the keys of the dropout masks of passes, (pass, image)."""
    named = [(method, member.network, "pass", member.number) for member in members]
    keys = [[randomness.key(seed, *names, image) for image in images] for names in named]
    return torch.tensor(keys, dtype=torch.int64).to(device, non_blocking=True)


def image_size(inputs: Inputs) -> Size:
    """Return height and width of the images."""
    height, width = next(iter(inputs.values())).shape[-2:]
    return height, width


def cut(inputs: Inputs, window: Window) -> Inputs:
    """Return a window of every image."""
    rows = slice(window.top, window.top + window.height)
    columns = slice(window.left, window.left + window.width)
    return {name: values[..., rows, columns] for name, values in inputs.items()}
