"""Pictures of a dense run as numbers: some images, and what a draw of each method predicts for them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from epibench.data.batch import Batch
from epibench.likelihoods import gaussian

MAX_WIDTH = 512
DEPTH_SCALE = 1 / 64  # metres per count: finer steps are noise that no picture shows
COUNTS = 2**16 - 1


@dataclass
class Gallery:
    """Keeps what the members of one draw predict for some images, while a pass over a domain goes by."""

    images: Sequence[int]
    members: Sequence[int]
    kept: dict[str, Tensor] = field(default_factory=dict)

    def see(self, batch: Batch, images: range, members: slice, outputs: Mapping[str, Tensor]) -> None:
        """Keep outputs of the members that are drawn, and the images themselves."""
        for image in self.images:
            if image not in images:
                continue
            place = image - images.start
            if members.start <= self.members[0] < members.stop:
                shown = {**batch.inputs, "target": batch.target, "valid": batch.valid}
                self.kept |= {f"{image}.{name}": values[place].cpu().clone() for name, values in shown.items()}
            for member in self.members:
                if members.start <= member < members.stop:
                    for name, values in outputs.items():
                        self.kept[f"{image}.{name}.{member}"] = values[member - members.start, place].cpu().clone()

    def state(self) -> dict[str, Tensor]:
        """What it has kept."""
        return self.kept

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from what was kept."""
        self.kept = dict(saved)

    def close(self) -> None:
        """There is nothing to close."""

    def pictures(self) -> dict[int, dict[str, Any]]:
        """For each image what was seen, and mean and standard deviation of the draw."""
        return {image: self._picture(image) for image in self.images if f"{image}.target" in self.kept}

    def _picture(self, image: int) -> dict[str, Any]:
        kept = self.kept
        target = torch.where(kept[f"{image}.valid"], kept[f"{image}.target"], 0.0)
        height, width = target.shape
        outputs = {
            name: torch.stack([kept[f"{image}.{name}.{member}"].flatten() for member in self.members])
            for name in ("mean", "variance")
        }
        predictive = gaussian.combine(outputs, torch.full((1, len(self.members)), 1 / len(self.members)))
        step = -(-width // MAX_WIDTH)
        return {
            "image": image,
            "height": -(-height // step),
            "width": -(-width // step),
            "photo": photo(kept[f"{image}.image"][:, ::step, ::step]),
            "sparse_depth": grid(smaller(kept[f"{image}.sparse_depth"][0], step)),
            "target": grid(smaller(target, step)),
            "M": len(self.members),
            "mean": grid(predictive.mean.view(height, width)[::step, ::step]),
            "std": grid(predictive.variance.sqrt().view(height, width)[::step, ::step]),
        }


def evenly(number: int, total: int) -> list[int]:
    """So many numbers of 0 … total − 1, spread evenly."""
    number = min(number, total)
    return [(2 * place + 1) * total // (2 * number) for place in range(number)]


def smaller(depth: Tensor, step: int) -> Tensor:
    """A smaller map of sparse depth: the nearest point of each square that has one."""
    if step == 1:
        return depth
    far = torch.where(depth > 0, -depth, -torch.inf)
    nearest = torch.nn.functional.max_pool2d(far[None, None], step, ceil_mode=True)[0, 0]
    return torch.where(torch.isfinite(nearest), -nearest, 0.0)


def photo(image: Tensor) -> str:
    """A colour picture, (channel, height, width) uint8, as text."""
    return _encoded(Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy())), "JPEG", quality=88)


def grid(values: Tensor, scale: float = DEPTH_SCALE) -> dict[str, Any]:
    """Numbers as a 16-bit grey picture and the metres of one count."""
    scale = max(scale, float(values.max()) / COUNTS)
    counts = (values.double() / scale).round().clamp(0, COUNTS).numpy().astype(np.uint16)
    return {"scale": scale, "png": _encoded(Image.fromarray(counts), "PNG")}


def _encoded(picture: Image.Image, layout: str, **options: Any) -> str:
    stream = io.BytesIO()
    picture.save(stream, layout, **options)
    return base64.b64encode(stream.getvalue()).decode("ascii")
