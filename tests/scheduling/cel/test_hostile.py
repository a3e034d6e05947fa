from __future__ import annotations

import sys
import threading
import time
import tracemalloc

import pytest

from scheduling.cel import values
from scheduling.cel.errors import EvaluationError
from tests.making.cel import GPU, failure, holds, outcome, program

TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"


def _nested(macro: str, body: str, levels: int = 8) -> str:
    for level in range(levels):
        body = f"{TEN}.{macro}(x{level}, {body})"
    return body


def _doubled(start: str, step: str, last: str, times: int = 60) -> str:
    """`start`, then `step` over and over, `$` being what came before."""
    text = last.replace("$", f"v{times}")
    for number in range(times, 0, -1):
        text = f"cel.bind(v{number}, {step.replace('$', f'v{number - 1}')}, {text})"
    return f"cel.bind(v0, {start}, {text})"


@pytest.mark.parametrize(
    "expression",
    [
        _nested("all", "true"),
        _nested("exists_one", "false"),
        _nested("map", "1") + ".size() > 0",
        _doubled("[1]", "$ + $", "$ == $"),
        _doubled("'a'", "$ + $", "$ == $"),
        _doubled("'aa'", "$.replace('a', $)", "$.size() > 0", 10),
        _doubled("lists.range(1000)", "$ + $", "lists.range(1000).all(x, ($ + $)[0] == 0)", 9),
        _doubled("['a', 'b']", "$ + $", "lists.range(1000).all(x, 'c' in dyn($) || $.isSorted() || true)", 15),
        _doubled(
            "'aaaaaaaa'", "$ + $", "lists.range(9000).all(x, '%s'.format([$]) != '' || '%s'.format([[$]]) != '')", 17
        ),
        _doubled(
            "'aaaaaaaa'", "$ + $", "lists.range(9000).all(x, dyn($) < dyn($ + 'b') || dyn($) + dyn('a') != '')", 17
        ),
        "lists.range(900000).all(x, x >= 0)",
        "lists.range(700000).distinct().size() > 0",
        "lists.range(700000).sort().size() > 0",
        "sets.contains(lists.range(400000), lists.range(400000))",
        "lists.range(100000).exists(x, device.attributes['d'].no == 1)",
    ],
)
def test_what_never_ends_is_stopped_as_too_expensive(expression: str) -> None:
    is_stopped(expression)


@pytest.mark.parametrize(
    "expression",
    [
        _doubled("[1]", "[$, $]", "$ == $", 40),
        _doubled("[1]", "[$, $]", "lists.range(1000).all(x, $ == $)", 18),
        _doubled("[1]", "[$, $]", "'%s'.format([$]).size() > 0", 40),
        _doubled("[1]", "[$, $]", "$.flatten(100).size() > 0", 40),
        _doubled("[1]", "[$, $]", "$.includes(1)", 40),
        _doubled("[dyn(1)]", "[dyn($), dyn($)]", "google.protobuf.ListValue{values: $}.size() > 0", 40),
    ],
)
def test_a_tree_that_few_words_make_is_too_expensive_for_whatever_walks_it(
    monkeypatch: pytest.MonkeyPatch, expression: str
) -> None:
    """It has 2^40 leaves, or 2^18 a thousand times: a tenth of the steps proves as much as all of them."""
    monkeypatch.setattr(values, "WORK_LIMIT", values.WORK_LIMIT // 10)
    is_stopped(expression)


@pytest.mark.parametrize(
    ("expression", "comparisons"),
    [("lists.range(11).sort().size() > 0", 121), ("sets.contains(lists.range(40), [0, 0, 0])", 120)],
)
def test_lists_are_refused_by_the_limit_in_force(
    monkeypatch: pytest.MonkeyPatch, expression: str, comparisons: int
) -> None:
    monkeypatch.setattr(values, "WORK_LIMIT", comparisons)
    assert holds(expression)
    monkeypatch.setattr(values, "WORK_LIMIT", comparisons - 1)
    is_stopped(expression)


def is_stopped(expression: str) -> None:
    error = failure(expression)
    assert error.cost_exceeded
    assert error.cost > 1_000_000
    assert error.message == "the evaluation was stopped because it costs more than 1000000 units"


def test_nothing_in_the_expression_catches_the_limit() -> None:
    assert outcome("true || [1, 2].all(x, x > 0)", 0).result
    assert failure("[1, 2].all(x, x > 0) || true", 3).cost_exceeded


def test_a_view_of_two_lists_is_as_good_as_a_list() -> None:
    assert holds(_doubled("[1, 2]", "$ + $", "$.size() == 2048 && $[2047] == 2 && 1 in $", 10))


def test_a_range_has_an_end() -> None:
    assert "exceeds maximum allowed (1000000)" in failure("lists.range(1000001).size() > 0").message


@pytest.mark.parametrize(
    "expression",
    [
        " && ".join(["true"] * 2000),
        "!" * 4000 + "true",
        "(" * 200 + "true" + ")" * 200,
        "true ? true : " * 200 + "true",
        "1 + " * 200 + "1 > 0",
        "'a'" + ".trim()" * 200 + " == 'a'",
    ],
)
def test_deep_trees_are_evaluated_even_from_deep_in_the_stack(expression: str) -> None:
    results: list[bool] = []

    def descend(levels: int) -> None:
        if levels:
            descend(levels - 1)
        else:
            results.append(outcome(expression).result)

    thread = threading.Thread(target=descend, args=(sys.getrecursionlimit() // 3,))
    thread.start()
    thread.join()
    assert results == [True]


@pytest.mark.parametrize("zeros", [10, 5_000, 49_000])
def test_a_number_may_begin_with_any_zeros(zeros: int) -> None:
    assert holds(f"{'0' * zeros}17 == 17 && {'0' * zeros}u == 0u")


def test_large_results_of_constants_are_not_kept() -> None:
    selector = program("lists.range(40000).size() > 0")
    tracemalloc.start()
    assert selector.evaluate(GPU).result
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 100_000
    assert selector.evaluate(GPU) == selector.evaluate(GPU)


def test_an_account_of_many_conditions_is_one_condition() -> None:
    conditions = [f"device.driver != '{number}'" for number in range(251)]
    (whole,) = program(" && ".join(conditions)).account(GPU)
    assert (whole.outcome, whole.reads[0].path) == (True, "device.driver")
    assert len(program(" && ".join(conditions[:250])).account(GPU)) == 250


def test_all_conditions_of_an_account_share_a_limit() -> None:
    # Costs by the length of the text, which takes no time.
    expensive = "lists.range(900).all(x, !$.contains('b'))"
    expression = _doubled("'aaaaaaaa'", "$ + $", " && ".join([expensive] * 11), 16)
    outcomes = [each.outcome for each in program(expression).account(GPU)]
    assert len(outcomes) == 11
    assert all(isinstance(each, EvaluationError) and each.cost_exceeded for each in outcomes)
    costs = [each.cost for each in outcomes if isinstance(each, EvaluationError)]
    assert costs[0] > 1_000_000
    assert costs[-1] < 1_000


def test_an_account_within_many_bindings_is_made_in_time() -> None:
    conditions = " && ".join(["a['x'].y == 1"] * 3_000)
    text = "cel.bind(a, device.attributes, " * 200 + conditions + ")" * 200
    start = time.process_time()
    assert len(program(text).account(GPU)) == 1
    assert time.process_time() - start < 20
