"""Bytecode without the annotations of functions does what it did."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import node
import ostler
from ostler.cli.annotations import without_annotations
from ostler.cli.small_code import own_folders

SOURCE = '''from __future__ import annotations

NAMES = ("first", "tuple[str, ...]")
number: int = 1

def annotated(first: tuple[str, ...] = ("default",), *rest: int, option: bool = False) -> list[int]:
    """Of a function."""
    return [len(first), *rest, option]

def returns_the_same_texts() -> tuple[str, str]:
    return ("return", "tuple[str, str]")

def closed_over(start: int) -> object:
    step: int = 2
    def inner(given: int, *, named: int = 3) -> int:
        return start + step + given + named
    return inner

class Value:
    field: dict[str, int]

    def method(self, given: int) -> int:
        return given * 2

def generic(given: "a text") -> "a text":
    return lambda: given
'''
needs_known = pytest.mark.skipif(sys.version_info >= (3, 13), reason="newer Pythons keep the annotations of functions")


def run(source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(without_annotations(compile(source, "source.py", "exec", dont_inherit=True)), found)
    return found


@pytest.fixture
def names() -> dict[str, Any]:
    return run(SOURCE)


@needs_known
def test_functions_have_no_annotations(names: dict[str, Any]) -> None:
    found = [names["annotated"], names["closed_over"], names["closed_over"](1), names["Value"].method, names["generic"]]
    assert [function.__annotations__ for function in found] == [{}] * len(found)


def test_classes_and_modules_keep_theirs(names: dict[str, Any]) -> None:
    assert names["Value"].__annotations__ == {"field": "dict[str, int]"}
    assert names["__annotations__"] == {"number": "int"}


def test_everything_works_as_before(names: dict[str, Any]) -> None:
    assert names["annotated"]() == [1, False]
    assert names["annotated"](("a", "b"), 5, option=True) == [2, 5, True]
    assert names["annotated"].__doc__ == "Of a function."
    assert names["closed_over"](1)(10) == 16
    assert names["Value"]().method(4) == 8
    assert names["generic"]("x")() == "x"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("kept = ('given', 'int')\ndef function(given: 'int'): return given", ("given", "int")),
        ("def function(given: 'int'): return given\nkept = function(('given', 'int'))", ("given", "int")),
        ("def function(given: int): return given\nkept = function.__annotations__", {"given": int}),
    ],
)
def test_texts_that_are_used_otherwise_and_evaluated_annotations_stay(source: str, expected: object) -> None:
    assert run(source)["kept"] == expected


def test_a_docstring_stays_where_it_is() -> None:
    assert run("def function(given: 'int'):\n    'Of a function.'")["function"].__doc__ == "Of a function."


@needs_known
def test_only_constants_of_our_own_modules_change() -> None:
    def compared(before: CodeType, after: CodeType) -> None:
        assert before.co_code == after.co_code
        for old, new in zip(before.co_consts, after.co_consts, strict=True):
            if isinstance(old, CodeType):
                compared(old, new)
            else:
                assert new is old or new is None or (new == () and isinstance(old, tuple))

    modules = sorted(Path(node.__file__).parent.rglob("*.py"))
    assert modules
    for path in modules:
        code = compile(path.read_text(), str(path), "exec")
        compared(code, without_annotations(code))


OF_CLASSES = {
    "node/values.py": {"__annotations__", "inspect"},
    "node/value_data.py": {"__annotations__"},
    "node/inventory/recordings/document.py": {"get_type_hints"},
}
"""Modules that use such names without reading the annotations of functions: only those of classes."""
READERS = {
    "__annotations__",
    "get_annotations",
    "get_type_hints",
    "getfullargspec",
    "singledispatch",
    "singledispatchmethod",
}


def names_of(statement: ast.Import | ast.ImportFrom) -> set[str | None]:
    """The modules and names that it imports."""
    return {getattr(statement, "module", None), *(alias.name for alias in statement.names)}


def readers_of_annotations(source: str) -> Iterator[str]:
    """What a module may read annotations of functions by."""
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.Import | ast.ImportFrom) and "inspect" in names_of(each):
            yield "inspect"
        elif isinstance(each, ast.Name) and each.id in READERS:
            yield each.id
        elif isinstance(each, ast.Attribute) and each.attr in READERS:
            yield each.attr
        elif isinstance(each, ast.Constant) and each.value in READERS:
            yield str(each.value)
        elif isinstance(each, ast.FunctionDef):
            yield from (
                "register" for by in each.decorator_list if isinstance(by, ast.Attribute) and by.attr == "register"
            )


def test_no_module_that_loses_annotations_reads_those_of_functions() -> None:
    root = Path(ostler.__path__[0]).parent
    modules = sorted(path for folder in own_folders() for path in Path(folder).rglob("*.py"))
    assert modules
    found = {str(path.relative_to(root)): set(readers_of_annotations(path.read_text())) for path in modules}
    assert {path: names for path, names in found.items() if names} == OF_CLASSES
