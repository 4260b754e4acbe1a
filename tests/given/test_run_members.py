"""The networks of a run as given models: what decides a member decides what is known of it."""

from __future__ import annotations

from pathlib import Path

from small_dense_recipe import small_dense

import epibench
from made_up_images import made_up_images


def test_members_that_are_made_of_weights_are_others_with_other_options(tmp_path: Path) -> None:
    """Scores that lie in a folder are taken for those of the same members alone."""
    settings = 'methods=["ensemble", "swag"]', "ensemble.num_epochs=1"
    found, data = [], made_up_images(1)
    for scale in (1.0, 0.5, 1.0):
        recipe = small_dense(tmp_path / "cache", *settings, f"swag.scale={scale}")
        epibench.train(recipe, tmp_path / "run", device="cpu", jobs=1)
        of_methods = {}
        for method in ("ensemble", "swag"):
            models, out = f"run:{tmp_path / 'run'},method={method}", tmp_path / method
            results = epibench.evaluate(models, {"made-up": data}, members=[1], out=out, device="cpu")
            of_methods[method] = [draw.metrics["nll"] for draw in results.scores[0].draws]
        found.append(of_methods)
    first, other, again = found
    assert first == again
    assert len({*first["swag"], *other["swag"]}) == 8  # two samples of two networks
    assert first["ensemble"] == other["ensemble"]
