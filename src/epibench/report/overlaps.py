"""Words on draws that share most of their members."""

from __future__ import annotations

from collections.abc import Sequence

from epibench.report.entries import MUCH_OVERLAP, Entry
from epibench.report.numbers import m_equals, percent
from epibench.report.page import listed


def overlap_warnings(entries: Sequence[Entry]) -> list[str]:
    """A sentence for the entries whose draws share most of their members, together where they share alike."""
    labels: dict[str, list[str]] = {}
    for entry in entries:
        much = [m for m in entry.members if entry.overlaps_much(m)]
        if much:
            shares = ", ".join(f"{percent(entry.overlap(m) or 0.0)} at {m_equals(m)}" for m in much[:4])
            labels.setdefault(shares + (f" and {len(much) - 4} more" if len(much) > 4 else ""), []).append(entry.label)
    return [
        f"{listed(names)}: two draws share more than {percent(MUCH_OVERLAP)} of their members ({shares}). "
        "The std there says little about how much another set of members would differ."
        for shares, names in labels.items()
    ]
