"""Titles, units and order of the errors of depth."""

from epibench import metrics
from epibench.report.metric_info import metric_info, ordered


def test_pages_know_titles_directions_and_units():
    assert metric_info("delta1").better == "higher"
    assert metric_info("irmse").title == "iRMSE (1/km)"
    assert metric_info("sq_rel").in_unit
    names = list(metrics.errors_of_depth([1.0], [1.0]))
    assert ordered(["depth_left_out_targets", *names, "rmse"], "gaussian")[:3] == ["rmse", "abs_rel", "sq_rel"]
    assert "depth_left_out" in ordered(names, "gaussian")  # how many were left out is a row of its own
