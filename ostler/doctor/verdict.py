"""What a check concludes: a verdict, what was found, and what to do about it.

Invariant: whatever is not well carries a fix, and what was not looked at carries the reason why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How it is; in rising order of weight."""

    SKIPPED = "skipped"
    """Not looked at: it does not concern this node, or cannot be seen from here."""
    OK = "ok"
    WARNING = "warning"
    """Devices are served, but something is missing, or will go wrong some day."""
    ERROR = "error"
    """The check itself went wrong or did not end in time: nothing is known."""
    FAILED = "failed"
    """Devices are not served, or not as they should be."""

    @property
    def weight(self) -> int:
        """Its place in the order above."""
        return tuple(Verdict).index(self)

    @property
    def bad(self) -> bool:
        """Whether ``ostler doctor`` ends with exit code 1 for it."""
        return self in (Verdict.ERROR, Verdict.FAILED)


@dataclass(frozen=True, slots=True)
class Finding:
    """One conclusion; ``found`` is one line, ``fix`` one sentence and empty only where nothing is to be done."""

    verdict: Verdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """A finding with the check that it is of, and the seconds that it took."""

    check: str
    subject: str
    finding: Finding
    seconds: float = 0.0


def ok(found: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, found)


def warning(found: str, fix: str) -> Finding:
    """It works and should be better."""
    return Finding(Verdict.WARNING, found, fix)


def failed(found: str, fix: str) -> Finding:
    """It does not work."""
    return Finding(Verdict.FAILED, found, fix)


def skipped(why: str) -> Finding:
    """Not looked at."""
    return Finding(Verdict.SKIPPED, why)


def joined(findings: Sequence[Finding], well: str) -> Finding:
    """One finding out of several: the worst verdict, with all that is as bad; ``well`` where there are none."""
    if not findings:
        return ok(well)
    worst = max(findings, key=lambda finding: finding.verdict.weight).verdict
    said = [finding for finding in findings if finding.verdict is worst]
    fixes = dict.fromkeys(finding.fix for finding in said if finding.fix)
    return Finding(worst, "; ".join(finding.found for finding in said), "; ".join(fixes))


def several(names: Sequence[str], most: int = 5) -> str:
    """A list for one line: the first few names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
