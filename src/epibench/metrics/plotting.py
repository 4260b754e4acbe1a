"""Plots of metrics with matplotlib, which is imported only when a plot is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from epibench.metrics.info import MetricInfo

Plotted = tuple[Any, Any]  # figure and axes; no figure if the axes were given
PER_CLASS = "_per_class"


@dataclass(frozen=True)
class CurvePlot:
    """The plot of a metric's curves: names, abscissa, labels, and whether the diagonal is ideal."""

    curves: tuple[str, ...]
    x_label: str
    y_label: str
    x: str = "x"
    diagonal: bool = False


def plot_curves(curves: Mapping[str, Tensor], how: CurvePlot, ax: Any = None) -> Plotted:
    """Draw curves, (point,) or (draw, point), over their abscissa."""
    figure, axes = axes_for(ax)
    if how.diagonal:
        axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1, label="ideal")
    for number, name in enumerate(how.curves):
        ordinates = curves[name].detach().cpu().reshape(-1, curves[name].shape[-1])
        abscissae = curves[how.x].detach().cpu().expand_as(ordinates)
        for draw, (x, y) in enumerate(zip(abscissae, ordinates, strict=True)):
            label = "_" if draw else name.replace("_", " ")  # matplotlib omits labels with _ from the legend
            marker = "o" if len(x) <= 20 else None  # few points are bins, which may be empty
            axes.plot(x.numpy(), y.numpy(), color=f"C{number}", marker=marker, label=label)
    axes.set_xlabel(how.x_label)
    axes.set_ylabel(how.y_label)
    axes.grid(True, alpha=0.3)
    axes.legend()
    return figure, axes


def plot_values(values: Any, infos: Mapping[str, MetricInfo], ax: Any = None) -> Plotted:
    """Draw the result of `compute()` or `forward()`, or a list of results.

    A result is drawn as dots, a list as a line over the steps. Values that accompany another one (`ause_bound`) are
    left out of dicts. Values of each class are left out if there are other values.
    """
    figure, axes = axes_for(ax)
    over_steps = isinstance(values, Sequence)
    steps = [
        {next(iter(infos)): step} if isinstance(step, Tensor) else step for step in (values if over_steps else [values])
    ]
    series = {name: [step[name].detach().cpu().reshape(-1) for step in steps] for name in shown(steps[0], infos)}
    for number, (name, value) in enumerate(series.items()):
        title = infos[name].title if name in infos else name
        if not over_steps:
            _dots(axes, value[0], title, number)
        else:
            points = [each.numpy() for each in value]
            labels = [title] if len(points[0]) == 1 else [f"{title} {column}" for column in range(len(points[0]))]
            axes.plot(range(len(points)), points, marker="o", label=labels)
    axes.set_xlabel("step" if over_steps else _x_label(series))
    if axes.get_xlabel():
        axes.xaxis.get_major_locator().set_params(integer=True)
    else:
        axes.set_xticks([])
    axes.grid(True, alpha=0.3)
    axes.legend()
    return figure, axes


def shown(values: Mapping[str, Tensor], infos: Mapping[str, MetricInfo]) -> list[str]:
    """Return the names of values to draw together."""
    main = [name for name in values if name not in infos or infos[name].companion_of not in values]
    return [name for name in main if not name.endswith(PER_CLASS)] or main


def axes_for(ax: Any) -> Plotted:
    """Return new axes in a new figure, or the given axes."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError:
        raise ModuleNotFoundError("plot() needs matplotlib, which is not installed: pip install matplotlib") from None
    return plt.subplots() if ax is None else (None, ax)


def _dots(axes: Any, values: Tensor, title: str, number: int) -> None:
    """One dot, or one for each class or draw."""
    places = range(len(values)) if len(values) > 1 else [number]
    axes.plot(places, values.numpy(), marker="o", markersize=8, linestyle="None", color=f"C{number}", label=title)


def _x_label(series: Mapping[str, list[Tensor]]) -> str:
    if all(name.endswith(PER_CLASS) for name in series):
        return "class"
    return "draw" if any(value.numel() > 1 for (value,) in series.values()) else ""
