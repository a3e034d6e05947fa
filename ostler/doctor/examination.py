"""Runs the checks and shows their results: all at the same time, each in a thread of its own with a deadline.

A thread that hangs in the kernel or in a driver cannot be ended; it is left behind as a daemon thread, so that the
command ends anyway. A check that raises gets a verdict as well.

Results are lines for people, grouped by subject, or plain data for programs. They stay in the order of the catalogue,
from the foundations upwards, so that two reports can be compared side by side. The last line counts the verdicts and
names the failed checks, because people look there after a long output.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from operator import attrgetter

from ostler import __version__
from ostler.doctor import (
    agent,
    container_runtime,
    devices,
    holds,
    interfaces,
    kubelet,
    kubernetes,
    limits,
    machine,
    registration,
)
from ostler.doctor.check import Check, CheckFinding, CheckResult, CheckSubject, CheckVerdict
from ostler.doctor.node import NodeView
from ostler.drawing.text import plain

_REPORT = "run it again; if it persists, report it with the output of 'ostler doctor -o json'"


class _Run:
    """One running check."""

    def __init__(self, subject: str, check: Check, view: NodeView, clock: Callable[[], float]) -> None:
        self.subject = subject
        self.check = check
        self._view = view
        self._clock = clock
        self._began = clock()
        self._done: tuple[CheckFinding, float] | None = None
        self._thread = threading.Thread(target=self._examine, name=f"check {check.name}", daemon=True)
        self._thread.start()

    def _examine(self) -> None:
        try:
            finding = self.check.finding(self._view)
        except Exception as error:  # noqa: BLE001 - the report shows it
            text = " ".join(str(error).split())
            finding = CheckFinding(CheckVerdict.ERROR, f"failed to check: {type(error).__name__}: {text}", _REPORT)
        self._done = (finding, self._clock() - self._began)

    def result(self) -> CheckResult:
        """Wait for the check until its deadline."""
        self._thread.join(max(0.0, self._began + self.check.deadline - self._clock()))
        finding, seconds = self._done or (
            CheckFinding(CheckVerdict.ERROR, f"failed to check: no result within {self.check.deadline:g} s", _REPORT),
            self._clock() - self._began,
        )
        return CheckResult(self.check.name, self.subject, finding, round(seconds, 3))


def examine(
    subjects: Sequence[CheckSubject], view: NodeView, clock: Callable[[], float] = time.monotonic
) -> tuple[CheckResult, ...]:
    """The result of every check, in the order of the catalogue."""
    runs = [_Run(subject.name, check, view, clock) for subject in subjects for check in subject.checks]
    return tuple(run.result() for run in runs)


SUBJECTS: tuple[CheckSubject, ...] = (
    agent.CONFIGURATION,
    machine.SUBJECT,
    limits.SUBJECT,
    devices.DRIVERS,
    machine.EVENTS,
    devices.NICS,
    interfaces.SUBJECT,
    container_runtime.SUBJECT,
    agent.SUBJECT,
    kubelet.SUBJECT,
    registration.SUBJECT,
    holds.SUBJECT,
    kubernetes.SUBJECT,
)

NAMES = tuple(check.name for subject in SUBJECTS for check in subject.checks)
"""Names of all checks, each once."""


def chosen(names: Iterable[str]) -> tuple[CheckSubject, ...]:
    """The subjects with only these checks in them; all of them for no names."""
    wanted = frozenset(names)
    if not wanted:
        return SUBJECTS
    kept = (
        CheckSubject(subject.name, tuple(check for check in subject.checks if check.name in wanted))
        for subject in SUBJECTS
    )
    return tuple(subject for subject in kept if subject.checks)


SCHEMA = "ostler.dev/doctor/v1"
"""Name of the data format; its number increases when a member changes its meaning."""

_COLOURS = {
    CheckVerdict.OK: "32",
    CheckVerdict.WARNING: "33",
    CheckVerdict.FAILED: "31",
    CheckVerdict.ERROR: "31",
    CheckVerdict.SKIPPED: "2",
}
_WIDEST_VERDICT = max(len(verdict) for verdict in CheckVerdict)


def worst(results: Iterable[CheckResult]) -> CheckVerdict:
    """The most severe verdict; ``skipped`` if nothing was checked."""
    return max((result.finding.verdict for result in results), key=attrgetter("weight"), default=CheckVerdict.SKIPPED)


def document(results: Sequence[CheckResult], node_name: str) -> dict[str, object]:
    """The report as plain data."""
    counts = Counter(result.finding.verdict for result in results)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "nodeName": node_name,
        "verdict": str(worst(results)),
        "counts": {str(verdict): counts[verdict] for verdict in CheckVerdict},
        "checks": [
            {
                "name": result.check,
                "subject": result.subject,
                "verdict": str(result.finding.verdict),
                "found": result.finding.found,
                "fix": result.finding.fix,
                "seconds": result.seconds,
            }
            for result in results
        ],
    }


def text(results: Sequence[CheckResult], *, colour: bool) -> str:
    """The report for people."""
    width = max((len(result.check) for result in results), default=0)
    lines: list[str] = []
    for subject, group in groupby(results, key=attrgetter("subject")):
        lines += ["", subject] if lines else [subject]
        for result in group:
            lines += _lines(result, width, colour=colour)
    return "\n".join((*lines, "", summary(results), ""))


def summary(results: Sequence[CheckResult]) -> str:
    """One line: the number of each verdict, and the names of failed checks."""
    counts = Counter(result.finding.verdict for result in results)
    parts = [f"{counts[verdict]} {verdict}" for verdict in reversed(CheckVerdict) if counts[verdict]]
    bad = [result.check for result in results if result.finding.verdict.bad]
    return ", ".join(parts or ["nothing was checked"]) + (f" (look at: {', '.join(bad)})" if bad else "")


def _lines(result: CheckResult, width: int, *, colour: bool) -> list[str]:
    verdict = result.finding.verdict
    shown = f"{verdict:<{_WIDEST_VERDICT}}"
    if colour:
        shown = f"\x1b[{_COLOURS[verdict]}m{shown}\x1b[0m"
    lines = [f"  {shown}  {result.check:<{width}}  {plain(result.finding.found)}"]
    if result.finding.fix:
        lines.append(" " * (_WIDEST_VERDICT + width + 6) + f"fix: {plain(result.finding.fix)}")
    return lines
