from collections.abc import Callable
from typing import Any

import pytest

from epibench.results import DomainFacts, MethodFacts, PoolSize, Results, Score

RunOf = Callable[..., Results]


@pytest.fixture(scope="session")
def run_of() -> RunOf:
    """A function from the name of a recipe and some parts to the results of a run, with one method of such a pool.

    scores: the summary and draws, and the unit, of the method on each domain.
    """

    def make(
        name: str,
        method: str = "ensemble",
        pool: dict[str, Any] | None = None,
        recipe: dict[str, Any] | None = None,
        scores: dict[str, dict[str, Any]] | None = None,
    ) -> Results:
        about = {"method": method, "settings": {}, "kind": "gaussian"}
        size = PoolSize(**{"num_members": 1024, "num_networks": 1024, **(pool or {})})
        return Results(
            epibench="",
            torch="",
            problem="",
            recipe={"name": name, **(recipe or {})},
            methods={method: MethodFacts(label=method, method=method)},
            domains={domain: DomainFacts(label=domain, role="role unknown") for domain in scores or {}},
            scores=[Score(domain=domain, pool=size, **about, **parts) for domain, parts in (scores or {}).items()],
        )

    return make
