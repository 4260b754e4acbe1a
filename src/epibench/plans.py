"""How draws are made from a pool, by name, and positions among numbered things; nothing here imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

Plan = Literal["random", "disjoint", "prefix", "spread"]


def evenly_spaced(length: int, number: int) -> list[int]:
    """`number` evenly spaced positions of 0 … length − 1, both ends among them; for one, the last."""
    if number == 1:
        return [length - 1]
    return [step * (length - 1) // (number - 1) for step in range(number)]


def centres(length: int, number: int) -> list[int]:
    """The middles of `number` equal parts of 0 … length − 1; all positions where there are fewer."""
    number = min(number, length)
    return [(2 * part + 1) * length // (2 * number) for part in range(number)]


def consecutive(numbers: Iterable[int]) -> Iterator[range]:
    """Numbers in rising order, as ranges that leave none out."""
    ordered = sorted(numbers)
    starts = [at for at, number in enumerate(ordered) if at == 0 or number != ordered[at - 1] + 1]
    for start, end in itertools.pairwise([*starts, len(ordered)]):
        yield range(ordered[start], ordered[end - 1] + 1)


def equal_parts(works: Sequence[int], count: int) -> list[int]:
    """The part, from 0, of each piece of work: neighbours together, about the same work for each of `count`."""
    parts, total, done = list[int](), sum(works), 0
    for work in works:
        parts.append(min(count - 1, count * (2 * done + work) // (2 * total)))
        done += work
    return parts
