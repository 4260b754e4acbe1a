"""The pictures of a dense run: for each domain some images, with what went in and what each method made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from epibench.report.class_pictures import ClassPanels
from epibench.report.depth_pictures import DepthPanels
from epibench.report.domains import Domain
from epibench.report.numbers import finite, m_equals
from epibench.report.picture_panels import PanelRow, picture_methods
from epibench.report.runs import Method, Run
from epibench.report.switches import Option, Switch

MAX_IMAGES = 4
PANELS: dict[str, type[DepthPanels | ClassPanels]] = {"gaussian": DepthPanels, "categorical": ClassPanels}


@dataclass(frozen=True)
class PictureLayer:
    """All panels of one image."""

    option: Option
    caption: str
    rows: list[PanelRow]


@dataclass(frozen=True)
class DomainPictures:
    """Some images of one domain, to switch between."""

    identity: str
    domain: Domain
    run: Run
    switch: Switch
    layers: list[PictureLayer]


def domain_pictures(
    run: Run, methods: Sequence[Method], domains: Sequence[Domain], identity: str
) -> list[DomainPictures]:
    """The pictures of a run on each domain, on scales that are common to all; empty where it has none."""
    found = {domain.name: _pictures(run, domain) for domain in domains}
    everything = [picture for pictures in found.values() for picture in pictures]
    if not everything or run.kind not in PANELS:
        return []
    panels = PANELS[run.kind](run, everything)
    books = []
    for number, domain in enumerate(domains):
        layers = [_layer(panels, place, one, domain, methods) for place, one in enumerate(found[domain.name])]
        if layers:
            switch = Switch("image", "Image", [layer.option for layer in layers])
            books.append(DomainPictures(f"{identity}-{number}", domain, run, switch, layers))
    return books


def _pictures(run: Run, domain: Domain) -> list[dict[str, Any]]:
    found = run.part("pictures").get(domain.name)
    kept = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return kept[:MAX_IMAGES]


def _layer(
    panels: DepthPanels | ClassPanels, place: int, picture: dict[str, Any], domain: Domain, methods: Sequence[Method]
) -> PictureLayer:
    number = str(picture.get("image", place))
    found = {finite(one.get("M")) for one in picture_methods(picture).values()}
    members = ", ".join(m_equals(int(m)) for m in sorted(m for m in found if m is not None))
    caption = f"{domain.label}, image {number}{f', predictions at {members}' if members else ''}"
    return PictureLayer(Option(str(place), number, place == 0), caption, list(panels.rows(picture, methods, domain)))
