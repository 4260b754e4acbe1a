"""The log of one training: a table beside the weights, or a logger of Lightning.

W&B and MLflow have one run for each network. A file beside the weights keeps its id, so that a resumed training
continues it from the last step of the service. No log has a step twice.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from epibench.errors import InputError
from epibench.files import read_json, write_json
from epibench.imported import load_object, signature_error
from epibench.runs.checkpoints import Checkpoints
from epibench.runs.folder import locked
from epibench.training.state import LogRow

TRACKING = "MLFLOW_TRACKING_URI"
PROJECT = "epibench"  # in W&B, unless WANDB_PROJECT names another
WANDB_STEP = "trainer/global_step"  # as Lightning's logger calls it
WAIT_SECONDS = 0.1


def check_log(kind: str) -> None:
    """Refuse a log whose packages or logger are missing, before anything is trained.

    Raises:
        InputError: A package is not installed, or the named logger cannot be called as `TrainingLogger` does.
    """
    if ":" in kind:
        if problem := signature_error(load_object(kind, "a logger"), {"save_dir": "", "name": "", "version": ""}):
            raise InputError(f"training.log={kind}: {problem}. Fix: give one that takes save_dir, name and version.")
        return
    # MLflow keeps a file of its own with sqlalchemy, which the small package mlflow-skinny does not bring.
    needed = {kind: kind, **({"sqlalchemy": kind} if kind == "mlflow" and not os.environ.get(TRACKING) else {})}
    for module, package in {**needed, "lightning": "lightning"}.items() if kind in OPENED else ():
        if find_spec(module) is None:
            raise InputError(f"training.log={kind} needs the package {package}: pip install {package}, or take csv")


class TrainingLogger:
    """The log of one network.

    Args:
        kind: Setting `training.log`.
        files: Files of the training.
        rows: Rows of a resumed training so far. Missing rows are added to the log.
        settings: Settings of the training, for logging services.
    """

    def __init__(
        self, kind: str, files: Checkpoints, rows: Sequence[LogRow] = (), settings: Mapping[str, Any] | None = None
    ) -> None:
        check_log(kind)
        self.kind, self.files = kind, files
        self.table = files if kind == "csv" else None
        self.note = files.path(f"{kind}.json")
        opened: Opened = (None, 0)
        if kind in OPENED:
            opened = OPENED[kind](self, settings or {})
        elif ":" in kind:
            opened = self._open_named(settings or {}, rows[-1].step if rows else 0)
        self.logger, self.last = opened
        for row in rows:
            self.add(row)

    def _open_named(self, settings: Mapping[str, Any], last: int) -> Opened:
        """Return the logger of `package.module:name`. A resumed training has its own version."""
        version = f"{self.files.name}-from-{last}" if last else self.files.name
        with _reached(self.kind, "check the logger, or take csv"):
            save_dir, method = self.run_folder / "logs", self.files.folder.name
            logger = load_object(self.kind, "a logger")(save_dir=save_dir, name=method, version=version)
            logger.log_hyperparams(dict(settings))
        return logger, last

    @property
    def run_folder(self) -> Path:
        """The folder of the run, whose name groups its networks."""
        return self.files.folder.resolve().parents[1]

    @property
    def name(self) -> str:
        """The name of the network's own run: `ensemble 0003`."""
        return f"{self.files.folder.name} {self.files.name}"

    def add(self, row: LogRow) -> None:
        """Add a row to the log, unless the log has its step."""
        if self.logger is None or row.step <= self.last:
            return
        self.last = row.step
        try:
            self.logger.log_metrics({"loss": row.loss, "rate": row.rate}, row.step)
        except Exception as error:  # a failing log must not stop hours of training
            text = f"training.log={self.kind}: {self.name}: {_one_line(error)}; the rest of this training is not logged"
            warnings.warn(text, stacklevel=1)
            self.logger = None

    def write(self, rows: Sequence[LogRow]) -> None:
        """Write the table of all rows so far."""
        if self.table is not None:
            self.table.write_log(rows)

    def close(self, done: bool = True) -> None:
        """Close the log. `done`: whether training has finished."""
        if self.logger is None:
            return
        if self.kind == "wandb":
            self.logger.experiment.finish(exit_code=0 if done else 1)
        else:
            self.logger.finalize("success" if done else "failed")

    @property
    def run_id(self) -> str | None:
        """The id of this training's run at a service; None if it has not begun."""
        note = read_json(self.note) or {}
        return note.get("id") if note.get("fingerprint") == self.files.fingerprint else None

    @run_id.setter
    def run_id(self, known: str) -> None:
        write_json(self.note, {"fingerprint": self.files.fingerprint, "id": known})


