"""The prediction store: its formats, and how it is read and written."""

from epibench.store.reader import validate
from epibench.store.structure import PredictionStore, open_store
from epibench.store.writer import StoreWriter, write_store

__all__ = ["PredictionStore", "StoreWriter", "open_store", "validate", "write_store"]
