"""The page of rules against the rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sandbox.conformance.driver_rules import DRIVER_RULES
from sandbox.conformance.plugin_rules import PLUGIN_RULES
from sandbox.conformance.session import PLACEHOLDERS

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "conformance.md").read_text()


@pytest.mark.parametrize(
    ("heading", "rules"),
    [
        ("## Rules of device plugins", [(each.name, each.title, each.source.name) for each in PLUGIN_RULES]),
        ("## Rules of DRA drivers", [(each.name, each.title, each.source.name) for each in DRIVER_RULES]),
    ],
)
def test_the_table_has_what_is_listed_and_says_why_and_how_to_mend(
    heading: str, rules: list[tuple[str, str, str]]
) -> None:
    section = PAGE[PAGE.index(heading) + len(heading) :].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "| `" in line]
    assert [(name.strip("`"), title, source) for name, title, source, _, _ in rows] == rules
    for name, _, _, why, mend in rows:
        assert re.fullmatch(r"[A-Z`].{10,}\.", why), name
        assert re.fullmatch(r"[A-Z`].{10,}\.", mend), name


def test_every_word_that_is_replaced_is_explained() -> None:
    assert re.findall(r"^\| `(\{[a-z]+\})` \|", PAGE, re.MULTILINE) == list(PLACEHOLDERS)
