"""What the results of every run begin with, and what they say of each method before its numbers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import torch

from epibench.evaluation.pool import Drawn
from epibench.runs.environment import environment
from epibench.recipes import Recipe, changes
from epibench.results import VERSION


def heading(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """Versions, commit, device, time and recipe of a run."""
    return {
        "version": VERSION,
        **environment(device),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "recipe": recipe.model_dump(mode="json"),
        "changes": changes(recipe),
    }


def method_facts(
    recipe: Recipe, name: str, num_networks: int, pool: Drawn, notes: Sequence[str] = ()
) -> dict[str, Any]:
    """What a reader should know of a method before its numbers."""
    return {
        "label": recipe.label(name),
        "method": recipe.method(name).name,
        "num_networks": num_networks,
        "num_members": pool.num_members,
        "num_groups": None if pool.group is None else len(set(pool.group)),
        "plan": pool.plan,
        "notes": list(notes),
    }
