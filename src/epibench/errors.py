"""The one exception that users see as a message instead of a traceback."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave is wrong; the message names the thing, the place and the remedy."""
