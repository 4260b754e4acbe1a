"""Streams that a test reads: a terminal, and text without its colours."""

import io
import re

ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07)")


def plain(text):
    """The text without colours and movements of the cursor."""
    return ESCAPES.sub("", text)


class Terminal(io.TextIOWrapper):
    """A stream that says that it is a terminal, and keeps what is written to it."""

    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def isatty(self):
        return True

    def getvalue(self):
        return self.buffer.getvalue().decode()
