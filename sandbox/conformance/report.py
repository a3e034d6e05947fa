"""Reports of a conformance run: rows of a table, a JSON document, and JUnit XML for build servers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from sandbox.conformance.rule import RuleOutcome, RuleVerdict

HEADER = ("RULE", "SOURCE", "RESULT")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def row(verdict: RuleVerdict) -> tuple[str, str, str]:
    """A verdict's row below ``HEADER``."""
    result = verdict.outcome.upper() if verdict.outcome is RuleOutcome.FAILED else verdict.outcome.value
    return verdict.rule, verdict.source.name, f"{result}: {verdict.seen}" if verdict.seen else result


def summary(verdicts: Sequence[RuleVerdict]) -> str:
    """One line with the number of rules by outcome."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    seconds = sum(verdict.seconds for verdict in verdicts)
    found = ", ".join(f"{counts[outcome]} {outcome}" for outcome in RuleOutcome if counts[outcome])
    return f"{len(verdicts)} rules in {seconds:.1f} s: {found or 'none'}"


def document(kind: str, subject: str, verdicts: Sequence[RuleVerdict]) -> dict[str, object]:
    """The run as plain data; ``kind`` is plugin or driver, ``subject`` the command or socket."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return {
        "kind": kind,
        "subject": subject,
        "summary": {outcome.value: counts[outcome] for outcome in RuleOutcome},
        "rules": [
            {
                "rule": verdict.rule,
                "title": verdict.title,
                "source": {"name": verdict.source.name, "url": verdict.source.url},
                "outcome": verdict.outcome.value,
                "seen": verdict.seen,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in verdicts
        ],
    }


def junit(kind: str, subject: str, verdicts: Sequence[RuleVerdict]) -> bytes:
    """The run as JUnit XML: a failure for a broken rule, an error for one that could not be judged."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    suite = ET.Element(
        "testsuite",
        name=f"ostler conformance {kind}",
        tests=str(len(verdicts)),
        failures=str(counts[RuleOutcome.FAILED]),
        errors=str(counts[RuleOutcome.NOT_JUDGED]),
        skipped=str(counts[RuleOutcome.NOT_APPLICABLE]),
        time=f"{sum(verdict.seconds for verdict in verdicts):.3f}",
    )
    properties = ET.SubElement(suite, "properties")
    ET.SubElement(properties, "property", name="subject", value=_text(subject))
    elements = {
        RuleOutcome.FAILED: "failure",
        RuleOutcome.NOT_JUDGED: "error",
        RuleOutcome.NOT_APPLICABLE: "skipped",
    }
    for verdict in verdicts:
        case = ET.SubElement(
            suite, "testcase", classname=f"conformance.{kind}", name=verdict.rule, time=f"{verdict.seconds:.3f}"
        )
        if verdict.outcome in elements:
            found = ET.SubElement(case, elements[verdict.outcome], message=_text(verdict.seen))
            found.text = _text(f"{verdict.title}\n{verdict.seen}\nsource: {verdict.source.name}, {verdict.source.url}")
        elif verdict.seen:
            ET.SubElement(case, "system-out").text = _text(verdict.seen)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    data: bytes = ET.tostring(suites, encoding="utf-8", xml_declaration=True)
    return data + b"\n"


def _text(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
