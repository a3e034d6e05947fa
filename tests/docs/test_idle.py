"""The table of what an idle agent looks at: every period is the code's, and no look at the common ticks is left out."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from typing import Any

import pytest

from tests.docs.markdown import ROOT, text_of

PAGE, SECTION = "docs/performance.md", "## What an idle agent still looks at\n"
TABLE = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in text_of(PAGE).partition(SECTION)[2].partition("\n## ")[0].splitlines()
    if line.startswith("| ")
][2:]
_NAME = re.compile(r"`([a-z_/]+\.py):([A-Za-z_.]+)`")
PACKAGES = ("node", "plugin", "driver", "ostler")
MILLISECONDS = {"node/inventory/nvidia/signals/events.py:WAIT"}
"""Constants of calls that count in milliseconds."""


def _module(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


def _value(file: str, name: str) -> Any:
    """What a name of a module stands for; an attribute of a class of values is its default."""
    found: Any = importlib.import_module(_module(file))
    for part in name.split("."):
        if inspect.isclass(found):
            found = inspect.signature(found).parameters[part].default
        else:
            found = getattr(found, part)
    return found


def _modules_with_ticks() -> set[str]:
    """Modules that call ``until_tick``."""
    files = {str(path.relative_to(ROOT)): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    return {
        name
        for name, path in files.items()
        if "until_tick(" in (text := path.read_text())
        and any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "until_tick"
            for node in ast.walk(ast.parse(text))
        )
    }


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_a_period_is_that_of_the_code_and_every_row_says_what_looks_what_it_costs_and_why(row: list[str]) -> None:
    look, period, constant, where, cost, why = row
    assert look
    assert cost
    assert why
    ((file, name),) = _NAME.findall(constant)
    seconds = _value(file, name) / (1000 if f"{file}:{name}" in MILLISECONDS else 1)
    assert period == f"{seconds:g} s"
    named = _NAME.findall(where)
    assert named
    for file, name in named:
        assert _value(file, name).__module__ == _module(file), f"{file} defines no {name}"


def test_every_look_at_the_common_ticks_is_in_the_table() -> None:
    assert _modules_with_ticks() - {file for row in TABLE for file, _ in _NAME.findall(row[3])} == set()
