"""The files of a training: kept weights, the state of an unfinished training, and the log.

Stacked small networks and large networks have the same format: one file of tensors and notes for each kept epoch. Every
file holds the fingerprint of its settings and a checksum of its content. Every file is written atomically.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from epibench.errors import InputError
from epibench.files import fingerprint, remove, write_bytes, write_text
from epibench.training.state import LogRow, TrainingState, Weights

MADE_ANEW = "remove it, and it is made anew"


class OtherSettingsError(InputError):
    """A file was made with other settings or other data."""


@dataclass(frozen=True)
class TensorFile:
    """The content of a file of tensors and notes. Reading a missing or wrong entry raises an InputError."""

    path: Path
    tensors: dict[str, Tensor]
    notes: dict[str, Any]

    def number(self, name: str) -> float:
        """Return a number of the notes; raise an InputError unless it is finite and at least 0."""
        value = self.notes.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise self.complaint(f"its '{name}' is {value!r}")
        return float(value)

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with a prefix, named without it."""
        return {name.removeprefix(prefix): each for name, each in self.tensors.items() if name.startswith(prefix)}

    def log(self) -> tuple[LogRow, ...]:
        """Return the training log of the notes."""
        try:
            rows = self.notes.get("log") or []
            return tuple(LogRow(int(step), float(loss), float(rate)) for step, loss, rate in rows)
        except (TypeError, ValueError):
            raise self.complaint("its log cannot be read") from None

    def complaint(self, problem: str) -> InputError:
        """Return an InputError that names the file, the problem and the fix."""
        return InputError(f"{self.path}: {problem}; {MADE_ANEW}")


def save_tensors(path: Path, tensors: Weights, notes: Mapping[str, Any]) -> None:
    """Write tensors and notes atomically, with checksums."""
    plain, seen = dict[str, Tensor](), set[int]()
    for name, tensor in tensors.items():
        kept = tensor.detach().cpu().contiguous()
        plain[name] = kept.clone() if kept.data_ptr() in seen else kept  # a file cannot hold tied weights once
        seen.add(kept.data_ptr())
    text = json.dumps(dict(notes), sort_keys=True)
    metadata = {"notes": text, "checksum": checksum(plain), "notes_checksum": text_checksum(text)}
    write_bytes(path, save(plain, metadata))


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of tensors with their names, dtypes and shapes."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().data.cast("B"))
    return digest.hexdigest()


