"""The folder of a run: `recipe.json`, `members/`, `results.json`, `report.html`; every file is written in one step."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from pydantic import BaseModel
from torch import Tensor

from epibench.errors import InputError
from epibench.runs.tensors import load_tensors, save_tensors
from epibench.methods import Method, Problem
from epibench.recipes.settings import first_difference, fixed
from epibench.files import write_json
from epibench.training.stacked import State


@dataclass(frozen=True)
class RunFolder:
    """Where a run keeps what it has finished."""

    path: Path

    @property
    def results(self) -> Path:
        """Every number of the run."""
        return self.path / "results.json"

    @property
    def report(self) -> Path:
        """The page."""
        return self.path / "report.html"

    def claim(self, recipe: BaseModel) -> None:
        """Write the recipe, or check that the one that is there is the same: then the run goes on."""
        try:
            self._claim(recipe)
        except OSError as error:
            raise InputError(f"--out {self.path}: cannot be used ({error.strerror})") from None

    def _claim(self, recipe: BaseModel) -> None:
        place, wanted = self.path / "recipe.json", recipe.model_dump(mode="json")
        if place.exists():
            try:
                there = json.loads(place.read_text(encoding="utf-8"))
            except (ValueError, RecursionError) as error:
                raise InputError(f"{place}: not a readable recipe ({error}); give another --out") from None
            if not isinstance(there, dict):
                raise InputError(f"{place}: not a recipe; give another --out")
            if (difference := first_difference(fixed(there), fixed(wanted))) is not None:
                raise InputError(f"{self.path} holds a run of another recipe: {difference}; give another --out")
            return
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path} is a file: give a folder")
        if self.path.exists() and any(not entry.name.startswith(".") for entry in self.path.iterdir()):
            raise InputError(f"--out {self.path} is not empty and holds no run: give a new folder")
        write_json(place, wanted)

    def clean(self) -> None:
        """Remove what processes left that were killed while they wrote."""
        for path in self.path.rglob(".*.safetensors.*"):
            owner = path.name.rpartition(".")[2]
            if owner.isdecimal() and not _alive(int(owner)):
                path.unlink(missing_ok=True)

    def members(self, method: str) -> Path:
        """The trained parameters of a method."""
        return self.path / "members" / f"{method}.safetensors"

    def unfinished(self, method: str) -> Path:
        """Where the training of a method stands."""
        return self.path / "members" / f"{method}.unfinished.safetensors"

    def load_members(self, method: str, stamp: Stamp) -> tuple[Tensor, float] | None:
        """The parameters, (network, snapshot, parameter), and the seconds of their training, if it has finished."""
        found = load_tensors(self.members(method), stamp.key)
        if found is None:
            return None
        parameters = found.tensor("parameters", stamp.shape)
        return parameters, found.number("seconds")

    def save_members(self, method: str, stamp: Stamp, parameters: Tensor, seconds: float) -> None:
        """Keep the parameters; the unfinished state is not needed any more."""
        save_tensors(self.members(method), {"parameters": parameters}, {"stamp": stamp.key, "seconds": seconds})
        self.unfinished(method).unlink(missing_ok=True)

    def load_state(self, method: str, stamp: Stamp, device: torch.device) -> tuple[State, float] | None:
        """Where training stopped and the seconds so far, if it has begun."""
        found = load_tensors(self.unfinished(method), stamp.key)
        if found is None:
            return None
        networks, _, parameters = stamp.shape
        rule = {
            name.removeprefix("rule."): found.tensor(name, (networks, parameters)).to(device)
            for name in found.tensors
            if name.startswith("rule.")
        }
        own = found.tensor("parameters", (networks, parameters)).to(device)
        kept = found.tensor("kept", stamp.shape).to(device)
        return State(int(found.number("epoch")), own, rule, kept), found.number("seconds")

    def save_state(self, method: str, stamp: Stamp, state: State, seconds: float) -> None:
        """Keep where training stands."""
        rule = {f"rule.{name}": tensor for name, tensor in state.rule.items()}
        tensors = {"parameters": state.parameters, "kept": state.kept, **rule}
        notes = {"stamp": stamp.key, "seconds": seconds, "epoch": state.epoch}
        save_tensors(self.unfinished(method), tensors, notes)


@dataclass(frozen=True)
class Stamp:
    """What trained parameters belong to: a key of everything that decides them, and their shape."""

    key: str
    shape: tuple[int, int, int]

    @classmethod
    def of(cls, method: Method, problem: Problem, seed: int) -> Stamp:
        """The stamp of a method's training: its options, the problem with its data, and the seed."""
        training = method.training(problem)
        settings = {
            "method": [method.name, method.model_dump(mode="json")],
            "network": asdict(problem.network),
            "prior_scale": problem.prior_scale,
            "seed": seed,
        }
        key = hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=16)
        for tensor in (problem.data.inputs, problem.data.target):
            key.update(tensor.numpy().tobytes())
        return cls(key.hexdigest(), (method.num_trained, len(training.keep), problem.network.num_parameters))


def _alive(process: int) -> bool:
    """Whether there is a process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
