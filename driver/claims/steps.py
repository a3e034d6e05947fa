"""The places between two steps of preparing and releasing a claim, so that tests can end the process at each of them.

What is on the disk differs from one place to the next, and from each of them a restart must find its way.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class Step(StrEnum):
    """What has just been done."""

    FETCHED = "prepare: the claim was read"
    TAKEN = "prepare: the ledger has its devices"
    STARTED = "prepare: the record says started"
    DESCRIBED = "prepare: the CDI file is written"
    COMPLETED = "prepare: the record says completed"
    ANSWERED = "prepare: the answer is made"
    RELEASING = "unprepare: nothing is done yet"
    UNDESCRIBED = "unprepare: the CDI file is removed"
    FORGOTTEN = "unprepare: the record is removed"
    RELEASED = "unprepare: the ledger is free"


class Steps(Protocol):
    """Told of every step, in whatever thread it was done."""

    def reached(self, step: Step, uid: str) -> None:
        """The step is done for the claim of that UID."""
        ...


class NoSteps:
    """Outside of tests nobody wants to know."""

    def reached(self, step: Step, uid: str) -> None:
        """Do nothing."""
