"""The pictures of a run: what the reference and every method predict, as small multiples on common axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from epibench.report.numbers import m_equals
from epibench.report.predictive_band import BandPanels
from epibench.report.probability_map import MapPanels
from epibench.report.runs import Method, Run
from epibench.report.switches import Option, Switch

MAX_EXAMPLES = 3


@dataclass(frozen=True)
class Panel:
    """One picture and what it shows."""

    title: str
    chart: Markup
    style: int | None = None


@dataclass(frozen=True)
class PictureGroup:
    """Pictures that belong together; those of a method carry its style."""

    title: str
    panels: list[Panel]
    style: int | None = None


@dataclass(frozen=True)
class Pictures:
    """All pictures of one run."""

    identity: str
    run: Run
    shared: Markup
    switch: Switch
    groups: list[PictureGroup] = field(default_factory=list)


def pictures_of(run: Run, methods: Sequence[Method], identity: str) -> Pictures | None:
    """The pictures of a run; None where it has none."""
    found = run.part("pictures")
    if not isinstance(found.get("grid"), dict):
        return None
    panels = BandPanels(found, identity) if run.kind == "gaussian" else MapPanels(found, identity)
    groups = [PictureGroup("To compare with", [Panel(title, chart) for title, chart in panels.first()])]
    examples = {method.label: _examples(found, method) for method in methods}
    single = [method for method in methods if len(examples[method.label]) == 1]
    if alone := [panel for method in single for panel in _panels(panels, method, examples[method.label], alone=True)]:
        groups.append(PictureGroup("At one M only", alone))
    for method in methods:
        if len(examples[method.label]) > 1:
            groups.append(PictureGroup(method.label, _panels(panels, method, examples[method.label]), method.index))
    most = max((len(given) for of_method in examples.values() for given in of_method.values()), default=1)
    options = [Option(str(number), str(number), number == 1) for number in range(1, most + 1)]
    return Pictures(identity, run, panels.shared(), Switch("example", "Example", options), groups)


def _examples(pictures: dict[str, Any], method: Method) -> dict[int, list[dict[str, Any]]]:
    """Some predictions of a method for each M that it is pictured at."""
    found = (pictures.get("methods") or {}).get(method.name) or {}
    return {int(m): list(given)[:MAX_EXAMPLES] for m, given in found.items() if given}


def _panels(
    panels: BandPanels | MapPanels, method: Method, examples: dict[int, list[dict[str, Any]]], alone: bool = False
) -> list[Panel]:
    """A picture for each M; one that stands alone is named after its method."""
    return [
        Panel(
            f"{method.label}, {m_equals(m)}" if alone else m_equals(m),
            panels.method(f"{method.label}, {m_equals(m)}", examples[m], method.index),
            method.index if alone else None,
        )
        for m in sorted(examples)
    ]
