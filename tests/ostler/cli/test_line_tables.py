"""Bytecode without columns has every line that it had."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import node
from ostler.cli.line_tables import without_columns

BROKEN = "def divided(number):\n" + "\n" * 300 + "    return (number\n        / 0)\n"
needs_known = pytest.mark.skipif(sys.version_info >= (3, 14), reason="newer Pythons keep their columns")


def every(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from every(each)


@needs_known
def test_every_instruction_of_our_own_modules_keeps_its_line_and_loses_its_columns() -> None:
    modules = sorted(Path(node.__file__).parent.rglob("*.py"))
    assert modules
    for path in modules:
        code = compile(path.read_text(), str(path), "exec")
        for before, after in zip(every(code), every(without_columns(code)), strict=True):
            lines = [position[0] for position in before.co_positions()]
            assert [position[0] for position in after.co_positions()] == lines, before.co_qualname
            assert {position[2:] for position in after.co_positions()} == {(None, None)}
            assert after.co_code == before.co_code


@needs_known
def test_tables_take_less_than_half_the_space() -> None:
    path = Path(node.__file__).parent / "values.py"
    code = compile(path.read_text(), str(path), "exec")
    sizes = [sum(len(each.co_linetable) for each in every(which)) for which in (without_columns(code), code)]
    assert sizes[0] < sizes[1] / 2


def test_a_traceback_names_the_line_that_failed_also_after_many_empty_ones() -> None:
    found: dict[str, Any] = {}
    exec(without_columns(compile(BROKEN, "broken.py", "exec")), found)
    with pytest.raises(ZeroDivisionError) as caught:
        found["divided"](1)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].lineno == 302
