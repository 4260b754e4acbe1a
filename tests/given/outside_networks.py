"""Networks that were trained without epibench, in plain PyTorch, and the data that they are evaluated on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import Dataset

SIZE, NAMES = (20, 28), ("dark", "middle", "light")


class OutsideNetwork(nn.Module):
    """Classes of pixels at half the resolution, from images between 0 and 1."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.dropout = nn.Dropout2d(0.25)
        self.last = nn.Conv2d(width, len(NAMES), 1)

    def forward(self, image: Tensor) -> Tensor:
        logits: Tensor = self.last(self.dropout(torch.relu(self.first(image))))
        return logits


def make_picture(index: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """An image of blotches, (height, width, 3) uint8, and its classes, 255 in a corner."""
    rng = np.random.default_rng([index, round(100 * shift)])
    coarse = rng.uniform(0, 255, (5, 7, 3)).astype(np.uint8)
    image = np.asarray(Image.fromarray(coarse).resize(SIZE[::-1], Image.Resampling.BICUBIC)).astype(float)
    noisy = np.clip(image + shift * rng.normal(0, 60, image.shape), 0, 255).astype(np.uint8)
    classes = np.digitize(image.mean(2), [100, 150]).astype(np.uint8)
    classes[:2, :3] = 255
    return noisy, classes


class OutsideData(Dataset[tuple[Tensor, Tensor]]):
    """Images as floats between 0 and 1, with classes."""

    def __init__(self, number: int, shift: float = 0.0):
        self.number, self.shift = number, shift

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image, classes = make_picture(index, self.shift)
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255, torch.from_numpy(classes).long()


def train(seed: int, steps: int = 60) -> OutsideNetwork:
    """A plain training loop."""
    torch.manual_seed(seed)
    network, data = OutsideNetwork(), OutsideData(8)
    optimiser = torch.optim.Adam(network.parameters(), 0.03)
    for step in range(steps):
        image, classes = data[step % len(data)]
        logits = nn.functional.interpolate(network(image[None]), SIZE, mode="bilinear", align_corners=False)
        loss = nn.functional.cross_entropy(logits, classes[None], ignore_index=255)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return network.eval()


def write_folder(root: Path, number: int, shift: float = 0.0) -> Path:
    """The same pictures as files."""
    for name in ("images", "labels"):
        (root / name).mkdir(parents=True)
    for index in range(number):
        image, classes = make_picture(index, shift)
        Image.fromarray(image).save(root / "images" / f"{index:03}.png")
        Image.fromarray(classes).save(root / "labels" / f"{index:03}.png")
    return root
