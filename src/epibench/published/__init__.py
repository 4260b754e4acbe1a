"""The numbers that the paper published, and how a run of ours stands to them.

Gustafsson, Danelljan and Schön, "Evaluating Scalable Bayesian Deep Learning Methods for Robust Computer Vision", 2020.
"""

from epibench.published.cells import (
    PoolSize,
    PublishedCell,
    combined_error,
    compare,
    distinct,
    grounds_of,
    independent_draws,
    standard_error,
    totals,
    warnings_of,
)
from epibench.published.figures import (
    Row,
    base_recipe,
    dense_figure,
    distinct_rows,
    is_quick,
    published_rows,
    toy_panel,
)

__all__ = [
    "PoolSize",
    "PublishedCell",
    "Row",
    "base_recipe",
    "combined_error",
    "compare",
    "dense_figure",
    "distinct",
    "distinct_rows",
    "grounds_of",
    "independent_draws",
    "is_quick",
    "published_rows",
    "standard_error",
    "totals",
    "toy_panel",
    "warnings_of",
]
