"""Run or resume a training job: all stacked networks of a method, or one large network."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import torch

from epibench import stopping
from epibench.data.decoded import DecodedSamples
from epibench.devices import resolve_precision
from epibench.errors import InputError
from epibench.parallel import silenced_torch_threads
from epibench.recipes import DenseRecipe, ToyRecipe
from epibench.runs.checkpoints import MADE_ANEW, Checkpoints, save_tensors
from epibench.runs.class_weights import class_weights
from epibench.runs.folder import locked
from epibench.runs.image_training import decoded_memory, large_training, open_training_data
from epibench.runs.processes import Send
from epibench.runs.toy_training import stacked_training, toy_problem
from epibench.runs.train_job import SourceFailedError, TrainJob, started_from
from epibench.runs.trained_views import finite_networks, view_of
from epibench.runs.training_log import TrainingLogger
from epibench.training import stacked
from epibench.training.network import NetworkKeys, train_network
from epibench.training.stacked import Keys, StackedTraining
from epibench.training.state import (
    DivergedError,
    LogRow,
    Pacer,
    StateMismatchError,
    TrainingCallbacks,
    TrainingState,
    Weights,
)


def train_job(job: TrainJob, send: Send) -> None:
    """Run a training job, unless another process runs it or it has ended.

    It sends (step, note) from its beginning, and None at its end or after an InputError.
    """
    files = job.files
    send((0, ""))
    try:
        with locked(files.path("lock")) as mine:
            if mine and not job.ended:
                if files.finished() is None:
                    train = train_large if isinstance(job.recipe, DenseRecipe) else train_stacked
                    train(job, files, send)
                fit(job)
    except InputError:
        send(None)
        raise
    send(None)


def fit(job: TrainJob) -> None:
    """Run the missing fits of the method to its trained networks."""
    if unfitted := job.unfitted:
        view, finite = view_of(job), finite_networks(job)
        for network in unfitted:
            begun = time.perf_counter()
            tensors = job.recipe.method(job.method).posterior(view(network)) if network in finite else {}
            notes = {"fingerprint": job.posterior_key, "seconds": time.perf_counter() - begun}
            save_tensors(job.files.posterior(network), tensors, notes)


@stopping.in_steps()
def train_stacked(job: TrainJob, files: Checkpoints, send: Send) -> None:
    """Train a stack of networks."""
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

    callbacks = TrainingCallbacks(
        progress=lambda epoch, note: send((epoch, note)),
        save=save,
        keep=lambda epoch, weights: files.save_weights(epoch, weights, (), seconds()),
    )
    try:
        stacked.train(training, keys, state, callbacks)
    except DivergedError as error:
        some = ", ".join(str(job.networks[number]) for number in error.networks[:5])
        some += " …" if len(error.networks) > 5 else ""
        raise InputError(
            f"{job.method}: {len(error.networks)} of {len(job.networks)} networks diverged ({error}): number "
            f"{some}; lower {recipe.setting(job.method, 'learning_rate')}, or leave them out with "
            f"{recipe.setting(job.method, 'diverged')}=drop"
        ) from None


def belongs(state: TrainingState, training: StackedTraining, networks: int) -> bool:
    """Return whether a state has the shapes and the range of steps of this training."""
    if state.parameters.shape != (networks, training.network.num_parameters):
        return False
    wanted = training.rule.start(state.parameters)
    fits = all(name in state.rule and state.rule[name].shape == each.shape for name, each in wanted.items())
    return fits and 0 < state.step < training.last_epoch


@stopping.in_steps()
def train_large(job: TrainJob, files: Checkpoints, send: Send) -> None:
    """Train a large network."""
    recipe, device = job.recipe, torch.device(job.device)
    assert isinstance(recipe, DenseRecipe)
    method = recipe.method(job.method)
    machine = f"{device.type} ({resolve_precision(recipe.training.precision, device.type)})"
    state, before = files.load_state(machine) or (None, None)
    begun = time.perf_counter()
    rows: list[LogRow] = [] if state is None else list(state.log)
    log = TrainingLogger(recipe.training.log, files, rows, recipe.training_settings(job.method))

    def add(row: LogRow) -> None:
        rows.append(row)
        log.add(row)

    def seconds() -> float:
        return (before or 0.0) + time.perf_counter() - begun

    def save(state: TrainingState) -> None:
        files.save_state(state, seconds(), machine)
        log.write(state.log)

    def keep(epoch: int, weights: Weights) -> None:
        log.write(rows)  # first, because the last weights mark training as finished
        files.save_weights(epoch, weights, rows, seconds())

    callbacks = TrainingCallbacks(lambda step, note: send((step, note)), add, save, keep)
    try:
        begins = started_from(job)
        if begins is not None and before is None:
            before = begins[1]
        samples = open_training_data(recipe)
        if (memory := job.decoded or decoded_memory(recipe, device)) is not None:
            samples = DecodedSamples(samples, memory)
        training = large_training(recipe, job.method, samples, device, class_weights(recipe, job.members))
        if begins is not None:
            training = replace(training, start=partial(method.begin, begins[0]))
        keys = NetworkKeys.of(recipe.seed, method.name, job.networks[0], method.one_start)
        # One thread: on a CPU the numbers must not depend on the number of threads, and networks are trained in
        # parallel instead. Beside a GPU, more threads have little to do.
        with silenced_torch_threads():
            train_network(training, keys, device, state, callbacks, job.workers)
    except StateMismatchError as error:
        raise InputError(f"{files.unfinished}: {error}; {MADE_ANEW}") from None
    except DivergedError as error:
        text = f"{job.method}: network {job.networks[0]}: {error}"
        if not isinstance(error, SourceFailedError):
            text += f"; lower {recipe.setting(job.method, 'learning_rate')}"
        files.save_failure(text)
        raise InputError(text) from None
    finally:
        log.close(done=files.finished() is not None)
