"""Reads a results dict into entries that the page can ask; text is cleaned and undefined numbers are None."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from epibench.report.metric_info import PER_CLASS, ordered
from epibench.report.numbers import finite

MUCH_OVERLAP = 0.5
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")

Values = list[float | None]


@dataclass(frozen=True)
class Stat:
    """A mean over draws with its std; either may be undefined."""

    mean: float | None
    std: float | None
    n: int


@dataclass(frozen=True)
class Curve:
    """One curve at one M: the mean over draws and its std, if there is one."""

    x: list[float]
    mean: Values
    std: Values


@dataclass(frozen=True)
class Entry:
    """One scored file, or one method of a run on one domain, with a short label and a place in the order of styles."""

    index: int
    label: str
    kind: str
    summary: dict[str, Any]
    curves: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    unit: str = ""
    overlaps: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)  # all that a scored file says, such as its path and notes

    @property
    def members(self) -> list[int]:
        """Every M that was scored, ascending."""
        return sorted(int(m) for m in self.summary)

    @property
    def metrics(self) -> list[str]:
        """Metrics of any M that are single numbers, in the order of the page."""
        names = [name for metrics in self.summary.values() for name in metrics]
        return [name for name in ordered(names, self.kind) if not self._is_list(name)]

    def _is_list(self, name: str) -> bool:
        means = [metrics[name].get("mean") for metrics in self.summary.values() if name in metrics]
        return name.endswith(PER_CLASS) or any(isinstance(mean, list) for mean in means)

    def stat(self, name: str, m: int) -> Stat:
        """A metric at an M."""
        found = self.summary.get(str(m), {}).get(name) or {}
        return Stat(finite(found.get("mean")), finite(found.get("std")), _whole(found.get("n")))

    def per_class(self, name: str, m: int) -> list[Stat]:
        """A metric of each class at an M; empty if there is none."""
        found = self.summary.get(str(m), {}).get(name) or {}
        means, stds, n = found.get("mean"), found.get("std"), _whole(found.get("n"))
        if not isinstance(means, list):
            return []
        if not isinstance(stds, list) or len(stds) != len(means):
            stds = [None] * len(means)
        return [Stat(finite(mean), finite(std), n) for mean, std in zip(means, stds, strict=True)]

    def overlap(self, m: int) -> float | None:
        """The share of members that two draws have in common."""
        return finite(self.overlaps.get(str(m)))

    def overlaps_much(self, m: int) -> bool:
        """Whether draws share so many members that their std says little; one draw alone has no std."""
        return self.num_draws(m) > 1 and (self.overlap(m) or 0.0) > MUCH_OVERLAP

    def num_draws(self, m: int) -> int:
        """How many draws were scored at an M."""
        return max((_whole(stat.get("n")) for stat in self.summary.get(str(m), {}).values()), default=0)

    def curve(self, name: str, part: str, m: int) -> Curve | None:
        """One part of a curve at an M, if it was kept."""
        kept, places = walk(self.curves, name, "M", str(m), part), walk(self.curves, name, "x")
        means = walk(kept, "mean")
        if not isinstance(means, list) or not isinstance(places, list) or not means or len(means) != len(places):
            return None
        mean = [finite(value) for value in means]
        std = [finite(value) for value in walk(kept, "std") or [None] * len(mean)]
        return Curve([float(x) for x in places], mean, std)


def _whole(value: object) -> int:
    """A count; 0 where there is none."""
    return int(finite(value) or 0)


def walk(tree: Any, *keys: str) -> Any:
    """What lies at the end of some keys; None where a part of the way is missing."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


def clean(value: Any) -> Any:
    """The value, its texts without what HTML cannot hold: control characters, halves of surrogate pairs."""
    if isinstance(value, dict):
        return {clean(key): clean(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [clean(inner) for inner in value]
    if isinstance(value, str):
        return _CONTROL.sub("\ufffd", value.encode("utf-8", "replace").decode("utf-8"))
    return value


def read_entries(results: dict[str, Any]) -> list[Entry]:
    """All files of a results dict, each with its own label; styles start anew for each kind."""
    files = results.get("files") or []
    seen: Counter[str] = Counter()
    entries = []
    for file, label in zip(files, distinct_labels(files), strict=True):
        entries.append(_scored_file(seen[str(file.get("kind"))], label, file))
        seen[str(file.get("kind"))] += 1
    return entries


def _scored_file(index: int, label: str, file: dict[str, Any]) -> Entry:
    return Entry(
        index,
        label,
        kind=str(file.get("kind") or "unknown"),
        summary=file["summary"],
        curves=file.get("curves") or {},
        domain=str(file.get("domain") or ""),
        unit=str(file.get("unit") or ""),
        overlaps=file.get("overlap") or {},
        raw=file,
    )


def distinct_labels(files: Sequence[dict[str, Any]]) -> list[str]:
    """The shortest names that tell files of a kind apart: the method, with the domain, with the path."""
    stems = [PurePath(str(file.get("path", ""))).stem or "predictions" for file in files]
    methods = [str(file.get("method") or stem) for file, stem in zip(files, stems, strict=True)]
    domains = [
        f"{method} on {file['domain']}" if file.get("domain") else method
        for file, method in zip(files, methods, strict=True)
    ]
    paths = [f"{method} ({file.get('path', '')})" for file, method in zip(files, methods, strict=True)]
    kinds = [str(file.get("kind")) for file in files]
    for labels in (methods, domains, paths):
        if len(set(zip(labels, kinds, strict=True))) == len(files):
            return labels
    return [f"{number} {label}" for number, label in enumerate(paths, start=1)]


def common_members(entries: Sequence[Entry]) -> list[int]:
    """Every M that all of the entries were scored at."""
    return sorted(set.intersection(*(set(entry.members) for entry in entries))) if entries else []


def comparable(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Entries in groups whose numbers can be compared: one domain, one unit."""
    groups: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry.domain, entry.unit), []).append(entry)
    return list(groups.values())
