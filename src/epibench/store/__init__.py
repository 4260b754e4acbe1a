"""The prediction store: its formats, and how it is written; `members.stored` reads its pixels."""

from epibench.store.formats import PredictionStore, open_store
from epibench.store.writer import StoreWriter, write_store

__all__ = ["PredictionStore", "StoreWriter", "open_store", "write_store"]
