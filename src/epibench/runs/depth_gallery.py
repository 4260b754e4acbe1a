"""What a gallery keeps of depth completion, and the pictures that it makes of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from epibench.data.batch import Batch
from epibench.runs.picture_encoding import grid, nearest, photo, thinned
from epibench.likelihoods import gaussian

SCALE = 1 / 64  # metres per count: finer steps are noise that no picture shows


class DepthPictures:
    """Keeps mean and variance of every member that is drawn."""

    def show(self, batch: Batch, place: int, step: int) -> dict[str, Tensor]:
        """What went in, and the truth: 0 where it is not known."""
        target = torch.where(batch.valid[place], batch.target[place], 0.0)
        return {
            "image": thinned(batch.inputs["image"][place], step),
            "sparse_depth": nearest(batch.inputs["sparse_depth"][place, 0], step).cpu().clone(),
            "target": nearest(target, step).cpu().clone(),
        }

    def begin(self, outputs: Mapping[str, Tensor], num_members: int) -> dict[str, Tensor]:
        """Room for all members. outputs: of the first, (row, column)."""
        return {name: torch.zeros(num_members, *values.shape) for name, values in outputs.items()}

    def add(self, kept: Mapping[str, Tensor], outputs: Mapping[str, Tensor], number: int) -> None:
        """Put what a member predicts, (row, column), where it belongs; number: its place in the draw."""
        for name, values in outputs.items():
            kept[name][number] = values.cpu().float()

    def picture(self, kept: Mapping[str, Tensor], num_members: int) -> dict[str, Any]:
        """Mean and standard deviation of the draw."""
        size = kept["mean"].shape[1:]
        flat = {name: kept[name].flatten(1) for name in ("mean", "variance")}
        predictive = gaussian.combine(flat, torch.full((1, num_members), 1 / num_members))
        return {
            "photo": photo(kept["image"]),
            "sparse_depth": grid(kept["sparse_depth"], SCALE),
            "target": grid(kept["target"], SCALE),
            "mean": grid(predictive.mean.view(size), SCALE),
            "std": grid(predictive.variance.sqrt().view(size), SCALE),
        }
