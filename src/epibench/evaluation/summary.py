"""Results from the metrics and curves of draws: each draw, and mean and standard deviation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from epibench.plans import evenly_spaced
from epibench.results import ClassStat, Curve, CurveFamilies, Curves, Draw, Stat, Summary

MAX_CURVES = 16  # draws of one M whose curves are kept
CURVE_DIGITS = 5  # significant ones, of the curves of single draws

Members = tuple[int, ...]


def per_draw(sets: Sequence[Members], values: Mapping[str, Tensor]) -> list[Draw]:
    """One entry per draw: its members and all its metrics. values: (draw,) or (draw, class)."""
    plain = {name: to_plain(value) for name, value in values.items()}
    return [
        Draw(M=len(members), members=list(members), metrics={name: plain[name][draw] for name in plain})
        for draw, members in enumerate(sets)
    ]


def summarise(sets: Sequence[Members], values: Mapping[str, Tensor]) -> Summary:
    """Mean and standard deviation over the draws of each size."""
    return {
        size: {name: statistics(value[numbers]) for name, value in values.items()}
        for size, numbers in draws_by_size(sets).items()
    }


def summarise_curves(sets: Sequence[Members], families: Mapping[str, Mapping[str, Tensor]]) -> CurveFamilies:
    """Mean and standard deviation of curves over the draws of each size, and the curves of some draws."""
    sizes = draws_by_size(sets)
    return {
        family: Curves(
            x=to_plain(curves["x"]),
            M={
                size: {name: _summarised(curve[numbers]) for name, curve in curves.items() if name != "x"}
                for size, numbers in sizes.items()
            },
        )
        for family, curves in families.items()
    }


def _summarised(curves: Tensor) -> Curve:
    """The curves of one size, (draw, point)."""
    mean, std = mean_and_std(curves)
    kept = to_plain(curves[evenly_spaced(len(curves), min(len(curves), MAX_CURVES))])
    return Curve(mean=mean, std=std, draws=[[_shortened(value) for value in curve] for curve in kept])


def _shortened(value: float | None) -> float | None:
    """Return a value with the digits that a drawing needs; counts stay integers."""
    return value if value is None or isinstance(value, int) else float(f"{value:.{CURVE_DIGITS}g}")


def draws_by_size(sets: Sequence[Members]) -> dict[int, list[int]]:
    """The numbers of the draws of each size M, ascending."""
    sizes = sorted({len(members) for members in sets})
    return {size: [number for number, members in enumerate(sets) if len(members) == size] for size in sizes}


def statistics(values: Tensor) -> Stat | ClassStat:
    """Mean and population standard deviation over draws, (draw,) or (draw, class)."""
    mean, std = mean_and_std(values)
    return (Stat if values.ndim == 1 else ClassStat)(mean=mean, std=std, n=len(values))


def mean_and_std(values: Tensor) -> tuple[Any, Any]:
    """Mean and population standard deviation over the first axis as plain numbers; no std for one draw."""
    values = values.to(torch.float64)
    std = values.std(0, correction=0) if values.shape[0] > 1 else None
    return to_plain(values.mean(0)), None if std is None else to_plain(std)


def to_plain(value: Tensor) -> Any:
    """Numbers or nested lists of them; None for what is not finite; counts stay whole."""

    def plain(item: Any) -> Any:
        if isinstance(item, list):
            return [plain(entry) for entry in item]
        return item if isinstance(item, int) or math.isfinite(item) else None

    return plain(value.tolist())
