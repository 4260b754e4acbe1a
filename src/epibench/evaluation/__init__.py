"""Draws, the prediction store, and the one pass that scores it."""

from epibench.evaluation.draws import Draws, make_draws
from epibench.evaluation.pixels import validate
from epibench.evaluation.scoring import ScoreSettings, prepare
from epibench.evaluation.store import PredictionStore, open_store
from epibench.evaluation.store_writer import StoreWriter, write_store

__all__ = [
    "Draws",
    "PredictionStore",
    "ScoreSettings",
    "StoreWriter",
    "make_draws",
    "open_store",
    "prepare",
    "validate",
    "write_store",
]
