"""Titles and directions of metrics for pages and tables, and the order in which these show them."""

from __future__ import annotations

from collections.abc import Iterable

from epibench.metrics.info import INFOS, Better, MetricInfo

PER_CLASS = "_per_class"  # how metrics that have a value for each class end
HEADLINES = {
    "gaussian": ("ause", "auce", "rmse"),
    "categorical": ("ause", "ece", "miou"),
    "ranking": ("ause", "rmse", "miou"),
}
# On a page these metrics come first; other metrics follow in their own order.
ORDER = (
    *("ause", "ause_inverted", "auce", "auce_signed", "ece", "ece_adaptive", "ence", "interval_length"),
    *("rmse", "mae", "abs_rel", "sq_rel", "delta1", "delta2", "delta3", "silog", "rmse_log", "log10", "irmse"),
    *("miou", "accuracy", "brier", "nll", "nll_gaussian", "crps", "crps_gaussian", "interval_score"),
    *(f"{name}{PER_CLASS}" for name in ("iou", "accuracy", "ause", "ece", "brier", "nll", "share")),
)
BETTER_TEXT: dict[Better, str] = {
    "lower": "↓ lower is better",
    "higher": "↑ higher is better",
    "zero": "0 is ideal",
    "neither": "",
}


def metric_info(name: str) -> MetricInfo:
    """Facts about a metric; an unknown metric has its name as its title, and no direction."""
    return INFOS.get(name) or MetricInfo(name, name, "", "neither", "Other metrics")


def ordered(names: Iterable[str], kind: str) -> list[str]:
    """Metrics without companions, e.g. `ause_bound` of `ause`: headline, known, then unknown metrics."""
    present = list(dict.fromkeys(names))
    shown = [name for name in present if metric_info(name).companion_of not in present]
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys((*HEADLINES.get(kind, ()), *ORDER)))}
    return sorted(shown, key=lambda name: ranks.get(name, len(ranks)))


def sort_key(better: Better, value: float) -> float:
    """A number that is smaller for a better value."""
    return {"lower": value, "higher": -value, "zero": abs(value), "neither": 0.0}[better]
