"""Named choices that every result depends on: conventions, and the uncertainties that pixels are sorted by.

A convention is a set of metric choices. `pooled` is ours: all valid pixels of the evaluation set together.
`gustafsson2020` reproduces how the numbers of "Evaluating Scalable Bayesian Deep Learning Methods for Robust Computer
Vision" were made. docs/metrics.md has both.
"""

from __future__ import annotations

from typing import Literal, get_args

from epibench.errors import InputError

Convention = Literal["pooled", "gustafsson2020"]
CONVENTIONS: tuple[Convention, ...] = get_args(Convention)
# By kind of prediction; the first is the default.
UNCERTAINTIES: dict[str, tuple[str, ...]] = {
    "gaussian": ("total", "aleatoric", "epistemic"),
    "categorical": ("entropy", "mutual_information", "confidence"),
    "ranking": ("given", "spread"),
}


def check_convention(name: str) -> Convention:
    """Return `name` if it is a convention, else raise."""
    for convention in CONVENTIONS:
        if name == convention:
            return convention
    raise InputError(f"convention '{name}' is unknown; there are {', '.join(CONVENTIONS)}")


def check_uncertainty(kind: str, name: str | None) -> str:
    """The uncertainty to sort by: the kind's usual one by default."""
    known = UNCERTAINTIES[kind]
    if name is None:
        return known[0]
    if name not in known:
        raise InputError(f"uncertainty '{name}' is not one of {kind} predictions; these have {', '.join(known)}")
    return name
