"""A check: its name, what it examines, the function that examines it, and the verdict.

``examine`` only reads: it changes nothing on the node, takes no lock, and dials sockets with deadlines. It may raise;
the examination turns that into the verdict ``error`` and goes on with the others. Every bad finding has a fix, and
every skipped check a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ostler.doctor.node import NodeView

RECORDED = "a recorded node is replayed, so this machine's hardware does not matter"
DEADLINE = 12.0
"""Seconds for one check; all of them run at the same time."""


@dataclass(frozen=True, slots=True)
class Check:
    """``meaning``: what the check examines; ``remedy``: the general fix. Both are columns of the documentation.

    ``hardware``: it examines this machine's hardware, which does not matter if a recorded node is replayed.
    """

    name: str
    meaning: str
    remedy: str
    examine: Callable[[NodeView], CheckFinding]
    deadline: float = DEADLINE
    hardware: bool = False

    def finding(self, view: NodeView) -> CheckFinding:
        """Examine the node and return the conclusion."""
        return skipped(RECORDED) if self.hardware and view.recorded else self.examine(view)


@dataclass(frozen=True, slots=True)
class CheckSubject:
    """Checks that belong together, in the order in which they are shown."""

    name: str
    checks: tuple[Check, ...]


class CheckVerdict(StrEnum):
    """The outcome of a check, in rising severity."""

    SKIPPED = "skipped"
    """Not checked: it does not apply to this node, or cannot be seen from here."""
    OK = "ok"
    WARNING = "warning"
    """Devices are served, but something is missing or may fail later."""
    ERROR = "error"
    """The check itself failed or did not end in time: the result is unknown."""
    FAILED = "failed"
    """Devices are not served, or not correctly."""

    @property
    def weight(self) -> int:
        """Its place in the order above."""
        return tuple(CheckVerdict).index(self)

    @property
    def bad(self) -> bool:
        """Whether this outcome makes ``ostler doctor`` exit with code 1."""
        return self in (CheckVerdict.ERROR, CheckVerdict.FAILED)


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One conclusion; ``found`` is one line, ``fix`` one sentence, empty only if there is nothing to do."""

    verdict: CheckVerdict
    found: str
    fix: str = ""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's finding, and the seconds it took."""

    check: str
    subject: str
    finding: CheckFinding
    seconds: float = 0.0


def ok(found: str) -> CheckFinding:
    """The check found nothing wrong."""
    return CheckFinding(CheckVerdict.OK, found)


def warning(found: str, fix: str) -> CheckFinding:
    """Devices are served, but something should be corrected."""
    return CheckFinding(CheckVerdict.WARNING, found, fix)


def failed(found: str, fix: str) -> CheckFinding:
    """Devices are not served, or not correctly."""
    return CheckFinding(CheckVerdict.FAILED, found, fix)


def skipped(why: str) -> CheckFinding:
    """The check was skipped."""
    return CheckFinding(CheckVerdict.SKIPPED, why)


def closed(path: Path) -> CheckFinding:
    """The check was skipped, because this user may not look at ``path``."""
    return skipped(f"{path} is closed to this user; run this as root")


def joined(findings: Sequence[CheckFinding], well: str) -> CheckFinding:
    """Join findings into one: the worst verdict with every finding of it; ``well`` if there are none."""
    if not findings:
        return ok(well)
    worst = max(findings, key=lambda finding: finding.verdict.weight).verdict
    said = [finding for finding in findings if finding.verdict is worst]
    fixes = dict.fromkeys(finding.fix for finding in said if finding.fix)
    return CheckFinding(worst, "; ".join(finding.found for finding in said), "; ".join(fixes))


def several(names: Sequence[str], most: int = 5) -> str:
    """A list for one line: the first few names, and how many more."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
