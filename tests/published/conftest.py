from collections.abc import Callable
from typing import Any

import pytest

from epibench.results import MethodFacts, RunResults

RunOf = Callable[..., RunResults]


@pytest.fixture(scope="session")
def run_of() -> RunOf:
    """A function from the name of a recipe and some parts to the results of a run, with one method of such a pool."""

    def make(name: str, method: str = "ensemble", pool: dict[str, Any] | None = None, **parts: Any) -> RunResults:
        versions = dict.fromkeys(("epibench", "torch", "python", "device", "created", "problem"), "")
        empty: dict[str, Any] = {part: {} for part in ("summary", "curves", "draws", "pictures", "cost")}
        sizes = {"num_networks": 1024, "num_members": 1024, "num_groups": None, **(pool or {})}
        facts = MethodFacts(label=method, method=method, plan="random", **sizes)
        recipe = {"name": name, **parts.pop("recipe", {})}
        made = {**versions, **empty, "recipe": recipe, "methods": {method: facts}, **parts}
        return RunResults(commit=None, changes=[], kind="gaussian", seconds=0.0, **made)

    return make
