"""Carry a training job out, from the start or where it stopped: stacked networks of a method, or one large network."""

from __future__ import annotations

import atexit
import logging
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from epibench import stopping
from epibench.data.decoded import DecodedSamples
from epibench.errors import InputError
from epibench.parallel import silenced_torch_threads
from epibench.recipes import DenseRecipe, ToyRecipe
from epibench.runs.checkpoints import MADE_ANEW, Checkpoints, save_tensors
from epibench.runs.class_weights import class_weights
from epibench.runs.folder import locked
from epibench.runs.image_training import decoded_memory, large_training, make_fabric, open_training_data, precision_of
from epibench.runs.processes import JobFailedError, Send, end_with
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

if TYPE_CHECKING:  # takes seconds to import, and toy problems and evaluations do without
    from lightning.fabric import Fabric

# The run itself says what it does, in all of its processes. Lightning sets levels of its packages when it is imported.
for _name in ("fabric.utilities.distributed", "fabric.utilities.rank_zero", "pytorch.utilities.rank_zero"):
    logging.getLogger(f"lightning.{_name}").setLevel(logging.WARNING)
logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # that it stops processes beside a failed one


def train_job(job: TrainJob, send: Send) -> None:
    """Carry a job out, unless another process has it; what is finished is not done again.

    It sends (step, note) from the beginning on, and None once it has ended, well or not.
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
    """Fit to trained networks what their method has still to fit."""
    if unfitted := job.unfitted:
        view, finite = view_of(job), finite_networks(job)
        for network in unfitted:
            begun = time.perf_counter()
            tensors = job.recipe.method(job.method).posterior(view(network)) if network in finite else {}
            notes = {"fingerprint": job.posterior_key, "seconds": time.perf_counter() - begun}
            save_tensors(job.files.posterior(network), tensors, notes)


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
    """Whether a state is one of this training."""
    if state.parameters.shape != (networks, training.network.num_parameters):
        return False
    wanted = training.rule.start(state.parameters)
    fits = all(name in state.rule and state.rule[name].shape == each.shape for name, each in wanted.items())
    return fits and 0 < state.step < training.last_epoch


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
    log = TrainingLogger(kind, files, rows, recipe.training_settings(job.method))

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

    callbacks = TrainingCallbacks(lambda step, note: send((step, note)), add, save, keep)
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
            train_network(training, keys, fabric, state, callbacks, job.workers)
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
