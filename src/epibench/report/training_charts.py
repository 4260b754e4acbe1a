"""The training loss of every network, which shows whether any of them failed to train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from epibench.report.charts import Decor, Layer, Series, line_chart
from epibench.report.figures import SMALL, Figure, band_ends
from epibench.report.numbers import count, finite, significant
from epibench.report.runs import Method
from epibench.report.svg import nice_axis


def training_figures(methods: Sequence[Method]) -> list[tuple[Method, Figure]]:
    """For each method with logged losses: a line per network over steps."""
    found = []
    for method in methods:
        series = [line for one in _logged(method) if (line := _line(one, method.index)) is not None]
        if ends := band_ends(series):
            steps = sorted({step for line in series for step in line.x})
            chart = line_chart(
                [Layer(series, {step: f"step {count(step)}" for step in steps} if len(series) <= 8 else {})],
                nice_axis(0.0, max(steps), "steps", pad=0.0),
                nice_axis(min(ends), max(ends)),
                f"Training loss of {len(series)} networks of {method.label} over steps",
                size=SMALL,
                decor=Decor(),
            )
            found.append((method, Figure(method.label, "", chart=chart)))
    return found


def _logged(method: Method) -> list[Any]:
    found = method.run.part("training").get(method.name)
    return found if isinstance(found, list) else []


def _line(logged: Any, style: int) -> Series | None:
    steps, loss = (logged.get(key) if isinstance(logged, dict) else None for key in ("steps", "loss"))
    if not isinstance(steps, list) or not isinstance(loss, list) or len(steps) != len(loss) or not steps:
        return None
    values = [finite(value) for value in loss]
    texts = [significant(value) for value in values]
    label = f"network {logged.get('network', '')}".rstrip()
    return Series(label, style, steps, values, [None] * len(values), texts, look="thin")
