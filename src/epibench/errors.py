"""The exceptions that users see as a message instead of a traceback."""

from __future__ import annotations

from collections.abc import Sequence


class InputError(ValueError):
    """An error of the user's input. The message names the thing, the place and the fix."""


class ArgumentError(InputError):
    """An argument is wrong. The message begins with its name.

    A command puts its option in the place of the name. typed: the message for a shell, where that differs.
    """

    def __init__(self, text: str, typed: str | None = None):
        super().__init__(text)
        self.typed = typed or text


def lacks_memory(error: BaseException) -> bool:
    """Whether memory is exhausted: torch raises a RuntimeError for it."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in ("allocate memory", "out of memory"))
    )


def some_of(words: Sequence[str], most: int) -> str:
    """Return the first `most` words as text, e.g. `a, b and 3 more`."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
