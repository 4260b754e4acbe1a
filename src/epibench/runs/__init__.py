"""Carry recipes out: a run is a recipe in a folder; it can be stopped at any moment and goes on where it stopped."""

from epibench.runs.dense import run_dense
from epibench.runs.dense_run import Machine
from epibench.progress import Reporter
from epibench.runs.run_folder import RunFolder
from epibench.runs.toy import run_toy

__all__ = ["Machine", "Reporter", "RunFolder", "run_dense", "run_toy"]
