"""Ways to look at an image: as it is, mirrored, at another scale, or both; by their names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from epibench.errors import InputError

SCALES = (0.75, 1.25)  # what `scale` without a number stands for
SMALLEST, LARGEST = 0.1, 4.0
NAMED = re.compile(r"(?P<flip>flip)?\s*(?:scale\s+(?P<scale>\d+(?:\.\d+)?))?")


@dataclass(frozen=True)
class View:
    """One way to look at an image."""

    flip: bool = False
    scale: float = 1.0

    def __str__(self) -> str:
        words = (["flip"] if self.flip else []) + ([f"scale {self.scale:g}"] if self.scale != 1 else [])
        return " ".join(words) or "identity"


IDENTITY = View()


def parse_views(names: Sequence[str]) -> tuple[View, ...]:
    """The image itself, then its views: `flip`, `scale 0.75`, `flip scale 1.25`.

    `scale` without a number is the image at 0.75 and 1.25 times its size, with `flip` also mirrored.
    """
    names = [" ".join(name.split()) for name in names]
    if "scale" in names:
        return _all_of(names)
    views = [_parsed(name) for name in names]
    for number, view in enumerate(views):
        if view in views[:number]:
            raise InputError(f"view '{view}' is given twice; leave one out")
    return (IDENTITY, *(view for view in views if view != IDENTITY))


def _all_of(names: Iterable[str]) -> tuple[View, ...]:
    for name in names:
        if name not in ("identity", "flip", "scale"):
            raise InputError(f"view '{name}' beside scale: give that a number, too, as 'scale 0.75'")
    flips = (False, True) if "flip" in names else (False,)
    return tuple(View(flip, scale) for scale in (1.0, *SCALES) for flip in flips)


def _parsed(name: str) -> View:
    match = NAMED.fullmatch(name)
    if name == "identity":
        return IDENTITY
    if not name or match is None:
        raise InputError(f"view '{name}' is unknown; there are identity, flip, scale 0.75, flip scale 1.25 and so on")
    scale = float(match["scale"] or 1)
    if not SMALLEST <= scale <= LARGEST:
        raise InputError(f"view '{name}': scales are from {SMALLEST:g} to {LARGEST:g}")
    return View(match["flip"] is not None, scale)
