"""One training job: all stacked networks of a method, or one large network, from the start or where it stopped."""

from __future__ import annotations

import atexit
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.func import functional_call
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from epibench import randomness, stopping
from epibench.data.augment import Augment, Colours
from epibench.data.batch import Points, Samples
from epibench.data.decoded import SHARE, DecodedMemory, DecodedSamples
from epibench.data.loading import InOrder, Stream, batches
from epibench.data.sets.toy import ToyProblem, make_toy
from epibench.data.shared_memory import can_share_memory
from epibench.errors import InputError
from epibench.files import fingerprint
from epibench.free_memory import free_memory
from epibench.likelihoods import LIKELIHOODS
from epibench.methods.contract import Method, TrainedNetwork
from epibench.methods.map import Direct
from epibench.networks.last_layer import LastLayers, last_layers_of
from epibench.networks.mlp import StackedMLP
from epibench.networks.shaping import shape_like
from epibench.parallel import silenced_torch_threads
from epibench.recipes import DenseRecipe, Recipe, ToyRecipe
from epibench.runs.checkpoints import MADE_ANEW, Checkpoints, OtherSettingsError, TensorFile, load_tensors, save_tensors
from epibench.runs.class_weights import class_weights
from epibench.runs.domains import classes_of
from epibench.runs.folder import locked
from epibench.runs.jobs import JobFailedError, Send, end_with
from epibench.runs.training_log import TrainingLog
from epibench.training import stacked
from epibench.training.network import NetworkKeys, NetworkTraining, train_network
from epibench.training.stacked import OBJECTIVES, Keys, StackedTraining
from epibench.training.state import DivergedError, LogRow, Pacer, StateMismatchError, TrainingState, Watch, Weights
from epibench.training.statistics import batch_norm_statistics

if TYPE_CHECKING:  # takes seconds to import, and toy problems and evaluations do without
    from lightning.fabric import Fabric

# The run itself says what it does, in all of its processes. Lightning sets levels of its packages when it is imported.
for _name in ("fabric.utilities.distributed", "fabric.utilities.rank_zero", "pytorch.utilities.rank_zero"):
    logging.getLogger(f"lightning.{_name}").setLevel(logging.WARNING)
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # that it stops processes beside a failed one

STACK = re.compile(r"(\d+)(?:-(\d+))?(?:\.\d+)?(\.unfinished)?\.safetensors")  # first and last of stacked networks
TOY_OUTPUTS = {"gaussian": 1, "categorical": 2, "direct": 1}


