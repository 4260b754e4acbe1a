"""Make a reference: run all batches, combine their predictions, and measure their agreement.

Each finished batch is written to a file, so that an interrupted run resumes with it.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import shutil
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from importlib import metadata
from pathlib import Path
from queue import Empty
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from epibench import __version__
from epibench.data.sets.toy import ToyProblem, read_arrays
from epibench.errors import ArgumentError, InputError
from epibench.files import replacing, write_json
from epibench.reference.predictions import Reference, write_reference
from epibench.reference.settings import HIDDEN, OUTPUTS, R_HAT_LIMIT, ReferenceSettings

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Progress = Callable[[int, str], None]


def make_reference(
    problem: ToyProblem,
    settings: ReferenceSettings,
    out: Path,
    command: str,
    device: str = "cpu",
    progress: Progress = lambda batch, words: None,
) -> Reference:
    """Sample and write a reference. The same call resumes from finished batches, which lie beside it."""
    check_installed()
    folder = work_folder(out)
    reference = assemble(problem, settings, out, command, run_batches(problem, settings, folder, device, progress))
    write_reference(reference)
    shutil.rmtree(folder)
    return reference


def jax_device(name: str) -> str:
    """`cpu` or `cuda`, as JAX sees it; `auto` takes a GPU if JAX has one."""
    if name == "cpu":
        return name
    jax = importlib.import_module("jax")
    kind = "cuda" if jax.default_backend() == "gpu" else "cpu"
    if name == "cuda" and kind == "cpu":
        raise ArgumentError(f"device cuda: jax {jax.__version__} sees no GPU; give cpu, or install jax[cuda]")
    return kind


def work_folder(out: Path) -> Path:
    """Return the folder of finished batches."""
    return out.with_name(f"{out.stem}.batches")


def check_installed() -> None:
    """Raise an InputError if packages are missing."""
    missing = [name for name in ("jax", "numpyro", "arviz") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(f"a reference needs {', '.join(missing)}: pip install 'epibench[reference]'")
    import_arviz()


def import_arviz() -> Any:
    """Import ArviZ early, because its import writes into the user's cache and can fail."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its planned refactoring
        try:
            return importlib.import_module("arviz")
        except OSError as error:
            remedy = "set XDG_CACHE_HOME to a folder that can be written to"
            raise InputError(f"arviz, which a reference needs, cannot write to its cache ({error}); {remedy}") from None


def run_batches(
    problem: ToyProblem, settings: ReferenceSettings, folder: Path, device: str, progress: Progress
) -> list[Arrays]:
    """Run the missing batches, and read all batches. A CPU runs one process per core."""
    prepare_folder(folder, problem, settings)
    missing = [number for number in range(settings.batches) if not batch_file(folder, number).exists()]
    if missing:
        run = _run_in_processes if device == "cpu" else _run_here
        run(problem, settings, folder, missing, progress)
    numbers = range(settings.batches)
    return [read_arrays(batch_file(folder, number), "remove it, and it is made anew") for number in numbers]


def batch_file(folder: Path, number: int) -> Path:
    """Return the file of a finished batch."""
    return folder / f"batch-{number}.npz"


def prepare_folder(folder: Path, problem: ToyProblem, settings: ReferenceSettings) -> None:
    """Make the folder, or check that its batches have the same settings and data."""
    data = hashlib.blake2b(digest_size=8)
    for tensor in (problem.train.inputs, problem.train.target):
        data.update(np.round(tensor.double().numpy(), 4).tobytes())
    # No batch depends on the number of batches: more batches may be added.
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


def origin() -> dict[str, str]:
    """Return versions and device of a batch."""
    import jax

    first = jax.devices()[0]
    versions = {name: metadata.version(name) for name in ("jax", "numpyro", "numpy")}
    return {"python": platform.python_version(), **versions, "device": f"{first.platform} {first.device_kind}"}


def _run_here(
    problem: ToyProblem, settings: ReferenceSettings, folder: Path, missing: list[int], progress: Progress
) -> None:
    import jax

    from epibench.reference.chains import posteriors_of, run_batch

    # A GPU would multiply with 10 bits of mantissa, which is coarser than the width of the posterior.
    with jax.default_matmul_precision("highest"):
        posteriors = posteriors_of(problem, settings)
        for number in missing:
            arrays = run_batch(problem, posteriors, settings, number, partial(progress, number))
            with replacing(batch_file(folder, number)) as stream:
                np.savez_compressed(stream, allow_pickle=False, origin=np.array(json.dumps(origin())), **arrays)


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
                    with suppress(Empty):
                        while True:
                            progress(*messages.get_nowait())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)  # jobs that have not started are not awaited
                raise


def _prepare_worker() -> None:
    # One thread per process: results must not depend on the split of sums among threads.
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false"
    os.environ["JAX_PLATFORMS"] = "cpu"


