"""Rendered street scenes (`epibench.street`), for both tasks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Literal

from pydantic import Field

from epibench.data.batch import Samples
from epibench.data.classes import Pairs
from epibench.data.source import CheckedSplit, Folders, Size, Source, Task
from epibench.street.dataset import StreetDataset
from epibench.street.domains import FACTORS, MAX_SEVERITY, Domain, make_domain
from epibench.street.frames import VERSION

EXACT = frozenset({"target"})  # factors whose omission keeps domains comparable: targets are then exact


class StreetSource(Source):
    """Rendered street scenes.

    Args:
        without: Factors of the shift that stay as in clean.
        mapping: Pairs of classes for networks with other classes than Cityscapes' (docs/data.md).
    """

    kind: Literal["street"] = "street"
    domain: str = "clean"
    severity: float | None = Field(None, ge=0, le=MAX_SEVERITY)
    without: tuple[str, ...] = ()
    num_images: int = Field(64, ge=1, le=10**7)
    seed: int = Field(0, ge=0)
    size: Size = (128, 256)
    mapping: Pairs | None = None

    @property
    def world(self) -> Domain:
        """The levels of all factors."""
        return make_domain(self.domain, self.severity).without(*self.without)

    @property
    def label(self) -> str:
        """The name on pages."""
        severity = "" if self.severity is None else f", severity {self.severity:g}"
        kept = ", ".join(factor for factor in self.without if factor not in EXACT)
        return f"street, {self.domain}{severity}" + (f", without {kept}" if kept else "")

    @property
    def version(self) -> str:
        """A version that changes when the same options give other scenes."""
        return str(VERSION)

    @property
    def origin(self) -> object:
        """The domain; clean for any name of a domain without shift."""
        world = self.world
        return Domain() if world == world.without(*FACTORS) else world

    @property
    def shift(self) -> float | None:
        """The severity of the shift from 0 to 5; None outside of this scale."""
        if not EXACT.issuperset(self.without) or self.domain not in ("clean", "wild"):
            return None
        return 0.0 if self.domain == "clean" else MAX_SEVERITY if self.severity is None else self.severity

    def open(self, task: Task, folders: Folders, key: str) -> Samples:
        """Return the scenes, which are kept on disk once they are rendered."""
        return StreetDataset(task, self.world, self.num_images, self.seed, self.size, cache=folders.cache)

    @classmethod
    def splits(cls, **options: Any) -> Iterator[CheckedSplit]:
        """Yield a scene of each domain for both tasks. No file is needed."""
        tasks: dict[str, Task] = {"": "depth", " classes": "segmentation"}
        for domain in ("clean", "wild"):
            for word, task in tasks.items():
                scene = partial(StreetDataset, task, domain, length=1, size=(128, 256))
                yield CheckedSplit(domain + word, task, None, [scene])
