"""What a gallery keeps of segmentation, and the pictures that it makes of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from epibench.data.batch import Batch
from epibench.data.classes import IGNORE
from epibench.runs.picture_encoding import class_map, grid, photo, thinned
from epibench.likelihoods import categorical

SCALE = 1 / 256  # nats per count


class ClassPictures:
    """Keeps the sum of the members' probabilities: all logits of a pool would take gigabytes."""

    def show(self, batch: Batch, place: int, step: int) -> dict[str, Tensor]:
        """The image and the true classes, IGNORE where there are none."""
        target = torch.where(batch.valid[place], batch.target[place], IGNORE)
        return {
            "image": thinned(batch.inputs["image"][place], step),
            "target": thinned(target, step).to(torch.uint8),
        }

    def begin(self, outputs: Mapping[str, Tensor], num_members: int) -> dict[str, Tensor]:
        """No probability yet. outputs: of the first member, logits (row, column, class)."""
        return {"sum": torch.zeros(outputs["logits"].shape)}

    def add(self, kept: Mapping[str, Tensor], outputs: Mapping[str, Tensor], number: int) -> None:
        """Add the probabilities of a member; number: its place in the draw."""
        kept["sum"].add_(torch.softmax(outputs["logits"].float(), -1).cpu())

    def picture(self, kept: Mapping[str, Tensor], num_members: int) -> dict[str, Any]:
        """The most probable class of the draw, and its predictive entropy."""
        probs = kept["sum"].double() / num_members
        return {
            "photo": photo(kept["image"]),
            "target": class_map(kept["target"]),
            "predicted": class_map(probs.argmax(-1)),
            "uncertainty": grid(categorical.entropy(probs), SCALE),
        }
