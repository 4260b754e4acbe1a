"""Arguments of the public functions: one of a wrong type is refused in words, before anything is opened."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from types import NoneType
from typing import Any

from epibench.errors import InputError

# What is wanted, where several functions want the same.
WHOLE = "a whole number, as 16"
FLAG = "True or False"
SIZES = "a list of whole numbers, as [1, 2, 4]"
FOLDER = "a folder, as 'runs/mine'"
DEVICE = "'auto', 'cpu' or 'cuda'"
PROGRESS = "True, False, or a reporter with 'step' and 'say'"


def argument(name: str, given: Any, wanted: str, *kinds: Any, each: type[Any] | None = None) -> Any:
    """What was given, if it is of one of these types; or a tuple of it, if it is several things of the type `each`.

    A single number of NumPy or torch counts, and comes back, as one of Python; a bool is no number. None in `kinds`
    stands for itself. wanted: what to give instead, with an example.
    """
    plain = given.item() if getattr(given, "ndim", None) == 0 else given
    types = tuple(NoneType if kind is None else kind for kind in kinds)
    if bool in types if isinstance(plain, bool) else isinstance(plain, types):
        return plain
    if each is not None and not isinstance(plain, str | bytes | Mapping):
        try:
            items = tuple(plain)
        except TypeError:
            raise unfit(name, given, wanted) from None
        return tuple(argument(name, item, wanted, each) for item in items)
    raise unfit(name, given, wanted)


def unfit(name: str, given: Any, wanted: str) -> InputError:
    """The error that an argument cannot be this, in one line."""
    kind = "" if given is None else f" ({type(given).__name__})"
    return InputError(f"{name}: cannot be {' '.join(reprlib.repr(given).split())}{kind}; give {wanted}")
