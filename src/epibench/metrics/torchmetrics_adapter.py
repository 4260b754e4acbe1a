"""All that epibench needs of torchmetrics beyond its public interface, in one place.

torchmetrics has no public way to ask for the names of states, to restore a metric as updated, or to sync outside of
`compute()`. tests/metrics/test_torchmetrics_adapter.py says at once if a new version has changed one of these.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from torchmetrics import Metric

TRIED_ON = "1.9.0"
PRIVATE_ATTRIBUTES = ("_computed", "_defaults", "_should_unsync", "_to_sync", "_update_count")


class AdaptedMetric(Metric):
    """A torchmetrics.Metric with names for what is private there."""

    @property
    def state_names(self) -> tuple[str, ...]:
        """The attributes that hold the state, in the order in which they were declared."""
        return tuple(self._defaults)

    def mark_updated(self) -> None:
        """Count as updated: torchmetrics warns in `compute()` where it saw no `update()`, also after restoring."""
        self._update_count = max(1, self._update_count)

    def count_updates_of(self, other: Metric) -> None:
        """Take over the number of updates of another metric, whose state was added, and forget the last result."""
        self._update_count += other._update_count
        self.forget_result()

    def forget_result(self) -> None:
        """Compute anew: the state has changed without an `update()`."""
        self._computed = None

    def all_processes(self) -> AbstractContextManager[None]:
        """Within it, states are those of all processes together, as they are within `compute()`."""
        context: AbstractContextManager[None] = self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        )
        return context
