"""How results are shown: lines for people, grouped by subject, and plain data for programs.

Checks stay in the order of the catalogue, so that two reports can be laid side by side; the last line counts the
verdicts and names what failed, because that is where eyes are after a long output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby

from ostler import __version__
from ostler.doctor.verdict import Result, Verdict
from ostler.drawing.text import plain

SCHEMA = "ostler.dev/doctor/v1"
"""Name of the form of the data; a member that changes its meaning gets a new number."""

_COLOURS = {
    Verdict.OK: "32",
    Verdict.WARNING: "33",
    Verdict.FAILED: "31",
    Verdict.ERROR: "31",
    Verdict.SKIPPED: "2",
}
_WIDEST_VERDICT = max(len(verdict) for verdict in Verdict)


def worst(results: Iterable[Result]) -> Verdict:
    """The gravest verdict; ``skipped`` where nothing was looked at."""
    return max((result.finding.verdict for result in results), key=lambda each: each.weight, default=Verdict.SKIPPED)


def document(results: Sequence[Result], node_name: str) -> dict[str, object]:
    """The report as plain data."""
    counts = Counter(result.finding.verdict for result in results)
    return {
        "schema": SCHEMA,
        "version": __version__,
        "nodeName": node_name,
        "verdict": str(worst(results)),
        "counts": {str(verdict): counts[verdict] for verdict in Verdict},
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


def text(results: Sequence[Result], *, colour: bool) -> str:
    """The report for people."""
    width = max((len(result.check) for result in results), default=0)
    lines: list[str] = []
    for subject, group in groupby(results, key=lambda result: result.subject):
        lines += ["", subject] if lines else [subject]
        for result in group:
            lines += _lines(result, width, colour=colour)
    return "\n".join((*lines, "", summary(results), ""))


def summary(results: Sequence[Result]) -> str:
    """One line: how many of each verdict, and the names of what is bad."""
    counts = Counter(result.finding.verdict for result in results)
    parts = [f"{counts[verdict]} {verdict}" for verdict in reversed(Verdict) if counts[verdict]]
    bad = [result.check for result in results if result.finding.verdict.bad]
    return ", ".join(parts or ["nothing was checked"]) + (f" (look at: {', '.join(bad)})" if bad else "")


def _lines(result: Result, width: int, *, colour: bool) -> list[str]:
    verdict = result.finding.verdict
    shown = f"{verdict:<{_WIDEST_VERDICT}}"
    if colour:
        shown = f"\x1b[{_COLOURS[verdict]}m{shown}\x1b[0m"
    lines = [f"  {shown}  {result.check:<{width}}  {plain(result.finding.found)}"]
    if result.finding.fix:
        lines.append(" " * (_WIDEST_VERDICT + width + 6) + f"fix: {plain(result.finding.fix)}")
    return lines
