"""Running checks: all at the same time, each in a thread of its own with a deadline.

A thread that hangs in the kernel or in a driver cannot be ended; it is left behind as a daemon, so that the command
ends all the same. A check that raises is a verdict, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from ostler.doctor.check import Check, Subject
from ostler.doctor.node import NodeView
from ostler.doctor.verdict import Finding, Result, Verdict

_REPORT = "run it again; if it stays, report it with the output of 'ostler doctor -o json'"


class _Run:
    """One check on its way."""

    def __init__(self, subject: str, check: Check, view: NodeView, clock: Callable[[], float]) -> None:
        self.subject = subject
        self.check = check
        self._view = view
        self._clock = clock
        self._began = clock()
        self._done: tuple[Finding, float] | None = None
        self._thread = threading.Thread(target=self._examine, name=f"check {check.name}", daemon=True)
        self._thread.start()

    def _examine(self) -> None:
        try:
            finding = self.check.examine(self._view)
        except Exception as error:  # noqa: BLE001 - told to whoever reads the report
            text = " ".join(str(error).split())
            finding = Finding(Verdict.ERROR, f"failed to check: {type(error).__name__}: {text}", _REPORT)
        self._done = (finding, self._clock() - self._began)

    def result(self) -> Result:
        """Wait for it until its deadline."""
        self._thread.join(max(0.0, self._began + self.check.deadline - self._clock()))
        finding, seconds = self._done or (
            Finding(Verdict.ERROR, f"failed to check: no result within {self.check.deadline:g} s", _REPORT),
            self._clock() - self._began,
        )
        return Result(self.check.name, self.subject, finding, round(seconds, 3))


def examine(
    subjects: Sequence[Subject], view: NodeView, clock: Callable[[], float] = time.monotonic
) -> tuple[Result, ...]:
    """The result of every check, in the order of the catalogue."""
    runs = [_Run(subject.name, check, view, clock) for subject in subjects for check in subject.checks]
    return tuple(run.result() for run in runs)
