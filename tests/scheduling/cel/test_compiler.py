from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from scheduling.cel.compiler import ProgramCache
from scheduling.cel.compiler import compile as compile_expression
from scheduling.cel.environment import CelFeatures
from scheduling.cel.errors import CompileError
from scheduling.cel.program import Program
from scheduling.cel.syntax import SourcePlace
from tests.making.cel_expressions import expression

STORED = CelFeatures()


def refused(source: str) -> CompileError:
    with pytest.raises(CompileError) as raised:
        compile_expression(source)
    return raised.value


def answer(source: str, features: CelFeatures = STORED) -> Program | CompileError:
    try:
        return compile_expression(source, features)
    except CompileError as error:
        return error


def test_a_program_is_made_once_for_the_same_features() -> None:
    first = compile_expression("device.driver == 'a'")
    assert compile_expression("device.driver == 'a'") is first
    assert compile_expression("device.driver == 'a'", CelFeatures(list_attributes=True)) is not first


def test_an_error_is_remembered_but_raised_anew() -> None:
    first, second = refused("devise == 1"), refused("devise == 1")
    assert first is not second
    assert str(first) == str(second) == "1:1: there is no name 'devise'; did you mean 'device'?"


def test_threads_may_compile_at_once() -> None:
    sources = [f"device.driver == '{number % 7}'" for number in range(200)]
    with ThreadPoolExecutor(8) as pool:
        programs = list(pool.map(compile_expression, sources))
    assert [each.expression for each in programs] == sources


def test_an_error_has_its_place_and_the_others() -> None:
    error = refused("device.driver == 'a' &&\n  device.model == 1 && b == 2")
    assert (error.kind, error.place) == ("Invalid", SourcePlace(2, 8))
    assert error.others == ((SourcePlace(2, 23), "there is no name 'b'"),)


def test_an_error_of_the_whole_has_no_place() -> None:
    error = refused("1 + 1")
    assert error.place is None
    assert str(error) == "a selector must be true or false, but this is of type int"


@pytest.mark.parametrize(
    "source", ['int("x") == 5', "uint(-1) == 1u", 'bool("yes")', r'string(b"\xff") == "x"', '"a".find("(") == ""']
)
def test_a_constant_that_cannot_be_computed_is_an_internal_error(source: str) -> None:
    error = refused(source)
    assert error.kind == "Internal"
    assert error.message.startswith("this constant cannot be computed: ")


def test_without_google_re2_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    error = refused('device.driver.matches("no other test has this pattern")')
    assert error.kind == "Internal"
    assert "pip install 'ostler[explain]'" in error.message


def test_half_a_surrogate_pair_is_a_replacement_character() -> None:
    assert compile_expression('"\ud800" == "\ufffd"').expression == '"\ufffd" == "\ufffd"'


@pytest.mark.parametrize(
    "source",
    [
        "(" * 99_000 + "true" + ")" * 900,
        " || ".join(["device.driver == 'a'"] * 4_000),
        "!" * 99_990 + "true",
        "[1].map(x, " * 249 + "1" + ")" * 249 + " == []",
        "[1].exists(x, !(x == 1 ? [x].all(y, cel.bind(z, y, " * 60 + "true" + ")) : false))" * 60,
        "[" + "1," * 45_000 + "] == []",
        "optional.of(1)" + ".optMap(x, x)" * 200 + ".hasValue()",
        "true ? " * 10_000,
        '"' + "\\\\" * 49_000 + '" == ""',
        "a." * 49_000 + "a",
    ],
)
def test_a_hostile_expression_gets_an_answer(source: str) -> None:
    assert len(str(answer(source))) < 300


def test_a_caller_deep_in_its_stack_gets_a_clear_error() -> None:
    def dive(levels: int) -> Program:
        return compile_expression("device.driver == 'deep'") if levels == 0 else dive(levels - 1)

    limit, outcomes = sys.getrecursionlimit(), set()
    for levels in range(limit - 150, limit - 100):
        try:
            outcomes.add(type(dive(levels)).__name__)
        except (CompileError, RecursionError) as error:
            outcomes.add(type(error).__name__)
    assert outcomes <= {"Program", "CompileError", "RecursionError"}
    assert compile_expression("device.driver == 'deep'").output_type == "bool"


def test_whatever_is_compiled_gives_a_program_or_a_clear_error() -> None:
    programs = 0
    for seed in range(3000):
        found = answer(expression(seed), CelFeatures(seed % 2 == 0, seed % 3 == 0, seed % 5 != 0))
        if isinstance(found, Program):
            programs += 1
        else:
            assert found.message
    assert 100 < programs < 2900


class Maker:
    """Makes a text of its key; counts how often."""

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.made: list[str] = []

    def get(self, cache: ProgramCache[str], key: str) -> str:
        def make() -> tuple[str, int]:
            self.made.append(key)
            return f"made of {key}", self.weight

        return cache.get(key, make)


def test_what_is_known_is_not_made_again() -> None:
    cache, maker = ProgramCache[str](10), Maker(1)
    assert [maker.get(cache, "a") for _ in range(3)] == ["made of a"] * 3
    assert maker.made == ["a"]


def test_the_least_recently_used_is_forgotten() -> None:
    cache, maker = ProgramCache[str](10), Maker(5)
    for key in ("a", "b", "a", "c", "a", "b"):
        maker.get(cache, key)
    assert maker.made == ["a", "b", "c", "b"]


def test_all_that_fits_is_kept() -> None:
    cache, maker = ProgramCache[str](10), Maker(5)
    for key in ("a", "b", "a", "b"):
        maker.get(cache, key)
    assert maker.made == ["a", "b"]


def test_what_is_too_heavy_is_made_but_not_kept() -> None:
    cache, maker = ProgramCache[str](10), Maker(11)
    assert [maker.get(cache, "a") for _ in range(2)] == ["made of a"] * 2
    assert maker.made == ["a", "a"]


def test_threads_get_what_belongs_to_their_key() -> None:
    cache, maker = ProgramCache[str](3), Maker(1)
    keys = [str(number % 7) for number in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda key: maker.get(cache, key), keys)) == [f"made of {key}" for key in keys]
    # Who came last may have put another key in the place of the last one.
    maker.get(cache, keys[-1])
    last = len(maker.made)
    maker.get(cache, keys[-1])
    assert len(maker.made) == last, "the weights still add up"
