"""Networks of a run as models: scores of other options are not reused."""

from pathlib import Path

import torch
from silent_reporter import run_in
from small_dense_recipe import small_dense

import epibench

SMALL = (
    'methods=["laplace"]',
    "members=[1]",
    "laplace.num_networks=1",
    "ensemble.num_members=1",
    "evaluation.pictures=0",
)


def test_a_model_fitted_with_other_options_is_evaluated_again(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    depth = 1 + 9 * torch.rand((32, 64), generator=generator)
    image = torch.randint(0, 256, (3, 32, 64), dtype=torch.uint8, generator=generator)
    data = {"val": [{"image": image, "sparse_depth": depth[None], "target": depth}]}

    def scores(precision: float) -> list[float]:
        run_in(tmp_path / "run", small_dense(tmp_path / "cache", *SMALL, f"laplace.precision={precision}"))
        model = f"run:{tmp_path / 'run'},method=laplace"
        results = epibench.evaluate(model, data, task="depth", members=[1], out=tmp_path / "out", device="cpu")
        return [draw.metrics["nll"] for draw in results.scores[0].draws]

    first, other, again = scores(1.0), scores(1e6), scores(1.0)
    assert len({*first, *other}) == 4  # two samples each
    assert first == again
