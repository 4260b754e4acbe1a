"""Street scenes as files in the layouts of other data sets."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from epibench.data.sets.synscapes import published_ids
from epibench.street import StreetDataset
from epibench.street.export import export


def write_street(scenes: StreetDataset, layout: str, folder: Path, *options: Any) -> None:
    """Write all scenes."""
    list(export(scenes, layout, folder, *options))


def write_scenes(layout: str, folder: Path, count: int, domain: str = "clean", split: str = "val") -> None:
    """Write scenes of 64×128 pixels in the layout of a data set."""
    write_street(StreetDataset("depth", domain, count, seed=3, size=(64, 128)), layout, folder, split)


def write_synscapes(folder: Path) -> dict[str, list[int]]:
    """Write the published scenes of Synscapes as links to seven scenes, and return the scenes left out by split."""
    write_scenes("synscapes", folder / "scenes", 7)
    absent = {split: published_ids(split)[5:31] for split in ("train", "val")}
    for kind in ("rgb-2k", "class"):
        (folder / "synscapes/img" / kind).mkdir(parents=True)
        for number in {*published_ids("train"), *published_ids("val")}.difference(*absent.values()):
            scene = folder / "scenes/img" / kind / f"{1 + number % 7}.png"
            os.link(scene, folder / "synscapes/img" / kind / f"{number}.png")
    return absent
