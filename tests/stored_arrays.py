"""Arrays of prediction stores, read whole."""

from pathlib import Path

import numpy as np

from epibench.members.stored import refined
from epibench.store import open_store


def stored_arrays(path: Path) -> dict[str, np.ndarray]:
    """Return all arrays of a store, with logits at the resolution of the targets."""
    store = refined(open_store(path))
    arrays = {name: source.read(tuple(slice(0, n) for n in source.shape)) for name, source in store.arrays.items()}
    return arrays if store.group is None else {**arrays, "group": np.asarray(store.group)}
