"""Networks that were trained without epibench, to be evaluated with it: plain PyTorch, and nothing else.

    epibench data export street --layout cityscapes --out clean --count 40 --size 96x192
    python examples/outside.py clean weights
    cd examples && epibench evaluate --model '../weights/*.pt,network=outside:Outside' --on clean=cityscapes:../clean …

docs/evaluate.md has all of it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

STEPS, BATCH, NETWORKS = 120, 8, 4


class Outside(nn.Module):
    """Classes of pixels at a quarter of the resolution; images from 0 to 1."""

    def __init__(self, num_classes: int = 19, width: int = 16):
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(3, width, 5, stride=2, padding=2), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, 2 * width, 3, stride=2, padding=1), nn.BatchNorm2d(2 * width), nn.ReLU()),
            *(nn.Conv2d(2 * width, 2 * width, 3, padding=2, dilation=2), nn.BatchNorm2d(2 * width), nn.ReLU()),
            *(nn.Conv2d(2 * width, 2 * width, 3, padding=4, dilation=4), nn.BatchNorm2d(2 * width), nn.ReLU()),
        )
        self.dropout, self.logits = nn.Dropout2d(0.2), nn.Conv2d(2 * width, num_classes, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Logits, (image, class, height / 4, width / 4)."""
        logits: Tensor = self.logits(self.dropout(self.features(image)))
        return logits


def read(folder: Path) -> tuple[Tensor, Tensor]:
    """All images, from 0 to 1, and their classes."""
    files = sorted((folder / "leftImg8bit").rglob("*.png"))
    images = [np.asarray(Image.open(file)) for file in files]
    names = [Path(str(file).replace("leftImg8bit", "gtFine")) for file in files]
    labels = [np.asarray(Image.open(str(name).replace("gtFine.png", "gtFine_labelTrainIds.png"))) for name in names]
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return pixels, torch.from_numpy(np.stack(labels)).long()


def train(images: Tensor, classes: Tensor, seed: int) -> Outside:
    """A plain training loop."""
    generator = torch.manual_seed(seed)
    network = Outside()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(STEPS):
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        logits = nn.functional.interpolate(network(images[chosen]), classes.shape[1:], mode="bilinear")
        loss = nn.functional.cross_entropy(logits, classes[chosen], ignore_index=255)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return network


def main(folder: str, weights: str) -> None:
    images, classes = read(Path(folder))
    Path(weights).mkdir(parents=True, exist_ok=True)
    for seed in range(NETWORKS):
        torch.save(train(images, classes, seed).state_dict(), Path(weights) / f"{seed}.pt")
        print(f"{weights}/{seed}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
