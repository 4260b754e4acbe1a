"""Carry recipes out: a run is a recipe in a folder; it can be stopped at any moment and goes on where it stopped."""

from epibench.execution.dense import run_dense
from epibench.execution.dense_run import Machine
from epibench.execution.reporter import Reporter
from epibench.execution.run_folder import RunFolder
from epibench.execution.toy import run_toy

__all__ = ["Machine", "Reporter", "RunFolder", "run_dense", "run_toy"]
