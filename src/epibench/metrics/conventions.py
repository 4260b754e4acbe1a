"""Named sets of metric choices. Every result names the convention it was computed under.

`pooled` is ours: all valid pixels of the evaluation set together. `gustafsson2020` reproduces how the numbers of
"Evaluating Scalable Bayesian Deep Learning Methods for Robust Computer Vision" were made. docs/metrics.md has both.
"""

from __future__ import annotations

from typing import Literal, get_args

Convention = Literal["pooled", "gustafsson2020"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)


def check_convention(name: str) -> Convention:
    """Return `name` if it is a convention, else raise."""
    for convention in CONVENTIONS:
        if name == convention:
            return convention
    raise ValueError(f"convention '{name}' is unknown; there are {', '.join(CONVENTIONS)}")
