"""What a message shows of a value that somebody else wrote: one line, in bounded time, however large or deep it is."""

from __future__ import annotations

from reprlib import Repr
from typing import Final

_LENGTH: Final = 200
_LONG_NUMBER: Final = 200
"""Bits. Python writes no number of more than 4300 digits, and slowly one that has nearly as many."""


class _Excerpts(Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxlist = self.maxtuple = self.maxdict = 10
        self.maxstring = self.maxother = self.maxlong = 80

    def repr_int(self, number: int, level: int) -> str:
        long = number.bit_length() > _LONG_NUMBER
        return f"a number of {number.bit_length()} bits" if long else super().repr_int(number, level)


_EXCERPTS: Final = _Excerpts()


def excerpt(text: str) -> str:
    """Return a text in one line and without quotes, with its middle replaced by dots if it is long."""
    line = " ".join(text.split())
    return line if len(line) <= _LENGTH else f"{line[: _LENGTH // 2]} ... {line[-_LENGTH // 4 :]}"


def shown(value: object) -> str:
    """Return the value as Python writes it, with its middle or its end replaced by dots if it is long."""
    text = _EXCERPTS.repr(value)
    return text if len(text) <= _LENGTH else f"{text[: _LENGTH - 3]}..."
