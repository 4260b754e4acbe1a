"""Pictures of a dense run as numbers: some images, and what a draw of each method predicts for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from epibench.data.batch import Batch
from epibench.members.maps import Maps
from epibench.runs.class_gallery import ClassPictures
from epibench.runs.depth_gallery import DepthPictures
from epibench.runs.picture_encoding import step_for

PICTURES: dict[str, DepthPictures | ClassPictures] = {"gaussian": DepthPictures(), "categorical": ClassPictures()}


@dataclass
class Gallery:
    """Keeps what the members of one draw predict for some images, while a pass over a domain goes by."""

    images: Sequence[int]
    members: Sequence[int]
    kind: str = "gaussian"
    kept: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = sorted(self.members)  # as they come by

    def see(self, batch: Batch, images: range, members: slice, maps: Maps) -> None:
        """Keep outputs of the members that are drawn, and the images themselves."""
        drawn = [number for number, member in enumerate(self.members) if members.start <= member < members.stop]
        for image in self.images:
            if image in images:
                for number in drawn:
                    member = self.members[number] - members.start
                    self._see_member(batch, image, image - images.start, number, member, maps)

    def _see_member(self, batch: Batch, image: int, place: int, number: int, member: int, maps: Maps) -> None:
        """number: of the member within the draw; member: its place in the maps."""
        of_kind, (height, width) = PICTURES[self.kind], batch.target.shape[-2:]
        step = step_for(width)
        found = maps.rows(place, slice(0, height), slice(member, member + 1))
        outputs = {name: values[0, ::step, ::step] for name, values in found.items()}
        if number == 0:
            self._keep(image, of_kind.show(batch, place, step))
            self._keep(image, of_kind.begin(outputs, len(self.members)))
        of_kind.add(self._of_image(image), outputs, number)
        self.kept[f"{image}.seen"] = torch.tensor(number + 1)

    def _keep(self, image: int, found: Mapping[str, Tensor]) -> None:
        self.kept |= {f"{image}.{name}": values for name, values in found.items()}

    def _of_image(self, image: int) -> dict[str, Tensor]:
        start = f"{image}."
        return {name.removeprefix(start): values for name, values in self.kept.items() if name.startswith(start)}

    def state(self) -> dict[str, Tensor]:
        """What it has kept."""
        return self.kept

    def load_state(self, saved: Mapping[str, Tensor]) -> None:
        """Go on from what was kept; what was saved stays as it is."""
        self.kept = {name: values.clone() for name, values in saved.items()}

    def close(self) -> None:
        """There is nothing to close."""

    def pictures(self) -> dict[int, dict[str, Any]]:
        """For each image that all members have seen: what it shows, and what the draw predicts."""
        return {image: self._picture(image) for image in self.images if self._seen(image) == len(self.members)}

    def _seen(self, image: int) -> int:
        return int(self.kept.get(f"{image}.seen", torch.tensor(0)))

    def _picture(self, image: int) -> dict[str, Any]:
        kept, num_members = self._of_image(image), len(self.members)
        height, width = kept["image"].shape[-2:]
        about = {"image": image, "height": height, "width": width, "M": num_members}
        return about | PICTURES[self.kind].picture(kept, num_members)


def evenly(number: int, total: int) -> list[int]:
    """So many numbers of 0 … total − 1, spread evenly."""
    number = min(number, total)
    return [(2 * place + 1) * total // (2 * number) for place in range(number)]