@dataclass(frozen=True)
class TrainJob:
    """What a process needs to know to train: plain data. networks: their numbers; device: `cpu` or `cuda:0`.

    decoded: where processes of this machine keep samples that are decoded (`DecodedMemory`).
    """

    recipe: Recipe
    method: str  # or the name of a variant
    networks: tuple[int, ...]
    members: Path
    device: str
    workers: int = 0
    decoded: DecodedMemory | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """How the names of files of networks begin that it goes on from, or starts from, below the run folder."""
        source, folder = self.recipe.method(self.method).source, self.members.name
        names = (self.method,) if source is None else (self.method, source)
        if not isinstance(self.recipe, DenseRecipe):  # files of stacked networks may begin with the number of others
            return tuple(f"{folder}/{name}/" for name in names)
        return tuple(f"{folder}/{name}/{network:04d}" for name in names for network in self.networks)

    def __str__(self) -> str:
        numbers = f"{self.networks[0]}-{self.networks[-1]}" if len(self.networks) > 1 else f"{self.networks[0]}"
        return f"{self.method}: network{'s' if len(self.networks) > 1 else ''} {numbers}"

    @cached_property
    def files(self) -> Checkpoints:
        """The files of the training."""
        recipe, method = self.recipe, self.recipe.method(self.method)
        if isinstance(recipe, DenseRecipe):
            version = recipe.data.train.version
        else:
            data = toy_problem(recipe).train
            version = fingerprint(data.inputs.numpy().tobytes(), data.target.numpy().tobytes())
        methods = [recipe.method(name) for name in (self.method, *recipe.sources(self.method))]
        names = [text for each in methods for text in (each.name, each.version)]
        key = fingerprint(recipe.training_settings(self.method), *names, self.networks, version)
        return Checkpoints(self.members / self.method, self.networks, key, method.keep)

    @property
    def ended(self) -> bool:
        """Whether it has ended, well or not, with all that its method fits afterwards."""
        return self.files.failure() is not None or (not self.unfitted and self.files.finished() is not None)

    @property
    def unfitted(self) -> list[int]:
        """The networks that the method has still to fit something to."""
        fits = self.recipe.method(self.method).fits
        return [network for network in self.networks if fits and not self.is_fitted(network)]

    @cached_property
    def posterior_key(self) -> str:
        """Of everything that decides what is fitted to trained networks: any option may."""
        options = self.recipe.method(self.method).model_dump(mode="json", exclude={"diverged"})
        return fingerprint(self.files.fingerprint, options)

    def is_fitted(self, network: int) -> bool:
        """Whether the method was fitted to a network with the options that it has now."""
        return self._fit(network) is not None

    def _fit(self, network: int) -> TensorFile | None:
        """The notes on what was fitted to a network with the options that the method has now."""
        try:
            return load_tensors(self.files.posterior(network), self.posterior_key, only_notes=True)
        except OtherSettingsError:
            return None

    @property
    def fitting_seconds(self) -> float:
        """What the method took to fit all that it fits after training."""
        fits = [self._fit(network) for network in self.networks] if self.recipe.method(self.method).fits else []
        return sum(fit.number("seconds") for fit in fits if fit is not None and "seconds" in fit.notes)


def stacks(folder: Path, number: int) -> list[tuple[int, ...]]:
    """The networks that are trained together: those that share files already, and all that are missing behind them."""
    ends: dict[int, int] = {}
    for match in filter(None, (STACK.fullmatch(path.name) for path in folder.glob("*.safetensors"))):
        first, last = int(match[1]), int(match[2] or match[1])
        if last < number or not match[3]:  # more than are wanted are not trained to the end
            ends[first] = max(ends.get(first, 0), last + 1)
    parts = list[tuple[int, ...]]()
    first = 0
    while first < number:
        end = ends.get(first) or min([number, *(other for other in ends if other > first)])
        parts.append(tuple(range(first, end)))
        first = end
    return parts


def source_jobs(job: TrainJob) -> list[TrainJob]:
    """The trainings of the networks that those of a job start from; stacked ones may be in several, or among others."""
    source = job.recipe.method(job.method).source
    if source is None:
        return []
    if isinstance(job.recipe, DenseRecipe):
        return [replace(job, method=source)]
    parts = stacks(job.members / source, job.recipe.method(source).num_trained)
    return [replace(job, method=source, networks=part) for part in parts if {*part} & {*job.networks}]


def started_from(job: TrainJob) -> tuple[Weights, float] | None:
    """The last weights of the networks that a job starts from, and the seconds of their training; None: from none.

    A network that has diverged makes those that would start from it diverge.
    """
    found, seconds = list[Weights](), 0.0
    for source in source_jobs(job):
        if (failure := source.files.failure()) is not None:
            raise SourceFailedError([0], f"it starts from one that has failed ({failure})")
        if (notes := source.files.finished()) is None:
            raise InputError(f"{job} starts from {source}, which is not trained; train that first")
        weights = source.files.load_weights(len(source.files.keep) - 1)
        rows = [row for row, number in enumerate(source.networks) if number in job.networks]
        together = len(rows) / len(source.networks)
        seconds += together * notes.number("seconds")
        found.append(weights if isinstance(job.recipe, DenseRecipe) else {"parameters": weights["parameters"][rows]})
    if not found:
        return None
    joined = found[0] if len(found) == 1 else {"parameters": torch.cat([each["parameters"] for each in found])}
    return joined, seconds


