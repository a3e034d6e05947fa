"""What can be wrong with what explain is given: files, names, and answers of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

SHOWN = 20
"""Faults of one command that are shown; whoever has more has one cause for them all."""
MOST = 1000
"""Faults that are looked for; beyond, what is left is not read."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a file: ``line`` 0 where it is not known, ``subject`` such as ``ResourceSlice node-1-gpu``."""

    source: str
    problem: str
    fix: str
    line: int = 0
    subject: str = ""
    field: str = ""

    def __str__(self) -> str:
        where = f"{self.source}:{self.line}" if self.line else self.source
        what = " ".join(word for word in (self.subject, self.field) if word)
        return f"{where}: {what + ': ' if what else ''}{self.problem}; {self.fix}"


class ExplainError(Exception):
    """An answer cannot be given; the message says why and what helps."""


class BadInput(ExplainError):
    """Files that cannot be used, with every fault that was found in them."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        lines = [str(fault) for fault in faults[:SHOWN]]
        if len(faults) > SHOWN:
            least = "at least " if len(faults) >= MOST else ""
            lines.append(f"and {least}{len(faults) - SHOWN} more")
        super().__init__("\n".join(lines))
        self.faults = tuple(faults)


class NotServed(ExplainError):
    """The cluster has no API for devices."""


class BadQuestion(ExplainError):
    """What is asked about cannot be found, or is not said clearly."""
