"""The folder of a run: `recipe.json`, `members/`, `results.json`, `report.html`; every file is written in one step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from epibench.errors import InputError
from epibench.recipes.settings import first_difference, fixed
from epibench.results import write_json
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
        place, wanted = self.path / "recipe.json", recipe.model_dump(mode="json")
        if place.exists():
            try:
                there = json.loads(place.read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise InputError(f"{place}: not a readable recipe ({error}); give another --out") from None
            if not isinstance(there, dict):
                raise InputError(f"{place}: not a recipe; give another --out")
            if (difference := first_difference(fixed(there), fixed(wanted))) is not None:
                raise InputError(f"{self.path} holds a run of another recipe: {difference}; give another --out")
            return
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path} is a file: give a folder")
        if self.path.exists() and any(self.path.iterdir()):
            raise InputError(f"--out {self.path} is not empty and holds no run: give a new folder")
        try:
            write_json(place, wanted)
        except OSError as error:
            raise InputError(f"--out {self.path}: cannot be written to ({error.strerror})") from None

    def members(self, method: str) -> Path:
        """The trained parameters of a method."""
        return self.path / "members" / f"{method}.safetensors"

    def unfinished(self, method: str) -> Path:
        """Where the training of a method stands."""
        return self.path / "members" / f"{method}.unfinished.safetensors"

    def load_members(self, method: str) -> tuple[Tensor, dict[str, Any]] | None:
        """The parameters, (network, snapshot, parameter), and what was noted of their training, if it has finished."""
        found = load_tensors(self.members(method))
        return None if found is None else (found[0]["parameters"], found[1])

    def save_members(self, method: str, parameters: Tensor, notes: Mapping[str, Any]) -> None:
        """Keep the parameters; the unfinished state is not needed any more."""
        save_tensors(self.members(method), {"parameters": parameters}, notes)
        self.unfinished(method).unlink(missing_ok=True)

    def load_state(self, method: str, device: torch.device) -> tuple[State, dict[str, Any]] | None:
        """Where training stopped, if it has begun."""
        found = load_tensors(self.unfinished(method))
        if found is None:
            return None
        tensors, notes = {name: tensor.to(device) for name, tensor in found[0].items()}, found[1]
        rule = {name.removeprefix("rule."): tensor for name, tensor in tensors.items() if name.startswith("rule.")}
        return State(int(notes["epoch"]), tensors["parameters"], rule, tensors["kept"]), notes

    def save_state(self, method: str, state: State, notes: Mapping[str, Any]) -> None:
        """Keep where training stands."""
        rule = {f"rule.{name}": tensor for name, tensor in state.rule.items()}
        tensors = {"parameters": state.parameters, "kept": state.kept, **rule}
        save_tensors(self.unfinished(method), tensors, {**notes, "epoch": state.epoch})


def save_tensors(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, Any]) -> None:
    """Write tensors and notes in one step; nothing in such a file is ever executed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        save_file(plain, beside, metadata={"notes": json.dumps(dict(notes))})
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and notes, or None where there is no file."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="pt") as file:
            notes = json.loads((file.metadata() or {}).get("notes", "{}"))
            return {name: file.get_tensor(name) for name in file.keys()}, notes  # noqa: SIM118  (it is no dict)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path}: not readable ({error}); remove it, and it is made anew") from None
