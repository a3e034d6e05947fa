"""The table of common changes names files and names that are there, and its rules about folders and lists hold."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from node.inventory.vendors import VENDORS
from ostler.cli.commands import COMMANDS
from tests.docs.markdown import ROOT, text_of

CHANGES = (
    "a GPU vendor",
    "an attribute",
    "an XID",
    "a metric",
    "an event",
    "a configuration key",
    "a doctor check",
    "a command",
    "a claim parameter",
    "a CEL function",
    "a Kubernetes version",
    "a recorded node",
)
COLUMNS = 4


def rows() -> list[list[str]]:
    section = text_of("CONTRIBUTING.md").partition("## The twelve commonest changes")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def places(cell: str) -> list[str]:
    """The paths of a cell, with the name behind them: ``folder/file.py:NAME``."""
    return [span for span in re.findall(r"`([^`]+)`", cell) if "/" in span or span.endswith(".md")]


@cache
def names_in(path: str) -> set[str]:
    """What a module defines at its top."""
    found: set[str] = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_the_table_has_the_twelve_changes() -> None:
    assert [row[0] for row in rows()] == list(CHANGES)
    assert {len(row) for row in rows()} == {COLUMNS}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_change_names_what_is_there(row: list[str]) -> None:
    named = [place for cell in row for place in places(cell)]
    assert places(row[1]), "a change without a file"
    for place in named:
        path, _, name = place.partition(":")
        assert (ROOT / path).exists(), place
        assert not name or name in names_in(path), place


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_every_change_is_held_by_a_test(row: list[str]) -> None:
    (test,) = places(row[-1])
    assert any(name.startswith("test_") for name in names_in(test)), test


def test_every_folder_with_a_vendors_value_is_in_the_list() -> None:
    folders = {file.parent.name for file in (ROOT / "node" / "inventory").glob("*/vendor.py")}
    assert len(folders) == len(VENDORS)


def test_every_command_has_a_module() -> None:
    modules = {file.stem for file in (ROOT / "ostler" / "cli").glob("*.py")}
    assert [command for command in COMMANDS if command not in modules] == ["rescan", "reload", "quiesce", "resume"]
