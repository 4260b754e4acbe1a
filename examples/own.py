"""A network, a method and a data set of one's own; docs/own.md shows how a recipe takes them."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from epibench.data.batch import Batch
from epibench.data.classes import table_of_names
from epibench.methods.optimised import Optimised
from epibench.plans import Plan


class TinyNetwork(nn.Module):
    """Three convolutions; what it predicts at half the resolution is interpolated by whoever asks."""

    dropout_places = ("layers.1",)

    def __init__(self, num_classes: int, width: int = 16):
        super().__init__()
        first = nn.Sequential(nn.Conv2d(3, width, 3, stride=2, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        second = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        self.layers = nn.Sequential(first, second, nn.Conv2d(width, num_classes, 1))

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Logits, (image, class, height / 2, width / 2)."""
        logits: Tensor = self.layers(inputs["image"].float() / 255 - 0.5)
        return logits


class LastEpochs(Optimised):
    """The networks at the ends of the last epochs of each training are its members: many for the price of one."""

    name: ClassVar[str] = "last_epochs"
    label: ClassVar[str] = "Last epochs"

    num_networks: int = Field(2, ge=1)
    num_snapshots: int = Field(4, ge=1)

    @property
    def num_trained(self) -> int:
        """Trainings."""
        return self.num_networks

    @property
    def largest_draw(self) -> int:
        """All snapshots of one training."""
        return len(self.keep)

    @property
    def plan(self) -> Plan:
        """M snapshots of one training, evenly spread."""
        return "spread"

    @property
    def keep(self) -> tuple[int, ...]:
        """The last epochs."""
        return tuple(range(max(1, self.num_epochs - self.num_snapshots + 1), self.num_epochs + 1))


class Boards:
    """Chessboards on grass, in daylight or at dusk; a few pixels have no label."""

    classes = table_of_names(("grass", "dark square", "light square"), "boards")

    def __init__(self, num_boards: int, light: float = 1.0, seed: int = 0):
        self.num_boards, self.light, self.seed = num_boards, light, seed

    def __len__(self) -> int:
        return self.num_boards

    def __getitem__(self, index: int) -> Batch:
        generator = torch.Generator().manual_seed(self.seed * self.num_boards + index)
        top, left = (int(place) for place in torch.randint(4, 12, (2,), generator=generator))
        target = torch.zeros(32, 48, dtype=torch.int64)
        rows, columns = torch.meshgrid(torch.arange(16), torch.arange(24), indexing="ij")
        target[top : top + 16, left : left + 24] = 1 + (rows // 4 + columns // 4) % 2
        colours = torch.tensor([[60, 140, 60], [70, 50, 30], [220, 200, 160]])[target].movedim(-1, 0)
        noise = 25 * torch.randn(colours.shape, generator=generator)
        image = (self.light * colours + noise).clamp(0, 255).to(torch.uint8)
        valid = torch.rand(target.shape, generator=generator) < 0.98
        return Batch({"image": image}, target.masked_fill(~valid, 255), valid)
