"""epibench: how far can a model's uncertainty be trusted, and what does each further sample add?

Names are imported on first use: `import epibench` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epibench import metrics
    from epibench.api import evaluate, merge, run, score, train
    from epibench.reading import export, video
    from epibench.results import load_results

__version__ = "0.3.0"
__all__ = ["evaluate", "export", "load_results", "merge", "metrics", "run", "score", "train", "video"]

# The modules of functions.
_MODULES = {
    **dict.fromkeys(("run", "train", "evaluate", "merge", "score"), "api"),
    **dict.fromkeys(("export", "video"), "reading"),
    "load_results": "results",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES.get(name, name)}")
    value = getattr(module, name) if name in _MODULES else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
