from __future__ import annotations

import sys

import pytest

from scheduling.cel.environment import CelFeatures, environment, price_by_name
from scheduling.cel.errors import CompileError, EvaluationError
from scheduling.cel.library.function import Overload
from tests.making.cel import GPU, failure, holds, outcome, program

D = 'device.attributes["gpu.example.com"]'
HINT = "; an identifier that not every device has can be read with .? and orValue(), or guarded with has()"
INTERPRETED = {"_&&_", "_||_", "_?_:_", "_==_", "_!=_", "_[_]", "_?._", "_[?_]", "@not_strictly_false", "or", "orValue"}
"""What the interpreter evaluates itself."""


def _overloads(features: CelFeatures) -> list[Overload]:
    return [each for overloads in environment(features).functions.values() for each in overloads]


@pytest.mark.parametrize("features", [CelFeatures(), CelFeatures(stored=False)])
def test_every_function_that_can_be_called_is_implemented_once(features: CelFeatures) -> None:
    found = _overloads(features)
    assert {each.function for each in found if each.call is None} == INTERPRETED
    assert len({each.id for each in found}) == len(found)


def test_all_overloads_that_are_priced_by_name_have_the_price_of_their_name() -> None:
    for each in _overloads(CelFeatures()):
        if each.price.by_name:
            assert each.price.cost is price_by_name(each.function).cost, each.id


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 == 1", "integer overflow"),
        ("1u - 2u == 1u", "unsigned integer overflow"),
        ("[1][5] == 1", "index out of bounds: 5"),
        ('dyn("x") + 1 == 1', "no such overload: _+_(string, int)"),
        ('dyn("x") && true', "no such overload: _&&_(string)"),
        ('"abc".substring(9) == ""', "index out of range: 9"),
        ('dyn("x").all(y, true)', "unsupported comprehension range type: string"),
        (f"{D}.model", "the result must be true or false, but it is of type string"),
        (
            f"{D}.nosuch == 1",
            f"no such key: nosuch{HINT}",
        ),
        ("optional.none().value()", "optional.none() dereference"),
        ('"%d".format([dyn("x")]) == ""', "decimal clause can only be used on integers, was given string"),
    ],
)
def test_an_error_says_what_is_wrong(expression: str, message: str) -> None:
    assert failure(expression).message == message


def test_an_error_has_the_place_of_the_operation_that_failed() -> None:
    error = failure("true &&\n  1 / 0 == 1")
    assert str(error) == "2:5: division by zero"


def test_logic_forgives_an_error_only_when_the_other_side_decides() -> None:
    assert holds("1 / 0 == 1 || true")
    assert holds("!(1 / 0 == 1 && false)")
    assert failure("1 / 0 == 1 || false").message == "division by zero"
    assert failure("1 / 0 == 1 && 1 % 0 == 1").message == "division by zero"


def test_a_loop_forgives_errors_of_elements_that_do_not_decide() -> None:
    assert holds("[1, 2, 0].exists(x, 2 / x == 1)")
    assert failure("[1, 0].all(x, 1 / x == 1)").message == "division by zero"


def test_the_limit_is_what_may_be_spent_and_one_unit_more_is_an_error() -> None:
    expression = f'{D}.model == "H200" && device.driver == "gpu.example.com"'
    cost = outcome(expression).cost
    assert outcome(expression, cost).result
    error = failure(expression, cost - 1)
    assert error.cost_exceeded
    assert error.cost >= cost


def test_a_constant_that_cannot_be_computed_is_an_error_of_the_expression() -> None:
    with pytest.raises(CompileError) as raised:
        program('int("x") == 1')
    assert raised.value.kind == "Internal"
    assert "type conversion error from 'string' to 'int'" in str(raised.value)


def test_evaluations_do_not_see_each_other() -> None:
    selector = program("[1, 2, 3].map(x, x * 2).filter(x, x > 2) == [4, 6]")
    assert {selector.evaluate(GPU).cost for _ in range(3)} == {selector.evaluate(GPU).cost}


def test_without_the_library_for_patterns_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises((CompileError, EvaluationError), match=r"pip install 'ostler\[explain\]'"):
        program(f'{D}.model.find("^H" + "2") == "H2" || true').evaluate(GPU)


def test_patterns_are_of_linear_time_syntax() -> None:
    assert holds('"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!".matches("^(a+)+$") == false')
    assert holds('"größe-日本".findAll("[^a-z-]") == ["ö", "ß", "日", "本"]')
    assert holds('"aXbX".findAll("X*") == ["", "X", "X"]')


def test_what_a_text_may_grow_to_counts_all_of_it() -> None:
    """65536 letters, each replaced by 256 make just the 16 MiB that are allowed."""
    start = f"cel.bind(a, '{'a' * 4096}', cel.bind(b, a + a + a + a, cel.bind(c, b + b + b + b, "
    assert holds(f"{start}c.replace('a', '{'b' * 256}').size() == 16777216)))")
    assert failure(f"{start}c.replace('a', '{'b' * 257}').size() > 0)))").cost_exceeded
    assert failure(f"lists.range(65000).map(x, 'a').join('{'b' * 260}').size() > 0").cost_exceeded