def text_checksum(text: str) -> str:
    """Return a hash of a file's notes."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def load_tensors(path: Path, fingerprint: str, only_notes: bool = False) -> TensorFile | None:
    """Return the content of a file, or None if the file is missing.

    Raises:
        InputError: The file is unreadable or damaged.
        OtherSettingsError: The file has another fingerprint.
    """
    if not path.exists():
        return None
    try:
        path.open("rb").close()  # safetensors reports a file without read permission as missing
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            notes = json.loads(metadata.get("notes", "{}"))
            tensors = {} if only_notes else {name: file.get_tensor(name) for name in list(file.keys())}
    except PermissionError:
        raise InputError(f"{path}: cannot be read (permission denied). Fix: give yourself read access.") from None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: not readable ({error}); {MADE_ANEW}") from None
    loaded = TensorFile(path, tensors, notes if isinstance(notes, dict) else {})
    if "checksum" not in metadata:
        raise loaded.complaint("damaged, or of another version: it has no checksum")
    damaged = metadata.get("notes_checksum") != text_checksum(metadata.get("notes", ""))
    if damaged or (not only_notes and metadata["checksum"] != checksum(tensors)):
        raise loaded.complaint("damaged: its checksum does not fit what it holds")
    if loaded.notes.get("fingerprint") != fingerprint:
        raise OtherSettingsError(str(loaded.complaint("made with other settings or other data than these")))
    return loaded


@dataclass(frozen=True)
class Checkpoints:
    """The files of one training: of a large network, or of networks that are trained as one stack.

    Args:
        folder: Folder of the files.
        networks: Numbers of the networks.
        fingerprint: Fingerprint of everything that decides the weights.
        keep: Epochs whose weights are kept.
    """

    folder: Path
    networks: tuple[int, ...]
    fingerprint: str
    keep: tuple[int, ...]

    @property
    def name(self) -> str:
        """The prefix of the file names.

        It is the network's number, or the first and the last number of the stack.
        """
        first, last = self.networks[0], self.networks[-1]
        return f"{first:04d}" if first == last else f"{first:04d}-{last:04d}"

    def weights(self, snapshot: int) -> Path:
        """Return the file of the weights of one kept epoch.

        A large network's file holds a state dictionary; a stack's file holds `parameters`: (network, parameter).
        """
        epoch = f".{self.keep[snapshot]:06d}" if len(self.keep) > 1 else ""
        return self.folder / f"{self.name}{epoch}.safetensors"

    def path(self, ending: str) -> Path:
        """Return a file of the whole training: `diverged.txt` (its failure), `csv` (its log) or `lock`."""
        return self.folder / f"{self.name}.{ending}"

    @property
    def unfinished(self) -> Path:
        """The file of the state of an unfinished training."""
        return self.path("unfinished.safetensors")

    def posterior(self, network: int) -> Path:
        """Return the file of the tensors that the method has fitted to a trained network."""
        return self.folder / f"{network:04d}.posterior.safetensors"

    def failure(self) -> str | None:
        """Return why this training has failed; None without a failure, or if its file is damaged or outdated."""
        try:
            text, _, check = self.path("diverged.txt").read_text(encoding="utf-8").strip().rpartition("\n")
        except (OSError, ValueError):
            return None
        return text if check == self._failure_check(text) else None

    def save_failure(self, text: str) -> None:
        """Write why training has failed, and remove its unfinished state."""
        write_text(self.path("diverged.txt"), f"{text}\n{self._failure_check(text)}\n")
        remove(self.unfinished)

    def _failure_check(self, text: str) -> str:
        return f"fingerprint {fingerprint(self.fingerprint, text)}"

    def step(self) -> int:
        """Return the step from which training resumes, or 0."""
        state = load_tensors(self.unfinished, self.fingerprint, only_notes=True)
        return 0 if state is None else int(state.number("step"))

    def finished(self) -> TensorFile | None:
        """Return the notes of the last kept weights, or None if a file of weights is missing."""
        if not all(self.weights(snapshot).exists() for snapshot in range(len(self.keep))):
            return None
        return self._kept(len(self.keep) - 1, only_notes=True)

    def _kept(self, snapshot: int, only_notes: bool = False) -> TensorFile | None:
        """Return the content of a snapshot's file; raise an InputError if it holds another epoch."""
        kept = load_tensors(self.weights(snapshot), self.fingerprint, only_notes)
        if kept is not None and kept.notes.get("epoch") != self.keep[snapshot]:
            raise kept.complaint(f"it does not hold the weights after epoch {self.keep[snapshot]}")
        return kept

    def load_weights(self, snapshot: int) -> dict[str, Tensor]:
        """Return the weights of a snapshot; raise an InputError if their file is missing."""
        kept = self._kept(snapshot)
        if kept is None:
            raise InputError(f"{self.weights(snapshot)}: trained weights are missing; run the same command again")
        return kept.tensors

    def save_weights(self, epoch: int, weights: Weights, log: Sequence[LogRow], seconds: float) -> None:
        """Write the weights of an epoch. After the last kept epoch, remove the unfinished state."""
        notes = {"fingerprint": self.fingerprint, "epoch": epoch, "seconds": seconds, "log": [list(row) for row in log]}
        save_tensors(self.weights(self.keep.index(epoch)), weights, notes)
        if epoch == self.keep[-1]:
            remove(self.unfinished)

    def save_state(self, state: TrainingState, seconds: float, machine: str) -> None:
        """Write the state of an unfinished training.

        Args:
            state: State of the training.
            seconds: Seconds of training so far.
            machine: Device type and precision. Training can resume only with the same ones.
        """
        tensors = {"parameters": state.parameters}
        tensors |= {f"rule.{name}": tensor for name, tensor in state.rule.items()}
        tensors |= {f"buffer.{name}": tensor for name, tensor in state.buffers.items()}
        tensors |= {f"sum.{name}": tensor for name, tensor in state.sums.items()}
        notes = {"fingerprint": self.fingerprint, "step": state.step, "seconds": seconds, "machine": machine}
        save_tensors(self.unfinished, tensors, {**notes, "log": [list(row) for row in state.log]})

    def load_state(self, machine: str, device: torch.device | None = None) -> tuple[TrainingState, float] | None:
        """Return the saved state and the seconds so far, or None if no state is saved."""
        saved = load_tensors(self.unfinished, self.fingerprint)
        if saved is None:
            return None
        if "parameters" not in saved.tensors:
            raise saved.complaint("it holds no parameters")
        rule = {name: tensor.to(device) for name, tensor in saved.part("rule.").items()}
        parameters = saved.tensors["parameters"].to(device)
        parts = (saved.part("buffer."), saved.log(), saved.part("sum."))
        state = TrainingState(int(saved.number("step")), parameters, rule, *parts)
        if state.log and (state.log[-1].step > state.step or (state.log[-1].step < state.step and not state.sums)):
            raise saved.complaint(f"its log ends at step {state.log[-1].step}, not at {state.step}")
        seconds = saved.number("seconds")
        if (there := saved.notes.get("machine")) != machine:
            remedy = "go on there (--device), or remove the file to begin anew"
            raise InputError(f"{self.unfinished}: this training began on {there}, not on {machine}; {remedy}")
        return state, seconds

    def write_log(self, log: Sequence[LogRow]) -> None:
        """Write the whole log as CSV."""
        write_text(self.path("csv"), "".join(",".join(map(str, row)) + "\n" for row in (LogRow._fields, *log)))
