"""Patterns that would cost too much; and what works without google-re2, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scheduling.cel.compiler import compile as compile_selector
from scheduling.cel.errors import CompileError
from scheduling.cel.library.regex import LONGEST
from tests.making.cel import GPU, failure, holds, program

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


VECTORS = Path(__file__).parents[1] / "recorded" / "evaluations.jsonl"
PATTERNS = ("matches(", ".find(", ".findAll(")
SCRIPT = """
import json, sys

class Refuser:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("re2", "_re2"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuser())

from scheduling.cel.compiler import compile
from scheduling.cel.device import CelDevice
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CelError

first, *cases = sys.stdin.read().splitlines()
device = CelDevice("gpu.example.com", json.loads(first)["device"])
for case in cases:
    try:
        found = compile(json.loads(case)["expr"], CelFeatures(list_attributes=True)).evaluate(device)
        print(json.dumps({"result": found.result, "cost": found.cost}))
    except CelError as error:
        print(json.dumps({"error": error.message}))
"""


def _answers(lines: list[str]) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=Path(__file__).parents[4],
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_everything_but_patterns_is_answered_as_recorded() -> None:
    device, *cases = VECTORS.read_text().splitlines()
    plain = [case for case in cases if not any(each in json.loads(case)["expr"] for each in PATTERNS)]
    found = _answers([device, *plain])
    assert len(found) == len(plain) > 500
    for case, answer in zip(plain, found, strict=True):
        wanted = json.loads(case)
        if "result" in wanted["answer"]:
            assert answer == wanted["answer"], wanted["expr"]
        else:
            assert "re2" not in str(answer["error"]), wanted["expr"]


def test_a_pattern_says_what_to_install() -> None:
    device = VECTORS.read_text().splitlines()[0]
    expressions = [
        "device.driver.matches('a')",
        "device.driver.find('a') == ''",
        "device.driver.findAll('a') == []",
        "device.driver.matches(device.driver)",
        "matches('a', 'a')",
    ]
    found = _answers([device, *(json.dumps({"expr": each}) for each in expressions)])
    text = "regular expressions need the library google-re2: pip install 'ostler[explain]'"
    assert found == [{"error": text}] * len(expressions)
