"""One job: train one network of a method of a recipe, or go on where its training stopped."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

from epibench.data.augment import Augment
from epibench.data.augment import Colours
from epibench.data.batch import Samples
from epibench.errors import InputError
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.class_weights import weights_of
from epibench.runs.dense_data import classes_of
from epibench.runs.jobs import JobFailedError, Tell, end_with
from epibench.runs.training_log import open_log
from epibench.likelihoods import LIKELIHOODS
from epibench.recipes.dense import DenseRecipe
from epibench.files import write_text
from epibench.training.dense import (
    DenseState,
    DenseTraining,
    DenseWatch,
    LogRow,
    LossDivergedError,
    NetworkKeys,
    StateMismatchError,
    train_network,
)

# How many networks there are, and what becomes of them, does not change any of them.
AFTERWARDS = {
    *("num_members", "num_networks", "num_chains", "num_restarts"),
    *("sets", "num_sets", "num_passes", "repeats", "diverged"),
}

# Where training data lies and what it is called, and what it is to other networks.
WORDS = {"root", "raw_root", "title", "distribution", "mapping"}


@dataclass(frozen=True)
class TrainJob:
    """What a process needs to know to train a network: plain data. device: `cpu` or `cuda:0`."""

    recipe: DenseRecipe
    method: str  # or the name of a variant
    network: int
    folder: Path
    device: str
    workers: int = 0


class DivergedNetworkError(InputError):
    """A network whose loss is no longer finite; a file beside its weights says so."""


def train_job(job: TrainJob, tell: Tell) -> None:
    """Train the network to its end; what is finished is found and not done again."""
    if job.recipe.training.devices > 1:
        train_shared(job)
    else:
        _train_with(make_fabric(job, 1), job, tell)


def train_shared(job: TrainJob) -> None:
    """Train one network with several processes, each with a device and its part of every batch."""
    fabric = make_fabric(job, job.recipe.training.devices)
    try:
        diverged = fabric.launch(partial(_train_together, job=job, parent=os.getpid()))
    except ProcessRaisedException as error:  # one of the processes has failed; the others were stopped
        last = str(error).strip().splitlines()[-1]
        kind, _, text = last.partition(": ")
        raise (InputError(text) if kind.endswith("InputError") else JobFailedError(last)) from None
    except ProcessExitedException as error:
        # A process group may abort while its process ends, when the network is on disk already.
        if checkpoints_of(job.recipe, job.method, job.network, job.folder).finished() is None:
            raise JobFailedError(str(error)) from None
        return
    if diverged is not None:
        raise InputError(diverged)


def make_fabric(job: TrainJob, devices: int) -> Fabric:
    """Where and how precisely a network is trained."""
    for name in ("lightning.fabric", "lightning.pytorch"):  # the run itself says what it does
        logging.getLogger(name).setLevel(logging.WARNING)
    device = torch.device(job.device)
    chosen: Any = devices if devices > 1 or device.type == "cpu" else [device.index or 0]
    return Fabric(
        accelerator=device.type,
        devices=chosen,
        strategy="ddp_spawn" if devices > 1 else "auto",
        precision=precision_of(job.recipe, device),
    )


def precision_of(recipe: DenseRecipe, device: torch.device) -> Any:
    """The precision that the recipe asks for: by default bf16 on GPUs that have it."""
    if recipe.training.precision != "auto":
        return recipe.training.precision
    return "bf16-mixed" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "32-true"


def _train_together(fabric: Fabric, job: TrainJob, parent: int) -> str | None:
    """One of several processes of a job; returns what went wrong where all of them come to the same end."""
    end_with(parent)
    text = None
    try:
        _train_with(fabric, job, _silent)
    except DivergedNetworkError as error:
        text = str(error)
    torch.distributed.destroy_process_group()  # its threads must not outlive the interpreter, which aborts then
    return text


def _silent(content: Any) -> None:
    """Several processes of one job have nobody to talk to."""


def _train_with(fabric: Fabric, job: TrainJob, tell: Tell) -> None:
    recipe, method = job.recipe, job.recipe.method(job.method)
    files = checkpoints_of(recipe, job.method, job.network, job.folder)
    machine = f"{fabric.device.type} ({precision_of(recipe, fabric.device)})"
    state, before = files.load_state(machine) or (None, 0.0)
    begun = time.perf_counter()
    log = open_log(recipe.training.log, files, 0 if state is None else state.step)
    threads = torch.get_num_threads()
    if fabric.device.type == "cpu":
        torch.set_num_threads(1)  # numbers must not depend on it; several networks are trained at once instead
    rows: list[LogRow] = [] if state is None else list(state.log)

    def progress(row: LogRow) -> None:
        rows.append(row)
        log.add(row)
        tell(row)

    def save(state: DenseState) -> None:
        files.save_state(state, before + time.perf_counter() - begun, machine)
        log.write(state.log)

    def keep(epoch: int, weights: Mapping[str, Tensor]) -> None:
        if fabric.is_global_zero:
            log.write(rows)  # first: with the last network training is finished
            files.save_weights(epoch, weights, rows, before + time.perf_counter() - begun)

    try:
        samples = recipe.data.train.open(recipe.task, recipe.data.folders, "data.train")
        training = training_of(recipe, job.method, samples, fabric.device, weights_of(recipe, job.folder))
        keys = NetworkKeys.of(recipe.seed, method.name, job.network)
        train_network(training, keys, fabric, state, DenseWatch(progress, save, keep), job.workers)
    except StateMismatchError as error:
        raise InputError(f"{files.unfinished}: {error}; remove it, and it is made anew") from None
    except LossDivergedError as error:
        text = f"{job.method}: network {job.network}: {error}; lower {recipe.setting(job.method, 'learning_rate')}"
        if fabric.is_global_zero:
            write_text(files.diverged, f"{text}\n")
            files.unfinished.unlink(missing_ok=True)
        raise DivergedNetworkError(text) from None
    finally:
        log.close()
        torch.set_num_threads(threads)


def training_of(
    recipe: DenseRecipe,
    name: str,
    samples: Samples,
    device: torch.device,
    class_weights: tuple[float, ...] | None = None,
) -> DenseTraining:
    """How a method of a recipe trains its networks."""
    method, options = recipe.method(name), recipe.training
    classes = classes_of(samples).num_classes if recipe.likelihood == "categorical" else None
    return DenseTraining(
        build=recipe.builder(classes, pretrained=True),
        loss=LIKELIHOODS[recipe.likelihood].image_loss,
        samples=samples,
        augment=augment_of(recipe),
        rule=method.rule,
        schedule=method.schedule,
        num_epochs=method.num_epochs,
        epoch_steps=options.epoch_steps,
        batch_size=method.batch_size,
        keep=method.keep,
        weight_decay=options.weight_decay if method.prior else 0.0,
        clip=options.clip,
        class_weights=class_weights,
        dropout=method.dropout,
        channels_last=device.type == "cuda",  # on a CPU it gains little, and oneDNN has been seen to crash with it
        compile=options.compile,
    )


def augment_of(recipe: DenseRecipe) -> Augment:
    """How a recipe changes training samples."""
    options = recipe.training
    return Augment(
        crop=options.crop,
        flip=options.flip,
        scale=options.scale,
        thin=options.thin,
        scale_step=options.scale_step,
        pad=options.pad,
        colours=Colours(**options.colours.model_dump()),
    )


def checkpoints_of(recipe: DenseRecipe, name: str, network: int, folder: Path) -> Checkpoints:
    """The files of a network in the folder of a run."""
    method = recipe.method(name)
    options = method.model_dump(mode="json", exclude=AFTERWARDS)
    decisive = {
        "seed": recipe.seed,
        "network": recipe.network.model_dump(mode="json"),
        "training": recipe.training.model_dump(mode="json", exclude={"log"}),
        "train": [recipe.data.train.model_dump(mode="json", exclude=WORDS), recipe.data.train.version],
        "method": [method.name, options, network],
    }
    stamp = hashlib.blake2b(json.dumps(decisive, sort_keys=True).encode(), digest_size=16).hexdigest()
    return Checkpoints(folder / "members" / name, network, stamp, method.keep)
