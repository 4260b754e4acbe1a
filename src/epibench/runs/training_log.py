"""Where losses and rates of a training are logged: a table, TensorBoard, or nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epibench.errors import InputError
from epibench.runs.checkpoints import Checkpoints
from epibench.training.dense import LogRow


class TrainingLog:
    """A log that rows are added to as they come; this one keeps nothing."""

    def add(self, row: LogRow) -> None:
        """One more row."""

    def write(self, rows: Sequence[LogRow]) -> None:
        """All rows so far, whenever the state of training is saved."""

    def close(self) -> None:
        """There is nothing more to come."""


class CsvLog(TrainingLog):
    """A table beside the weights, written whole, so that it never has a row twice."""

    def __init__(self, files: Checkpoints):
        self.files = files

    def write(self, rows: Sequence[LogRow]) -> None:
        """Write the whole table."""
        self.files.write_log(rows)


class TensorBoardLog(TrainingLog):
    """TensorBoard's own files, in a folder beside the weights; rows after `step` are of a training that was stopped."""

    def __init__(self, files: Checkpoints, step: int):
        check_log("tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        writer: Any = SummaryWriter
        self.writer = writer(files.folder / f"{files.network:04d}-tensorboard", purge_step=step + 1)

    def add(self, row: LogRow) -> None:
        """Add a point to both curves."""
        self.writer.add_scalar("loss", row.loss, row.step)
        self.writer.add_scalar("rate", row.rate, row.step)

    def close(self) -> None:
        """Write what is left."""
        self.writer.close()


def check_log(kind: str) -> None:
    """Say what is missing for a log of that kind."""
    try:
        if kind == "tensorboard":
            from torch.utils.tensorboard import SummaryWriter  # noqa: F401
    except ImportError:
        raise InputError(
            "training.log=tensorboard needs the package tensorboard: pip install tensorboard, or take csv"
        ) from None


def open_log(kind: str, files: Checkpoints, step: int) -> TrainingLog:
    """The log of that kind, going on after a step."""
    if kind == "tensorboard":
        return TensorBoardLog(files, step)
    return CsvLog(files) if kind == "csv" else TrainingLog()
