"""The numbers that the paper published, and how a run of ours stands to them.

Gustafsson, Danelljan and Schön, "Evaluating Scalable Bayesian Deep Learning Methods for Robust Computer Vision", 2020.
"""

from epibench.published.comparison import CONVENTION, DIRECTION, REGION, Cell, Totals, compare, distinct, is_kl, totals
from epibench.published.dense import DenseFigure, dense_figure
from epibench.published.figures import Place, base_recipe, is_quick, place_of
from epibench.published.independence import combined_error, independent_draws, standard_error
from epibench.published.markdown import published_table
from epibench.published.rows import Row, distinct_rows, published_rows

__all__ = [
    "CONVENTION",
    "DIRECTION",
    "REGION",
    "Cell",
    "DenseFigure",
    "Place",
    "Row",
    "Totals",
    "base_recipe",
    "combined_error",
    "compare",
    "dense_figure",
    "distinct",
    "distinct_rows",
    "independent_draws",
    "is_kl",
    "is_quick",
    "place_of",
    "published_rows",
    "published_table",
    "standard_error",
    "totals",
]
