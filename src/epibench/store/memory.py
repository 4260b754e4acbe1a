"""Predictions in memory, seen as a store."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from epibench.errors import InputError
from epibench.metrics.streaming import to_tensor
from epibench.store.formats import (
    ARRAYS,
    ATTRIBUTES,
    VERSION,
    Array,
    Contents,
    PredictionStore,
    describe,
    hints,
    listed,
    memory_source,
)

LABELS = ("group", "member_id", "image_id")


def store_in_memory(values: Mapping[str, Any], name: str) -> PredictionStore:
    """A store of the arrays and attributes that a file would have, under the same names; `name` is for messages.

    Without `kind`, predictions with `variance` are Gaussian, those with `probs` or `logits` categorical.
    """
    unknown = [key for key in values if key not in ARRAYS + ATTRIBUTES]
    if unknown:
        known = f"there are {listed(ARRAYS + ATTRIBUTES)}{hints(ARRAYS, unknown)}"
        raise InputError(f"{name}: {listed(unknown)} is no array or attribute of predictions; {known}")
    arrays = {key: memory_source(_to_numpy(values[key], f"{name}: {key!r}", key)) for key in ARRAYS if key in values}
    kind = "categorical" if "probs" in arrays or "logits" in arrays else "gaussian" if "variance" in arrays else None
    given = {key: values[key] for key in ATTRIBUTES if values.get(key) is not None}
    return describe(Path(name), Contents(arrays, {"version": VERSION, "kind": kind, **given}, tuple(arrays)))


def _to_numpy(values: Any, what: str, key: str) -> Array:
    try:
        if key in LABELS:
            return np.asarray(values)
        tensor = to_tensor(values).cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} is not an array of numbers ({error}); give one shape for all images") from error
