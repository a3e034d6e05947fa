"""The page of checks against the checks."""

from __future__ import annotations

import re
from pathlib import Path

from ostler.doctor.check import CheckVerdict
from ostler.doctor.examination import SUBJECTS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "doctor.md").read_text()


def test_the_table_has_every_check_with_its_meaning_and_remedy_in_order() -> None:
    rows = [
        f"| {subject.name} | `{check.name}` | {check.meaning} | {check.remedy} |"
        for subject in SUBJECTS
        for check in subject.checks
    ]
    section = PAGE[PAGE.index("## Checks") :]
    assert re.findall(r"^\| [a-z]+ \| `.*$", section, re.MULTILINE) == rows


def test_every_verdict_is_explained() -> None:
    for verdict in CheckVerdict:
        assert f"| `{verdict}` |" in PAGE


def test_no_text_breaks_its_row() -> None:
    assert not any("|" in check.meaning + check.remedy for subject in SUBJECTS for check in subject.checks)
