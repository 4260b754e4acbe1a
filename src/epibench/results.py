"""Results as plain data: every metric per draw, summaries over draws, curves; written as JSON.

The report only reads these. NaN and infinite values are null; keys that are numbers are strings; a standard deviation
is the population's, and null for one draw.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

VERSION = 1
Members = tuple[int, ...]
Json = Any  # what json.dumps takes


def per_draw(sets: Sequence[Members], values: Mapping[str, Tensor]) -> list[dict[str, Json]]:
    """One entry per draw: its size, its members and all its metrics. values: (draw,) or (draw, class)."""
    plain = {name: to_plain(value) for name, value in values.items()}
    return [
        {"M": len(members), "members": list(members), "metrics": {name: plain[name][draw] for name in plain}}
        for draw, members in enumerate(sets)
    ]


def without_members(entries: list[dict[str, Json]]) -> list[dict[str, Json]]:
    """Draws without the lists of their members, which the recipe gives again."""
    return [{key: value for key, value in entry.items() if key != "members"} for entry in entries]


def summarise(sets: Sequence[Members], values: Mapping[str, Tensor]) -> dict[str, dict[str, Json]]:
    """Mean and standard deviation over the draws of each size: {M: {metric: {mean, std, n}}}."""
    summary = {}
    for size, numbers in draws_by_size(sets).items():
        summary[str(size)] = {
            name: {**mean_and_std(value[numbers]), "n": len(numbers)} for name, value in values.items()
        }
    return summary


def summarise_curves(sets: Sequence[Members], families: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Json]:
    """Mean and standard deviation of curves over the draws of each size: {family: {x, M: {M: {curve: …}}}}."""
    return {
        family: {
            "x": to_plain(curves["x"]),
            "M": {
                str(size): {name: mean_and_std(curve[numbers]) for name, curve in curves.items() if name != "x"}
                for size, numbers in draws_by_size(sets).items()
            },
        }
        for family, curves in families.items()
    }


def draws_by_size(sets: Sequence[Members]) -> dict[int, list[int]]:
    """The numbers of the draws of each size M, ascending."""
    sizes = sorted({len(members) for members in sets})
    return {size: [number for number, members in enumerate(sets) if len(members) == size] for size in sizes}


def mean_and_std(values: Tensor) -> dict[str, Json]:
    """Mean and population standard deviation over the first axis."""
    values = values.to(torch.float64)
    mean = values.mean(0)
    std = values.std(0, correction=0) if values.shape[0] > 1 else None
    return {"mean": to_plain(mean), "std": None if std is None else to_plain(std)}


def to_plain(value: Tensor) -> Json:
    """Numbers or nested lists of them; None for what is not finite; counts stay whole."""

    def plain(item: Json) -> Json:
        if isinstance(item, list):
            return [plain(entry) for entry in item]
        return item if isinstance(item, int) or math.isfinite(item) else None

    return plain(value.tolist())


def read_json(path: Path) -> dict[str, Json] | None:
    """A file of results, or None where there is none that can be read."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path: Path, content: Json) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    write_atomically(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Write next to `path`, then rename; straight into it if it is a device or a pipe."""
    path = path.resolve()
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
