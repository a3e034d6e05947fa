"""Bytecode with shared constants is the same code, and equal constants in it are one object."""

from __future__ import annotations

import marshal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import node.values
from ostler.cli.shared_constants import marshalled
from ostler.cli.small_code import small_code

SOURCE = """
def first(given, other):
    return given, other, "a text", ("texts", "in a tuple"), b"bytes", 123456789, 12345678901234567890, 1.5, 2.5j

def second(given, other):
    return given, other, "a text", ("texts", "in a tuple"), b"bytes", 123456789, 12345678901234567890, 1.5, 2.5j

def alike():
    return 1.0, 0.0, -0.0, "bytes", True, None, ..., (1,), (1.0,), (True,), {1, 2} is {2, 1}

def numbers():
    return 1, 0, -5, 257, -257, -12345678901234567890, (1, (2, (3,))), "\\u00e9", "\\u20ac", "\\ud800", "x" * 300

class Value:
    field = lambda given, other: given if given in {"first", "second"} else other
"""
needs_known = pytest.mark.skipif(sys.version_info >= (3, 14), reason="the format of newer Pythons is not known")


@pytest.fixture
def functions() -> dict[str, Callable[..., Any]]:
    found: dict[str, Any] = {}
    exec(marshal.loads(marshalled(small_code("source.py", compile(SOURCE, "source.py", "exec")))), found)
    return found


@needs_known
def test_equal_constants_are_one_object(functions: dict[str, Callable[..., Any]]) -> None:
    one, other = functions["first"](1, 2), functions["second"](1, 2)
    assert one == other
    assert all(each is same for each, same in zip(one[2:], other[2:], strict=True))


def test_constants_of_different_types_stay_different(functions: dict[str, Callable[..., Any]]) -> None:
    expected: dict[str, Any] = {}
    exec(SOURCE, expected)
    for name in ("alike", "numbers"):
        assert repr(functions[name]()) == repr(expected[name]())


@needs_known
def test_it_is_the_same_code_in_less_space() -> None:
    source = node.values.__file__
    code = small_code(source, compile(Path(source).read_bytes(), source, "exec", dont_inherit=True))
    assert marshal.loads(marshalled(code)) == code
    assert len(marshalled(code)) < len(marshal.dumps(code))


@pytest.mark.parametrize("constant", [["a list"], {"a": "mapping"}])
def test_what_is_not_known_is_written_as_marshal_does(constant: object) -> None:
    code = compile("1", "source.py", "eval").replace(co_consts=(constant,))
    assert marshalled(code) == marshal.dumps(code)


@needs_known
def test_what_would_be_other_code_is_written_as_marshal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    code = compile("'a text', b'a text'", "source.py", "eval")
    monkeypatch.setattr("ostler.cli.shared_constants.marshal.loads", lambda _: None)
    assert marshalled(code) == marshal.dumps(code)
