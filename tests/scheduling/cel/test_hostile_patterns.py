from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from scheduling.cel.compiler import compile as compile_selector
from scheduling.cel.errors import CompileError
from scheduling.cel.library.regex import LONGEST
from tests.scheduling.cel.selectors import GPU, failure, holds, program

DEADLINE_S = 20
"""A machine that is shared; without bounds these take minutes."""


@pytest.fixture(autouse=True)
def _in_time() -> Iterator[None]:
    start = time.process_time()
    yield
    assert time.process_time() - start < DEADLINE_S


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*" * 19_000,
        "a?" * 20_000,
        r"\\pL" * 18_000,
        "(" * 40_000 + ")" * 40_000,
        "a" * (LONGEST + 1),
    ],
)
def test_a_pattern_of_great_length_is_refused(pattern: str) -> None:
    with pytest.raises(CompileError) as raised:
        compile_selector(f"'a'.matches('{pattern}')")
    assert (raised.value.kind, raised.value.message) == ("Internal", "the cost limit is exceeded")


def test_a_long_pattern_is_none_of_the_refused() -> None:
    assert holds(f"'a'.matches('{'(a*)*' * 1600}')")


def test_a_pattern_that_becomes_too_many_instructions_is_refused() -> None:
    with pytest.raises(CompileError, match="error parsing regexp: pattern too large"):
        compile_selector(r"'a'.matches('[\\pL\\pN]{1000}[\\pL\\pN]{1000}')")


def test_many_large_patterns_are_too_much_for_one_expression() -> None:
    patterns = " || ".join(rf"'a'.find('[\\pL\\pN]{{{count}}}') == 'a'" for count in range(301, 331))
    with pytest.raises(CompileError) as raised:
        compile_selector(patterns)
    assert (raised.value.kind, raised.value.message) == (
        "Internal",
        "this constant cannot be computed: the cost limit is exceeded",
    )
    assert compile_selector("'a'.find('b') == ''").output_type == "bool", "the next expression has all steps again"


@pytest.mark.parametrize(
    "expression",
    [
        f"'{'a' * 50_000}'.matches('{'a?' * 1_000}')",
        f"'{'a' * 60_000}'.findAll('a*b|a').size() > 0",
        f"'{'a' * 90_000}'.findAll('').size() > 0",
        "lists.range(100000).exists(x, 'a'.matches(string(x) + '(a{500}){2}'))",
        r"lists.range(100000).exists(x, 'a'.matches('[\\pL\\pN]{300}' + string(x)))",
        r"lists.range(100000).exists(x, 'a'.matches('[\\pL\\pN]{1000}[\\pL\\pN]{1000}' + string(x)) || false)",
    ],
)
def test_searching_and_compiling_are_counted_as_work(expression: str) -> None:
    assert failure(expression).cost_exceeded


def test_a_text_of_many_matches_is_read_through() -> None:
    assert holds(f"'{'ab' * 5_000}'.findAll('a').size() == 5000")


def test_conditions_are_accounted_for_with_their_own_patterns() -> None:
    first, second = program("'a'.matches('a') && 'a'.matches('b' + '(')").account(GPU)
    assert first.outcome is True
    assert "error parsing regexp" in str(second.outcome)