Opened = tuple[Any, int]  # a logger, and the last step that it has


def _tensorboard(log: TrainingLogger, settings: Mapping[str, Any]) -> Opened:
    """Write all rows again: a killed process may not have written its last rows."""
    from lightning.fabric.loggers.tensorboard import TensorBoardLogger

    version = f"{log.files.name}-tensorboard"
    for file in (log.files.folder / version).glob("events.out.tfevents.*"):
        file.unlink()
    return TensorBoardLogger(log.files.folder, name="", version=version), 0


def _wandb(log: TrainingLogger, settings: Mapping[str, Any]) -> Opened:
    """Continue a run; offline, the incomplete file of a killed process is replaced unless it was uploaded."""
    import wandb
    from lightning.pytorch.loggers import WandbLogger

    known = log.run_id
    for folder in log.run_folder.glob(f"wandb/offline-run-*-{known}") if known else ():
        if not any(folder.glob("*.synced")):
            shutil.rmtree(folder)
    log.run_folder.mkdir(parents=True, exist_ok=True)  # W&B uses another folder if this one is missing
    with _reached("wandb", "log in with wandb login, set WANDB_MODE=offline, or take csv"):
        run: Any = wandb.init(
            name=log.name,
            id=known or secrets.token_hex(8),
            resume="allow",
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            group=log.run_folder.name,
            dir=log.run_folder,
            config=dict(settings),
            settings=wandb.Settings(silent=True, console="off"),  # the run prints its own messages
        )
    log.run_id = run.id
    run.define_metric("*", step_metric=WANDB_STEP, step_sync=True)
    return WandbLogger(experiment=run), int(run.summary.get(WANDB_STEP, 0)) if run.resumed else 0


def _mlflow(log: TrainingLogger, settings: Mapping[str, Any]) -> Opened:
    """Open a run at MLFLOW_TRACKING_URI, by default in a file of the run folder."""
    for name in ("mlflow", "alembic", "lightning.pytorch.loggers.mlflow"):
        logging.getLogger(name).setLevel(logging.ERROR)
    from lightning.pytorch.loggers import MLFlowLogger

    known, place, server = log.run_id, log.run_folder, os.environ.get(TRACKING)
    with _reached("mlflow", f"check {TRACKING}, or take csv"), _alone(place / "mlflow.lock"):
        logger = MLFlowLogger(
            experiment_name=place.name,
            run_name=log.name,
            run_id=known,
            tracking_uri=server or f"sqlite:///{place / 'mlflow.db'}",
            artifact_location=None if server else (place / "mlartifacts").as_uri(),
        )
        run_id = str(logger.run_id)
        if known is None:
            logger.log_hyperparams(dict(settings))
        steps = [one.step for one in logger.experiment.get_metric_history(run_id, "loss")]
    log.run_id = run_id
    return logger, max(steps, default=0)


OPENED: dict[str, Callable[[TrainingLogger, Mapping[str, Any]], Opened]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


@contextmanager
def _reached(kind: str, remedy: str) -> Iterator[None]:
    """Turn an error of a logging service into an InputError of one line."""
    try:
        yield
    except Exception as error:
        raise InputError(f"training.log={kind}: {_one_line(error)}; {remedy}") from None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold a lock, because two processes cannot set up one database at the same time."""
    while True:
        with locked(path) as mine:
            if mine:
                yield
                return
        time.sleep(WAIT_SECONDS)


def _one_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
