"""Faults, delays and frequent saves for tests of runs. Names of internals that tests replace stand here alone.

Processes of a test's own import this module, too: `script_environment` lets them find it.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

Patch = Callable[[Any, str, Any], None]  # setattr, or setattr of pytest.MonkeyPatch


class Killed(BaseException):
    """End the work like a kill: no handler catches it."""


def die() -> None:
    """Raise `Killed`."""
    raise Killed


def stop_at_file(
    patch: Patch, pattern: str, count: int = 1, when: str = "after", stop: Callable[[], None] = die
) -> None:
    """Stop when the n-th file whose path ends like a pattern is put in its place, before or after that."""
    replace, left = os.replace, count

    def replace_or_stop(source: Any, target: Any) -> None:
        nonlocal left
        left -= fnmatch(str(target), f"*{pattern}")
        if left == 0 and when == "before":
            stop()
        replace(source, target)
        if left == 0:
            stop()

    patch(os, "replace", replace_or_stop)


@contextmanager
def killed_at(pattern: str, count: int = 1, when: str = "after") -> Iterator[None]:
    """Kill the work within when such a file is written; without one the test fails."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at_file(patch.setattr, pattern, count, when)
        with pytest.raises(Killed):
            yield


@contextmanager
def written_files() -> Iterator[list[str]]:
    """Note the names of all files that are put in their place."""
    names, replace = list[str](), os.replace

    def replace_and_note(source: Any, target: Any) -> None:
        replace(source, target)
        names.append(Path(target).name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace_and_note)
        yield names


def save_often(patch: Patch = setattr, log_every: int = 2) -> None:
    """Save whenever a loss is logged, and after each batch of an evaluation."""
    from epibench.members import on_images
    from epibench.training import network
    from epibench.training.state import Pacer

    patch(network, "LOG_EVERY", log_every)
    patch(Pacer, "due", lambda pacer: True)
    patch(on_images, "PORTION_PIXELS", {"cpu": 1})


@contextmanager
def few_draws_at_once(count: int) -> Iterator[None]:
    """Let a toy problem compute metrics of a few draws at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("epibench.runs.toy.DRAWS_AT_ONCE", count)
        yield


@contextmanager
def drawn_pictures() -> Iterator[list[Any]]:
    """Note the pictures of images that are predicted for frames of a video."""
    from epibench.runs.frames import FrameSequence

    noted, pictures = list[Any](), FrameSequence.pictures

    def draw_and_note(sequence: FrameSequence, images: Any) -> Iterator[Any]:
        for picture in pictures(sequence, images):
            noted.append(picture)
            yield picture

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FrameSequence, "pictures", draw_and_note)
        yield noted


def before_each_step(act: Callable[[int], None], patch: Patch = setattr) -> None:
    """Call a function with the number of steps taken before each training step of a large network."""
    from epibench.training import network

    take_step = network._Run.take_step

    def act_and_take_step(run: Any, batch: Any) -> None:
        act(run.step)
        take_step(run, batch)

    patch(network._Run, "take_step", act_and_take_step)


def short_waits_for_storage(patch: Patch) -> None:
    """Try a request at a URL again almost at once."""
    from epibench import mirror

    patch(mirror, "WAITS", (0.01,))


@contextmanager
def noted_fetches() -> Iterator[list[str]]:
    """Note when files of a URL are fetched after the tasks of a cluster."""
    fetched = list[str]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("epibench.mirror.fetch_current", lambda *given: fetched.append("fetched"))
        yield fetched


def replace_work(patch: pytest.MonkeyPatch, train: Any = None, evaluate: Any = None) -> None:
    """Let other functions carry out the jobs of a run."""
    if train is not None:
        patch.setattr("epibench.runs.train.train_job", train)
    if evaluate is not None:
        patch.setattr("epibench.runs.evaluate_job.evaluate_job", evaluate)


def before_each_evaluation(act: Callable[[int], None]) -> None:
    """Call a function with the number of the first image before members predict a batch."""
    from epibench.members.networks import NetworkPool

    outputs = NetworkPool.outputs

    def act_and_predict(pool: Any, inputs: Any, members: Any, images: range, *more: Any) -> Any:
        act(images.start)
        return outputs(pool, inputs, members, images, *more)

    NetworkPool.outputs = act_and_predict


def before_each_block(act: Callable[[int], None]) -> None:
    """Call a function with the last epoch before a block of small networks is trained."""
    from epibench.training.stacked import Block

    run_block = Block.run

    def act_and_run(block: Any, last: int) -> Any:
        act(last)
        return run_block(block, last=last)

    Block.run = act_and_run


def is_first(name: str) -> bool:
    """Return whether this process is the first to ask; a file keeps its number."""
    try:
        with Path(name).open("x") as file:
            file.write(str(os.getpid()))
    except FileExistsError:
        return Path(name).read_text() == str(os.getpid())
    return True


def wait_for_sigterm(folder: Path, forever: bool = False) -> None:
    """Note the process in a folder, and wait for SIGTERM, or forever."""
    from epibench import stopping

    (folder / str(os.getpid())).touch()
    while forever or not stopping.asked():
        time.sleep(0.02)


def load_in_processes(workers: int) -> None:
    """Load images in some processes, also where there is no GPU."""
    from epibench.runs.machine import Machine

    machine_of = Machine.of
    Machine.of = classmethod(lambda cls, device, jobs, *_: cls(device, machine_of(device, jobs).jobs, workers))


def break_second(patch: pytest.MonkeyPatch, method: str) -> None:
    """Start the second network of a method for depth with a NaN among its weights."""
    import torch

    from epibench.training import network as training

    build = training.build_network

    def build_or_break(make: Any, key: int) -> Any:
        network = build(make, key)
        if key == training.NetworkKeys.of(0, method, 1).initial:
            torch.nn.init.constant_(network.mean.bias, math.nan)
        return network

    patch.setattr(training, "build_network", build_or_break)


def script_environment(**more: str) -> dict[str, str]:
    """Return the environment of a process that imports modules of these tests."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1]), *filter(None, sys.path)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", **more}
