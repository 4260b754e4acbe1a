"""What training leaves on disk: kept networks, the state of an unfinished one, the log; every file in one step."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from epibench.errors import InputError
from epibench.runs.tensors import Saved, load_tensors, save_tensors
from epibench.files import write_text
from epibench.training.dense import DenseState, LogRow


@dataclass(frozen=True)
class Checkpoints:
    """The files of one network of a method. stamp: a key of everything that decides its weights; keep: epochs."""

    folder: Path
    network: int
    stamp: str
    keep: tuple[int, ...]

    def step(self) -> int:
        """The step that training goes on from, or 0."""
        found = load_tensors(self.unfinished, self.stamp, only_notes=True)
        return 0 if found is None else int(found.number("step"))

    def weights(self, snapshot: int) -> Path:
        """Parameters and buffers by name, as `load_state_dict` takes them; one file for each kept epoch."""
        epoch = f"-{self.keep[snapshot]:06d}" if len(self.keep) > 1 else ""
        return self.folder / f"{self.network:04d}{epoch}.safetensors"

    @property
    def unfinished(self) -> Path:
        """Where training stands."""
        return self.folder / f"{self.network:04d}.unfinished.safetensors"

    @property
    def diverged(self) -> Path:
        """That training has failed, and how."""
        return self.folder / f"{self.network:04d}.diverged.txt"

    @property
    def log(self) -> Path:
        """Losses and rates as a table."""
        return self.folder / f"{self.network:04d}.csv"

    def finished(self) -> Saved | None:
        """What is noted of the last kept network, if training has ended."""
        return load_tensors(self.weights(len(self.keep) - 1), self.stamp, only_notes=True)

    def load_weights(self, snapshot: int) -> dict[str, Tensor]:
        """A kept network."""
        path = self.weights(snapshot)
        found = load_tensors(path, self.stamp)
        if found is None:
            raise InputError(f"{path}: a trained network is missing; run the same command again")
        return found.tensors

    def save_weights(self, epoch: int, weights: Mapping[str, Tensor], log: Sequence[LogRow], seconds: float) -> None:
        """Keep a network; after the last one the unfinished state is not needed any more."""
        notes = {"stamp": self.stamp, "epoch": epoch, "seconds": seconds, "log": [list(row) for row in log]}
        save_tensors(self.weights(self.keep.index(epoch)), weights, notes)
        if epoch == self.keep[-1]:
            self.unfinished.unlink(missing_ok=True)

    def save_state(self, state: DenseState, seconds: float, machine: str) -> None:
        """Keep where training stands; machine: the kind of device and the precision, which it has to go on with."""
        tensors = {"parameters": state.parameters}
        tensors |= {f"rule.{name}": tensor for name, tensor in state.rule.items()}
        tensors |= {f"buffer.{name}": tensor for name, tensor in state.buffers.items()}
        notes = {"stamp": self.stamp, "step": state.step, "seconds": seconds, "machine": machine}
        save_tensors(self.unfinished, tensors, {**notes, "log": [list(row) for row in state.log]})

    def load_state(self, machine: str) -> tuple[DenseState, float] | None:
        """Where training stopped and the seconds so far, if it has begun."""
        found = load_tensors(self.unfinished, self.stamp)
        if found is None:
            return None

        def part(prefix: str) -> dict[str, Tensor]:
            return {name.removeprefix(prefix): each for name, each in found.tensors.items() if name.startswith(prefix)}

        if "parameters" not in found.tensors:
            raise found.complaint("it holds no parameters")
        step = int(found.number("step"))
        state = DenseState(step, found.tensors["parameters"], part("rule."), part("buffer."), log_of(found))
        seconds = found.number("seconds")
        if (there := found.notes.get("machine")) != machine:
            raise InputError(
                f"{self.unfinished}: this training began on {there}, not on {machine}; go on there (--device), "
                f"or remove the file to begin anew"
            )
        return state, seconds

    def write_log(self, log: Sequence[LogRow]) -> None:
        """Write the whole log so far."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(LogRow._fields)
        writer.writerows(log)
        write_text(self.log, text.getvalue())


def log_of(saved: Saved) -> tuple[LogRow, ...]:
    """The log in the notes of a file."""
    rows = saved.notes.get("log")
    try:
        return tuple(LogRow(int(step), float(loss), float(rate)) for step, loss, rate in rows or [])
    except (TypeError, ValueError):
        raise saved.complaint("its log cannot be read") from None