def train_job(job: TrainJob, send: Send) -> None:
    """Carry a job out, unless another process has it; what is finished is not done again."""
    files = job.files
    with locked(files.path("lock")) as mine:
        if mine and not job.ended:
            if files.finished() is None:
                train = train_large if isinstance(job.recipe, DenseRecipe) else train_stacked
                train(job, files, send)
            if unfitted := job.unfitted:
                view, finite = view_of(job), finite_networks(job)
                for network in unfitted:
                    begun = time.perf_counter()
                    tensors = job.recipe.method(job.method).posterior(view(network)) if network in finite else {}
                    notes = {"fingerprint": job.posterior_key, "seconds": time.perf_counter() - begun}
                    save_tensors(files.posterior(network), tensors, notes)


def finite_networks(job: TrainJob) -> list[int]:
    """The networks of a job whose weights are finite; a large one that is kept always has such."""
    if len(job.networks) == 1 and isinstance(job.recipe, DenseRecipe):
        return list(job.networks)
    finite = torch.ones(len(job.networks), dtype=torch.bool)
    for snapshot in range(len(job.files.keep)):
        for tensor in job.files.load_weights(snapshot).values():
            finite &= torch.isfinite(tensor).flatten(1).all(1)
    return [number for number, fine in zip(job.networks, finite.tolist(), strict=True) if fine]


def view_of(job: TrainJob) -> Callable[[int], TrainedNetwork]:
    """The trained networks of a job by number, as their method sees them."""
    recipe = job.recipe
    make: Callable[..., TrainedNetwork] = stacked_view(job, recipe) if isinstance(recipe, ToyRecipe) else LargeView(job)

    @lru_cache(maxsize=1)  # members of one network follow each other
    def view(number: int) -> TrainedNetwork:
        fitted = load_tensors(job.files.posterior(number), job.posterior_key) if job.is_fitted(number) else None
        key = partial(randomness.key, recipe.seed, recipe.method(job.method).name, number)
        return make(number, posterior={} if fitted is None else fitted.tensors, key=key)

    return view


def stacked_view(job: TrainJob, recipe: ToyRecipe) -> Callable[..., TrainedNetwork]:
    """Stacked networks one by one; their files are read once."""
    toy, read = toy_problem(recipe), lru_cache(maxsize=None)(job.files.load_weights)
    network = toy_network(recipe, toy)

    def points() -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        yield toy.train.inputs, toy.train.target, torch.ones(len(toy.train.target), dtype=torch.bool)

    def raw(weights: Weights, inputs: Any) -> torch.Tensor:
        return network.outputs(weights["parameters"][None], inputs.T[None])[0]

    def make(number: int, **fitted: Any) -> TrainedNetwork:
        row = job.networks.index(number)

        def kept(snapshot: int) -> Weights:
            return {name: each[row] for name, each in read(snapshot).items()}

        return TrainedNetwork(
            number=number,
            kept=kept,
            batches=points,
            raw=raw,
            last_layers=lambda weights: network.last_layers(weights["parameters"]),
            likelihood=toy.kind,
            **fitted,
        )

    return make


@lru_cache(maxsize=1)
def last_loaded(files: Checkpoints, snapshot: int) -> Weights:
    """Kept weights, read once as long as no others are asked for."""
    return files.load_weights(snapshot)


