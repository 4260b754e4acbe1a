"""Carry recipes out: a run is a recipe in a folder; it can be stopped at any moment and goes on where it stopped."""

from epibench.execution.run_folder import RunFolder
from epibench.execution.toy import Reporter, run_toy

__all__ = ["Reporter", "RunFolder", "run_toy"]