def _work(problem: ToyProblem, settings: ReferenceSettings, folder: Path, number: int, messages: Any) -> None:
    _run_here(problem, settings, folder, [number], lambda batch, text: messages.put((batch, text)))


def assemble(
    problem: ToyProblem, settings: ReferenceSettings, out: Path, command: str, batches: Sequence[Arrays]
) -> Reference:
    """Combine all batches into one reference. Its halves are the batches with even and with odd numbers."""
    rows = [pooled(batches), pooled(batches[::2]), pooled(batches[1::2])]
    values = {name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]}
    about = {
        "problem": problem.name,
        "command": command,
        "epibench": __version__,
        "prior_scale": settings.prior_scale,
        "hidden": list(HIDDEN),
        "members": sum(int(batch["members"]) for batch in batches),
        "halves": "batches started from the prior, and from trained networks",
        "settings": asdict(settings),
        "diagnostics": diagnose(problem, batches, settings),
        "seconds": float(sum(float(batch["seconds"]) for batch in batches)),
    }
    return Reference(out, problem.kind, problem.grid, values, problem.train.inputs, problem.train.target, about)


def pooled(batches: Sequence[Arrays]) -> dict[str, npt.NDArray[np.float64]]:
    """Return the predictive of all members for some batches.

    It is `probs`, or the mean and the parts of the variance.
    """
    members = np.array([float(batch["members"]) for batch in batches])
    shares = members / members.sum()

    def average(name: str) -> npt.NDArray[np.float64]:
        sums = (share * batch[name] / number for share, number, batch in zip(shares, members, batches, strict=True))
        total: npt.NDArray[np.float64] = sum(sums)
        return total

    if "sum_probs" in batches[0]:
        probs = average("sum_probs")
        return {"probs": probs / probs.sum(-1, keepdims=True)}
    means = [batch["centre"] + batch["sum_mean"] / number for number, batch in zip(members, batches, strict=True)]
    mean = np.average(means, axis=0, weights=shares)
    own_means = (batch["sum_mean"] / number for number, batch in zip(members, batches, strict=True))
    within = average("sum_squares") - sum(share * np.square(own) for share, own in zip(shares, own_means, strict=True))
    between = sum(share * np.square(own - mean) for share, own in zip(shares, means, strict=True))
    return {"mean": mean, "epistemic": within + between, "aleatoric": average("sum_variance_clipped")}


def diagnose(problem: ToyProblem, batches: Sequence[Arrays], settings: ReferenceSettings) -> dict[str, Any]:
    """Return facts on convergence as plain data: of all chains together, then of each batch."""
    inside = problem.inside.numpy()[batches[0]["trace_points"]]
    report: dict[str, Any] = {"traced_points": len(inside), "traced_points_inside": int(inside.sum())}
    for number, output in enumerate(OUTPUTS[problem.kind]):
        traces = np.concatenate([batch["trace"][number] for batch in batches])
        report[output] = {"train": summary(traces[:, :, inside]), "outside": summary(traces[:, :, ~inside])}
    report["batches"] = [batch_summary(number, batch, settings) for number, batch in enumerate(batches)]
    return report


def summary(traces: Array) -> dict[str, float | None]:
    """Return rank-normalised split R-hat and bulk effective sample size over grid points (Vehtari et al. 2021).

    traces: (chain, draw, point). Points with equal draws have no R-hat and are left out.
    """
    arviz = import_arviz()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = arviz.convert_to_dataset({"prediction": traces.astype(np.float64)})
        r_hat, size = arviz.rhat(data)["prediction"].values, arviz.ess(data)["prediction"].values

    def quantile(values: Array, share: float) -> float | None:
        known = values[np.isfinite(values)]
        return float(np.quantile(known, share)) if len(known) else None

    return {
        "r_hat_median": quantile(r_hat, 0.5),
        "r_hat_95": quantile(r_hat, 0.95),
        "r_hat_max": quantile(r_hat, 1.0),
        "r_hat_within_limit": float(np.mean(r_hat <= R_HAT_LIMIT)),
        "ess_median": quantile(size, 0.5),
        "ess_min": quantile(size, 0.0),
    }


def batch_summary(number: int, batch: Arrays, settings: ReferenceSettings) -> dict[str, Any]:
    """Return energies and trees of one batch."""
    draws = settings.nuts.samples * settings.chains
    quantiles = zip(("5", "median", "95"), np.quantile(batch["energy"], (0.05, 0.5, 0.95)), strict=True)
    thirds = zip(("first_third", "last_third"), batch["energy_first_and_last"], strict=True)
    return {
        "start": "prior" if number % 2 == 0 else "trained",
        **{f"energy_{name}": float(energy) for name, energy in (*quantiles, *thirds)},
        "divergences": float(batch["diverging"].sum() / draws),
        "full_trees": float(batch["saturated"].sum() / draws),
        "acceptance": float(batch["acceptance"].mean()),
        **{name: float(batch[name]) for name in ("step_size", "seconds", "start_seconds")},
        **json.loads(str(batch["origin"])),
    }