@dataclass(frozen=True)
class LargeView:
    """Makes a large network as its method sees it; its data and its modules are made when they are asked for."""

    job: TrainJob

    @property
    def recipe(self) -> DenseRecipe:
        """The recipe, which is one with images."""
        assert isinstance(self.job.recipe, DenseRecipe)
        return self.job.recipe

    @property
    def method(self) -> Method:
        """The method that has trained it."""
        return self.recipe.method(self.job.method)

    def __call__(self, number: int, key: Callable[..., int], **fitted: Any) -> TrainedNetwork:
        """The network of a number."""
        # Where members are made of what was kept, those of one network follow each other and read the same file.
        makes = type(self.method).weights is not Method.weights
        return TrainedNetwork(
            number=number,
            kept=partial(last_loaded if makes else Checkpoints.load_weights, self.job.files),
            key=key,
            batches=self.images,
            raw=self.raw,
            statistics=partial(self.statistics, key=key),
            last_layers=self.last_layers,
            likelihood=self.recipe.likelihood,
            class_weights=partial(class_weights, self.recipe, self.job.members),
            **fitted,
        )

    def images(self) -> Iterator[tuple[Any, torch.Tensor, torch.Tensor]]:
        """All training images as they are, with target and what of it is valid."""
        samples = open_training_data(self.recipe)
        numbers, size = range(len(samples)), self.method.batch_size
        for batch in batches(InOrder(samples), numbers, size, self.job.workers, uneven=True):
            yield batch.inputs, batch.target, batch.valid

    def build(self) -> torch.nn.Module:
        """A network as it predicts."""
        classes = num_classes_of(self.recipe, open_training_data(self.recipe))
        return self.recipe.builder(classes, method=self.job.method)()

    @cached_property
    def network(self) -> torch.nn.Module:
        """One whose own weights do not count."""
        return self.build().eval()

    def raw(self, weights: Weights, inputs: Any) -> torch.Tensor:
        """Raw outputs with any weights."""
        outputs: torch.Tensor = functional_call(shape_like(self.network, weights), dict(weights), (inputs,))
        return outputs

    def loaded(self, weights: Weights) -> torch.nn.Module:
        """A network with these weights, on the device of the job."""
        module = shape_like(self.build(), weights).to(self.job.device)
        module.load_state_dict(dict(weights))
        return module

    def statistics(self, weights: Weights, num_batches: int, key: Callable[..., int]) -> Weights:
        """Those of batch norm with any weights, over batches of augmented training images."""
        size, order, change = self.method.batch_size, key("statistics", "order"), key("statistics", "change")
        stream = Stream(open_training_data(self.recipe), augment_of(self.recipe), order, change)
        seen = batches(stream, range(num_batches * size), size, self.job.workers)
        with silenced_torch_threads():  # as in training
            device = torch.device(self.job.device)
            found = batch_norm_statistics(self.loaded(weights), (batch.to(device).inputs for batch in seen))
        return {name: each.cpu() for name, each in found.items()}

    def last_layers(self, weights: Weights) -> LastLayers:
        """Where they are, which the first training image tells, and what they see on the device of the job."""
        device = torch.device(self.job.device)
        (first,) = batches(InOrder(open_training_data(self.recipe)), range(1), 1, 0)
        found = last_layers_of(self.loaded(weights).eval(), first.to(device).inputs)
        return replace(found, see=lambda inputs: found.see({name: each.to(device) for name, each in inputs.items()}))


def toy_problem(recipe: Recipe) -> ToyProblem:
    """The toy problem of a recipe, with its training data."""
    assert isinstance(recipe, ToyRecipe)
    path = None if recipe.data.path is None else Path(recipe.data.path)
    return make_toy(recipe.problem, recipe.data.seed, path)


def toy_network(recipe: ToyRecipe, toy: ToyProblem, kind: str | None = None) -> StackedMLP:
    """The networks of a recipe: mean and log variance apart, or one with two logits."""
    kind = kind or toy.kind
    return StackedMLP(toy.grid.shape[1], TOY_OUTPUTS[kind], OBJECTIVES[kind].heads, recipe.hidden)


