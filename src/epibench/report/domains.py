"""The domains of dense runs: which there are, what role they play, and the methods' entries on each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from epibench.report.class_styles import class_styles
from epibench.report.entries import Entry, walk
from epibench.report.metric_info import HEADLINES, metric_info, sort_key
from epibench.report.numbers import finite
from epibench.report.runs import Method, Run

ROLES = {"in-domain": "in-domain", "shifted": "shifted"}


@dataclass(frozen=True)
class Domain:
    """One evaluation domain, as the results describe it."""

    name: str
    label: str
    role: str
    severity: float | None
    num_images: float | None
    num_pixels: float | None

    @property
    def shifted(self) -> bool:
        """Whether it differs from what the methods were trained on."""
        return self.role != ROLES["in-domain"]


def domains_of(runs: Sequence[Run]) -> list[Domain]:
    """The domains that runs describe, each once, in their order; empty for problems that have none."""
    found: dict[str, Domain] = {}
    for run in runs:
        for name, about in run.part("domains").items():
            found.setdefault(name, _domain(name, about if isinstance(about, dict) else {}))
    return list(found.values())


def _domain(name: str, about: dict[str, Any]) -> Domain:
    return Domain(
        name,
        label=str(about.get("label") or name),
        role=str(about.get("role") or ROLES["shifted"]),
        severity=finite(about.get("severity")),
        num_images=finite(about.get("num_images")),
        num_pixels=finite(about.get("num_pixels")),
    )


def entries_on(methods: Sequence[Method], domain: str) -> list[Entry]:
    """The methods that were scored on a domain."""
    return [entry for method in methods if (entry := entry_on(method, domain)).members]


def entry_on(method: Method, domain: str) -> Entry:
    """A method on one domain, as figures and tables want it; the domain is said once, above them."""
    results = method.run.results
    styles = class_styles(results, domain)
    return Entry(
        method.index,
        method.label,
        method.run.kind,
        _summary(_part(results, "summary", method.name, domain)),
        _part(results, "curves", method.name, domain),
        unit=str(results.get("unit") or ""),
        overlaps=_part(results, "overlap", method.name),
        raw={
            **method.about,
            "class_names": list(styles.names),
            "class_colours": list(styles.colours),
            "draws": _draws(results, method.name, domain),
        },
    )


def _part(results: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """What results hold at the end of some keys; empty where it is missing, null or something else."""
    found = walk(results, *keys)
    return dict(found) if isinstance(found, Mapping) else {}


def _summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics for each M without those that are null."""
    return {
        str(m): {name: stat for name, stat in metrics.items() if isinstance(stat, Mapping)}
        for m, metrics in found.items()
        if isinstance(metrics, Mapping) and metrics and str(m).isdigit()
    }


def _draws(results: Mapping[str, Any], method: str, domain: str) -> list[dict[str, Any]]:
    found = _part(results, "draws", method).get(domain)
    return [draw for draw in found if isinstance(draw, dict)] if isinstance(found, list) else []


def featured(domains: Sequence[Domain], methods: Sequence[Method]) -> list[Domain]:
    """The domain that methods were trained for and the hardest shift; of those that any method was scored on."""
    scored = [domain for domain in domains if entries_on(methods, domain.name)]
    inside, outside = ([d for d in scored if d.shifted is shifted] for shifted in (False, True))
    hardest = max(outside, key=lambda d: _hardness(d, methods), default=None)
    return [*inside[:1], *([hardest] if hardest else [])]


def _hardness(domain: Domain, methods: Sequence[Method]) -> tuple[float, float]:
    """The methods' mean error at their largest M, and the severity where that is the same or unknown."""
    entries = entries_on(methods, domain.name)
    name = HEADLINES.get(entries[0].kind, ("ause",))[-1]
    means = [entry.stat(name, entry.members[-1]).mean for entry in entries]
    keys = [sort_key(metric_info(name).better, mean) for mean in means if mean is not None]
    return (sum(keys) / len(keys) if keys else -float("inf")), domain.severity or 0.0
