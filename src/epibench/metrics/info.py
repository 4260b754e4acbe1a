"""How each value of a metric is named and read: title, direction, unit, group and meaning.

Every metric class declares `info`, which has an entry for each value that its `compute()` and `as_published()` return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Better = Literal["lower", "higher", "zero", "neither"]
Group = Literal["Ranking of errors", "Calibration", "Accuracy", "Proper scores", "Other metrics"]
GROUPS: tuple[Group, ...] = get_args(Group)


@dataclass(frozen=True)
class MetricInfo:
    """One value of a metric. in_unit: in the unit of the target; companion_of: the value that it belongs to."""

    name: str
    title: str
    meaning: str
    better: Better
    group: Group
    in_unit: bool = False
    companion_of: str | None = None


def describe(*infos: MetricInfo) -> dict[str, MetricInfo]:
    """The declaration of a metric: what it says of each value, by name."""
    return {info.name: info for info in infos}


def companion(of: MetricInfo, suffix: str, title: str, meaning: str) -> MetricInfo:
    """A value that is read together with another one, as `ause_bound` with `ause`."""
    return MetricInfo(
        f"{of.name}_{suffix}", f"{of.title}, {title}", meaning, "neither", of.group, of.in_unit, companion_of=of.name
    )


def as_published(of: MetricInfo) -> MetricInfo:
    """The same quantity as the paper measured it, beside ours."""
    return companion(of, "gustafsson2020", "as published", "The same pixels under the convention gustafsson2020.")


def bound(of: MetricInfo) -> MetricInfo:
    """How far a streamed value can be from the exact one."""
    return companion(of, "bound", "bound", "The exact value is no farther away than this.")