def stacked_training(recipe: ToyRecipe, toy: ToyProblem, method: Method) -> StackedTraining:
    """How a method trains its networks on a toy problem: on the posterior, U/N."""
    kind = "direct" if isinstance(method, Direct) else toy.kind
    plain = StackedTraining(
        **vars(method.training),
        network=toy_network(recipe, toy, kind),
        objective=OBJECTIVES[kind],
        data=Points(toy.train.inputs, toy.train.target),
        prior_precision=1 / recipe.prior_scale**2 if method.prior else 0.0,
        drop_diverged=method.diverged == "drop",
    )
    return method.stack(plain)


@stopping.in_steps()
def train_stacked(job: TrainJob, files: Checkpoints, send: Send) -> None:
    """Train all stacked networks of a method together."""
    recipe, device = job.recipe, torch.device(job.device)
    assert isinstance(recipe, ToyRecipe)
    method, toy = recipe.method(job.method), toy_problem(recipe)
    training = stacked_training(recipe, toy, method)
    state, before = files.load_state(device.type, device) or (None, 0.0)
    if state is not None and not belongs(state, training, len(job.networks)):
        raise InputError(f"{files.unfinished}: not the state of this training; {MADE_ANEW}")
    keys = Keys.of(recipe.seed, method.name, job.networks, device, method.one_start)
    if state is None and (begins := started_from(job)) is not None:
        weights, before = begins
        rows = [method.begin({"parameters": row}, training.network)["parameters"] for row in weights["parameters"]]
        state = stacked.start(training, keys, torch.stack(rows).to(device))
    begun, pacer = time.perf_counter(), Pacer()

    def seconds() -> float:
        return before + time.perf_counter() - begun

    def save(state: TrainingState) -> None:
        if state.step < training.last_epoch and pacer.due():
            with pacer:
                files.save_state(state, seconds(), device.type)

    watch = Watch(
        progress=lambda epoch, note: send((epoch, note)),
        save=save,
        keep=lambda epoch, weights: files.save_weights(epoch, weights, (), seconds()),
    )
    try:
        stacked.train(training, keys, state, watch)
    except DivergedError as error:
        some = ", ".join(str(job.networks[number]) for number in error.networks[:5])
        some += " …" if len(error.networks) > 5 else ""
        raise InputError(
            f"{job.method}: {len(error.networks)} of {len(job.networks)} networks diverged ({error}): number "
            f"{some}; lower {recipe.setting(job.method, 'learning_rate')}, or leave them out with "
            f"{recipe.setting(job.method, 'diverged')}=drop"
        ) from None


def belongs(state: TrainingState, training: StackedTraining, networks: int) -> bool:
    """Whether a state is one of this training."""
    if state.parameters.shape != (networks, training.network.num_parameters):
        return False
    wanted = training.rule.start(state.parameters)
    fits = all(name in state.rule and state.rule[name].shape == each.shape for name, each in wanted.items())
    return fits and 0 < state.step < training.last_epoch


class SourceFailedError(DivergedError):
    """A network cannot be trained because the one that it starts from has failed."""


class DivergedNetworkError(InputError):
    """A network whose loss is no longer finite; a file beside its weights says so."""


def train_large(job: TrainJob, files: Checkpoints, send: Send) -> None:
    """Train a large network to its end; several devices have a process and a part of every batch each."""
    assert isinstance(job.recipe, DenseRecipe)
    fabric = make_fabric(job.recipe, torch.device(job.device))
    if job.recipe.training.devices == 1:
        train_with(fabric, job, send)
        return
    try:
        with stopping.in_steps():  # of the processes
            diverged = fabric.launch(partial(_train_together, job=job, parent=os.getpid()))
    except ProcessRaisedException as error:  # one of the processes has failed; the others were stopped
        last = str(error).strip().splitlines()[-1]
        kind, _, text = last.partition(": ")
        raise (InputError(text) if kind.endswith("InputError") else JobFailedError(last)) from None
    except ProcessExitedException as error:
        # A process group may abort while its process ends, when the network is on disk already.
        if files.finished() is None:
            raise JobFailedError(
                f"a process that trained a network has died ({error}; was memory short?); the same command goes on "
                f"from what is saved"
            ) from None
        return
    if diverged is not None:
        raise InputError(diverged)
    if files.finished() is None:  # one of the processes was asked to stop
        raise stopping.Stopped


