"""Data sets, one file each: reader, options in a recipe, and texts for `data check`.

To add one, write its file and its line in DATA_SETS. Recipes and `data check`, with its help and errors, then accept
it; see docs/data.md.
"""

from __future__ import annotations

import operator
from functools import reduce
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from epibench.data.sets.camvid import CamVidSource
from epibench.data.sets.cityscapes import CityscapesSource
from epibench.data.sets.folder import FolderSource
from epibench.data.sets.kitti import KittiSource
from epibench.data.sets.own import OwnSource
from epibench.data.sets.street import StreetSource
from epibench.data.sets.synscapes import SynscapesSource
from epibench.data.sets.virtual_kitti import VirtualKittiSource
from epibench.data.source import Source

DATA_SETS: dict[str, type[Source]] = {
    "street": StreetSource,
    "kitti": KittiSource,
    "virtual_kitti": VirtualKittiSource,
    "cityscapes": CityscapesSource,
    "synscapes": SynscapesSource,
    "camvid": CamVidSource,
    "folder": FolderSource,
    "own": OwnSource,
}

if TYPE_CHECKING:
    AnySource = Source
else:  # a union that `kind` discriminates
    AnySource = Annotated[reduce(operator.or_, DATA_SETS.values()), Field(discriminator="kind")]
