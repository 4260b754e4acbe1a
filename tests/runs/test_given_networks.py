"""Networks of a run as models: what tells them apart when they are evaluated again."""

from pathlib import Path

import torch
from silent_reporter import run_in
from small_dense_recipe import small_dense

from epibench.runs.given_inputs import run_models
from epibench.runs.machine import Machine

SMALL = (
    'methods=["laplace"]',
    "members=[1]",
    "laplace.num_networks=1",
    "ensemble.num_members=1",
    "evaluation.pictures=0",
)


def test_what_is_fitted_with_other_options_is_another_model(tmp_path: Path) -> None:
    def told(precision: float) -> list[str | None]:
        run_in(tmp_path / "run", small_dense(tmp_path / "cache", *SMALL, f"laplace.precision={precision}"))
        models = run_models(tmp_path / "run", {"method": "laplace"}, Machine(torch.device("cpu"), jobs=1, workers=0))
        return [model.fingerprint for model in models]

    first, other, again = told(1.0), told(1e6), told(1.0)
    assert len({*first, *other}) == 4  # two samples each
    assert first == again
