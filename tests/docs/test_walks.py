"""The walks of the architecture page name code that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMES = sorted(set(re.findall(r"`([a-z_/0-9]+\.py):([A-Za-z_.]+)`", (ROOT / "docs" / "architecture.md").read_text())))


def _defined(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


def test_the_page_has_walks() -> None:
    assert len(NAMES) > 40


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_every_step_of_a_walk_exists(file: str, name: str) -> None:
    body = ast.parse((ROOT / file).read_text()).body
    for part in name.split("."):
        found = _defined(body).get(part)
        assert found is not None, f"{file} has no {name}"
        body = getattr(found, "body", [])
