"""Bytecode without docstrings does what it did, and keeps every text that is something else as well."""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

import node
from ostler.cli.docstrings import without_docstrings

SOURCE = '''"""Of the module."""
NAME = "a text"

def documented(argument="default"):
    """Of a function."""
    return [f"{each} of {argument}" for each in ("one", "two")]

def returns_it():
    """A text that is used."""
    return "A text that is used."

def undocumented():
    return "first constant"

async def generated():
    """Of a generator."""
    yield "value"

class Documented:
    """Of a class."""
    field: str = "value"

    def method(self):
        """Of a method."""
        assert self.field, "asserts stay"
        return lambda: "of a lambda"

class UsesIt:
    """A field's value."""
    field = "A field's value."
'''
needs_known = pytest.mark.skipif(sys.version_info >= (3, 14), reason="newer Pythons keep their docstrings")


@pytest.fixture
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(without_docstrings(compile(SOURCE, "source.py", "exec", dont_inherit=True)), found)
    return found


@needs_known
def test_module_functions_and_classes_lose_their_docstrings(names: dict[str, Any]) -> None:
    assert names["__doc__"] is None
    for name in ("documented", "undocumented", "generated", "Documented"):
        assert names[name].__doc__ is None, name
    assert names["Documented"].method.__doc__ is None


def test_everything_works_as_before(names: dict[str, Any]) -> None:
    assert names["NAME"] == "a text"
    assert names["documented"]() == ["one of default", "two of default"]
    assert names["undocumented"]() == "first constant"
    assert names["Documented"]().method()() == "of a lambda"
    assert names["Documented"].__annotations__ == {"field": str}
    broken = names["Documented"]()
    broken.field = ""
    with pytest.raises(AssertionError, match="asserts stay"):
        broken.method()


def test_a_docstring_whose_text_is_used_otherwise_stays(names: dict[str, Any]) -> None:
    assert names["returns_it"]() == "A text that is used."
    assert names["UsesIt"].field == "A field's value."


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import sys\n__doc__ = 'assigned'", "assigned"),
        ("__doc__ = 'assigned'", "assigned"),
        ("from __future__ import annotations\n__doc__: str = 'assigned'", "assigned"),
        ("'Of the module.'\n__doc__ = 'assigned'", "assigned"),
        ("'Of the module.'\n__doc__ += ' And more.'", "Of the module. And more."),
        ("'Of {}.'\n__doc__ = __doc__.format('it')", "Of it."),
        ("'Of the module.'\nfirst = __doc__.split()[0]", "Of the module."),
        ("'Of the module.'\ndef used(): return __doc__.split()\nused()", "Of the module."),
        (
            "'Of the module.'\nclass Inner:\n    def used(self): return __doc__.split()\nInner().used()",
            "Of the module.",
        ),
    ],
)
def test_a_text_that_a_module_assigns_or_reads_stays(source: str, expected: str) -> None:
    found: dict[str, Any] = {}
    exec(without_docstrings(compile(source, "source.py", "exec", dont_inherit=True)), found)
    assert found["__doc__"] == expected


@needs_known
def test_only_the_class_that_reads_its_docstring_keeps_it() -> None:
    source = "class A:\n    'Of A.'\n    first = __doc__.split()[0]\nclass B:\n    'Of B.'\n    __slots__ = ()"
    found: dict[str, Any] = {}
    exec(without_docstrings(compile(source, "source.py", "exec", dont_inherit=True)), found)
    assert (found["A"].first, found["A"].__doc__, found["B"].__doc__) == ("Of", "Of A.", None)


@needs_known
def test_only_the_class_that_assigns_its_text_keeps_it() -> None:
    source = "class A:\n    __doc__ = 'Of A.'\nclass B:\n    ('Of B.'\n     ' More.')\n"
    found: dict[str, Any] = {}
    exec(without_docstrings(compile(source, "source.py", "exec", dont_inherit=True)), found)
    assert (found["A"].__doc__, found["B"].__doc__) == ("Of A.", None)


def test_lines_of_tracebacks_are_those_of_the_source(names: dict[str, Any]) -> None:
    whole: dict[str, Any] = {}
    exec(compile(SOURCE, "source.py", "exec", dont_inherit=True), whole)
    for name, function in whole.items():
        if isinstance(function, FunctionType):
            assert list(names[name].__code__.co_lines()) == list(function.__code__.co_lines())


@needs_known
def test_only_constants_of_our_own_modules_change_and_only_texts_become_none() -> None:
    def compared(before: CodeType, after: CodeType) -> None:
        assert before.co_code == after.co_code
        for old, new in zip(before.co_consts, after.co_consts, strict=True):
            if isinstance(old, CodeType):
                compared(old, new)
            elif old is not new:
                assert isinstance(old, str)
                assert new is None

    modules = sorted(Path(node.__file__).parent.rglob("*.py"))
    assert modules
    for path in modules:
        code = compile(path.read_text(), str(path), "exec")
        compared(code, without_docstrings(code))