def make_fabric(recipe: DenseRecipe, device: torch.device) -> Fabric:
    """Where and how precisely a network is trained."""
    from lightning.fabric import Fabric

    devices, strategy = recipe.training.devices, "ddp_spawn" if recipe.training.devices > 1 else "auto"
    chosen: Any = devices if devices > 1 or device.type == "cpu" else [device.index or 0]
    return Fabric(accelerator=device.type, strategy=strategy, devices=chosen, precision=precision_of(recipe, device))


def precision_of(recipe: DenseRecipe, device: torch.device) -> Any:
    """The precision that the recipe asks for: by default bf16 on GPUs that have it."""
    if recipe.training.precision != "auto":
        return recipe.training.precision
    return "bf16-mixed" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"


def _train_together(fabric: Fabric, job: TrainJob, parent: int) -> str | None:
    """One of several processes of a job; returns what went wrong where all of them come to the same end."""
    end_with(parent)
    stopping.obey_as_worker()
    text = None
    try:
        train_with(fabric, job, lambda content: None)  # several processes of one job have nobody to talk to
    except DivergedNetworkError as error:
        text = str(error)
    except stopping.Stopped:
        pass  # where it stands is saved
    except BaseException:
        # The others wait for this one, and its process group for them: it ends once its error is written, without them.
        atexit.register(os._exit, 1)
        raise
    finally:
        stopping.leave_to_parent()  # it ends now: whoever stops it beside a failed one need not interrupt that
    torch.distributed.destroy_process_group()  # its threads must not outlive the interpreter, which aborts then
    return text


@stopping.in_steps()
def train_with(fabric: Fabric, job: TrainJob, send: Send) -> None:
    """Train a large network where fabric says."""
    recipe, files = job.recipe, job.files
    assert isinstance(recipe, DenseRecipe)
    method = recipe.method(job.method)
    machine = f"{fabric.device.type} ({precision_of(recipe, fabric.device)})"
    state, before = files.load_state(machine) or (None, None)
    begun = time.perf_counter()
    rows: list[LogRow] = [] if state is None else list(state.log)
    kind = recipe.training.log if fabric.is_global_zero else "none"
    log = TrainingLog(kind, files, rows, recipe.training_settings(job.method))

    def add(row: LogRow) -> None:
        rows.append(row)
        log.add(row)

    def seconds() -> float:
        return (before or 0.0) + time.perf_counter() - begun

    def save(state: TrainingState) -> None:
        files.save_state(state, seconds(), machine)
        log.write(state.log)

    def keep(epoch: int, weights: Weights) -> None:
        if fabric.is_global_zero:
            log.write(rows)  # first: with the last network training is finished
            files.save_weights(epoch, weights, rows, seconds())

    watch = Watch(lambda step, note: send((step, note)), add, save, keep)
    try:
        begins = started_from(job)
        if begins is not None and before is None:
            before = begins[1]
        samples = open_training_data(recipe)
        if (memory := job.decoded or decoded_memory(recipe, fabric.device)) is not None:
            samples = DecodedSamples(samples, memory)
        training = large_training(recipe, job.method, samples, fabric.device, class_weights(recipe, job.members))
        if begins is not None:
            training = replace(training, start=partial(method.begin, begins[0]))
        keys = NetworkKeys.of(recipe.seed, method.name, job.networks[0], method.one_start)
        # With one thread: on a CPU numbers must not depend on it, and several networks are trained at once instead;
        # beside a GPU there is little for more threads to do.
        with silenced_torch_threads():
            train_network(training, keys, fabric, state, watch, job.workers)
    except StateMismatchError as error:
        raise InputError(f"{files.unfinished}: {error}; {MADE_ANEW}") from None
    except DivergedError as error:
        text = f"{job.method}: network {job.networks[0]}: {error}"
        if not isinstance(error, SourceFailedError):
            text += f"; lower {recipe.setting(job.method, 'learning_rate')}"
        if fabric.is_global_zero:
            files.save_failure(text)
        raise DivergedNetworkError(text) from None
    finally:
        log.close(done=files.finished() is not None)


