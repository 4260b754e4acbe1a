"""All batches of a reference, each written to a file when it is done, so that an interrupted run goes on from there."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import platform
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import numpy.typing as npt

from epibench.data.sets.toy import ToyProblem, read_arrays
from epibench.errors import InputError
from epibench.files import replacing, write_json
from epibench.reference.settings import ReferenceSettings

Arrays = dict[str, npt.NDArray[Any]]
Progress = Callable[[int, str], None]


def run_batches(
    problem: ToyProblem, settings: ReferenceSettings, folder: Path, device: str, progress: Progress
) -> list[Arrays]:
    """Run what is missing in the folder, and read all of it. On a CPU: one process per core."""
    prepare_folder(folder, problem, settings)
    missing = [number for number in range(settings.batches) if not batch_file(folder, number).exists()]
    if missing and device == "cpu":
        _run_in_processes(problem, settings, folder, missing, progress)
    elif missing:
        _run_here(problem, settings, folder, missing, progress)
    return [read_batch(batch_file(folder, number)) for number in range(settings.batches)]


def batch_file(folder: Path, number: int) -> Path:
    """Where a finished batch is kept."""
    return folder / f"batch-{number}.npz"


def prepare_folder(folder: Path, problem: ToyProblem, settings: ReferenceSettings) -> None:
    """Make the folder, or check that what it holds belongs to the same settings and data."""
    data = hashlib.blake2b(digest_size=8)
    for tensor in (problem.train.inputs, problem.train.target):
        data.update(np.round(tensor.double().numpy(), 4).tobytes())
    # No batch depends on how many there are: more of them may join those that are there.
    fixed = {name: value for name, value in asdict(settings).items() if name != "batches"}
    wanted = {"problem": problem.name, "data": data.hexdigest(), **fixed}
    file = folder / "settings.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        write_json(file, wanted)
        return
    try:
        made_with = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: not readable ({error}); remove {folder} or give another --out") from None
    for key, value in wanted.items():
        if made_with.get(key) != value:
            other = f"{key} {made_with.get(key)}, not {value}"
            raise InputError(f"{folder}: holds batches made with {other}; remove it or give another --out")


def read_batch(path: Path) -> Arrays:
    """A finished batch."""
    return read_arrays(path, "remove it, and it is made anew")


def write_batch(path: Path, arrays: Arrays) -> None:
    """Write a finished batch in one step, with what it was made with."""
    with replacing(path) as stream:
        np.savez_compressed(stream, allow_pickle=False, origin=np.array(json.dumps(origin())), **arrays)


def origin() -> dict[str, str]:
    """Versions and device behind a batch."""
    import jax

    first = jax.devices()[0]
    versions = {name: metadata.version(name) for name in ("jax", "numpyro", "numpy")}
    return {"python": platform.python_version(), **versions, "device": f"{first.platform} {first.device_kind}"}


def _run_here(
    problem: ToyProblem, settings: ReferenceSettings, folder: Path, missing: list[int], progress: Progress
) -> None:
    import jax

    from epibench.reference.chains import posteriors_of, run_batch

    # A GPU would multiply with 10 bits of mantissa, which is coarser than the posterior is wide.
    with jax.default_matmul_precision("highest"):
        posteriors = posteriors_of(problem, settings)
        for number in missing:
            arrays = run_batch(problem, posteriors, settings, number, partial(progress, number))
            write_batch(batch_file(folder, number), arrays)


def _run_in_processes(
    problem: ToyProblem, settings: ReferenceSettings, folder: Path, missing: list[int], progress: Progress
) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        messages = manager.Queue()
        workers = min(len(missing), os.cpu_count() or 1)
        with ProcessPoolExecutor(workers, context, _prepare_worker) as pool:
            waiting: set[Future[None]] = {
                pool.submit(_work, problem, settings, folder, number, messages) for number in missing
            }
            try:
                while waiting:
                    finished, waiting = wait(waiting, timeout=0.2)
                    for future in finished:
                        future.result()
                    _pass_on(messages, progress)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # what has not begun is not waited for
                raise


def _pass_on(messages: Any, progress: Progress) -> None:
    while True:
        try:
            progress(*messages.get_nowait())
        except Empty:
            return


def _prepare_worker() -> None:
    # One thread per process: results must not depend on how sums are shared among threads.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"


def _work(problem: ToyProblem, settings: ReferenceSettings, folder: Path, number: int, messages: Any) -> None:
    _run_here(problem, settings, folder, [number], lambda batch, text: messages.put((batch, text)))
