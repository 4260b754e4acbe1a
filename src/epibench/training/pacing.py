"""When to save where something stands: often, but never so that saving takes much of the time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

SECONDS = 10.0
SHARE = 0.05  # of the time may go into saving


@dataclass
class Pacer:
    """Every ten seconds, or less often where saving itself takes long; `with pacer:` measures that."""

    wait: float = SECONDS
    last: float = field(default_factory=time.perf_counter)
    begun: float = 0.0

    def due(self) -> bool:
        """Whether it is time to save."""
        return time.perf_counter() - self.last > self.wait

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.last = time.perf_counter()
        self.wait = max(SECONDS, (self.last - self.begun) / SHARE)