def open_training_data(recipe: DenseRecipe) -> Samples:
    """What networks are trained on."""
    return recipe.data.train.open(recipe.task, recipe.data.folders, "data.train")


def decoded_memory(recipe: DenseRecipe, device: torch.device) -> DecodedMemory | None:
    """Memory for decoded training data beside a GPU: the same for all trainings of this process on the same data."""
    given = recipe.training.cache
    if device.type != "cuda" or given == 0 or not can_share_memory():
        return None
    gibibytes = None if given == "auto" else given
    data = recipe.data.train.model_dump_json() + str(recipe.data.folders)
    return _memory_of(gibibytes, fingerprint(recipe.task, recipe.data.train.version, data))


def sharing_memory(jobs: Sequence[TrainJob]) -> list[TrainJob]:
    """Jobs whose processes, on this machine, decode every sample of their training data once between them."""
    shared = list(jobs)
    for place, job in enumerate(jobs):
        if isinstance(job.recipe, DenseRecipe):
            shared[place] = replace(job, decoded=decoded_memory(job.recipe, torch.device(job.device)))
    return shared


@lru_cache(1)
def _memory_of(gibibytes: float | None, key: str) -> DecodedMemory:
    return DecodedMemory(free_memory() // SHARE if gibibytes is None else int(gibibytes * 2**30))


def num_classes_of(recipe: DenseRecipe, samples: Samples) -> int | None:
    """How many classes networks predict."""
    return classes_of(samples).num_classes if recipe.likelihood == "categorical" else None


def network_as_trained(recipe: DenseRecipe, name: str, num_classes: int | None) -> torch.nn.Module:
    """A network of a method in the form and of the sizes that it is trained in; its weights mean nothing."""
    method = recipe.method(name)
    network = method.build(recipe.builder(num_classes, method=name))
    if method.source is None:
        return network
    weights = network_as_trained(recipe, method.source, num_classes).state_dict()
    return shape_like(network, method.begin(weights, network))


def large_training(
    recipe: DenseRecipe, name: str, samples: Samples, device: torch.device, weights: tuple[float, ...] | None = None
) -> NetworkTraining:
    """How a method of a recipe trains its networks on images."""
    method, options = recipe.method(name), recipe.training
    decay = 1 / (len(samples) * options.prior_scale**2) if method.samples else options.weight_decay
    return NetworkTraining(
        **vars(method.training),
        **options.model_dump(include={"epoch_steps", "clip", "compile"}),
        build=partial(method.build, recipe.builder(num_classes_of(recipe, samples), pretrained=True, method=name)),
        loss=LIKELIHOODS[recipe.likelihood].image_loss,
        samples=samples,
        augment=augment_of(recipe),
        weight_decay=decay if method.prior else 0.0,
        decay_all=method.samples or options.decay_all,
        class_weights=weights,
        whole_batches=options.augment == "device" or (options.augment == "auto" and device.type == "cuda"),
        channels_last=device.type == "cuda",  # on a CPU it gains little, and oneDNN has been seen to crash with it
    )


def augment_of(recipe: DenseRecipe) -> Augment:
    """How a recipe changes training samples."""
    options = recipe.training.model_dump(include={field.name for field in fields(Augment)} - {"colours"})
    return Augment(**options, colours=Colours(**recipe.training.colours.model_dump()))
