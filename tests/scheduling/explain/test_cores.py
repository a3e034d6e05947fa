"""Smallest sets that cannot be had together, against a judge that is a rule of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from kube.bodies import JsonObject, object_at, text_at
from scheduling.explain.judge import (
    Claims,
    constraints_of,
    only_alternative,
    reduced,
    requests_of,
    tolerant,
    with_count,
)
from scheduling.explain.state import objects_at
from scheduling.explain.together import smallest


def claim(name: str, requests: Sequence[str], constraints: Sequence[Sequence[str]] = ()) -> JsonObject:
    return {
        "metadata": {"name": name},
        "spec": {
            "devices": {
                "requests": [{"name": each, "exactly": {"count": 2}} for each in requests],
                "constraints": [{"matchAttribute": f"d/{i}", "requests": list(r)} for i, r in enumerate(constraints)],
                "config": [{"opaque": {"driver": "d"}}],
            }
        },
    }


def members(claims: Claims) -> set[str]:
    """What a set of claims has, as names: ``claim/request`` and ``claim:attribute``."""
    requests = {
        f"{text_at(one, 'metadata', 'name')}/{text_at(each, 'name')}"
        for one in claims
        for each in objects_at(one, "spec", "devices", "requests")
    }
    constraints = {
        f"{text_at(one, 'metadata', 'name')}:{text_at(each, 'matchAttribute')}"
        for one in claims
        for each in objects_at(one, "spec", "devices", "constraints")
    }
    return requests | constraints


def impossible_with(*bad: set[str]) -> Callable[[Claims], bool]:
    return lambda claims: not any(each <= members(claims) for each in bad)


def test_two_requests_that_compete_are_found_among_others() -> None:
    claims = [claim("x", ["a", "b", "c"]), claim("y", ["d"])]
    core = smallest(claims, impossible_with({"x/b", "y/d"}))
    assert (core.requests, core.constraints, core.minimal) == (((0, 1), (1, 0)), (), True)


def test_a_constraint_is_part_of_the_core_where_it_is_needed() -> None:
    claims = [claim("x", ["a", "b"], [["a"], []])]
    core = smallest(claims, impossible_with({"x/a", "x:d/1"}))
    assert (core.requests, core.constraints) == (((0, 0),), ((0, 1),))


def test_the_number_of_questions_is_bounded_and_the_answer_says_so() -> None:
    claims = [claim("x", [f"r{i}" for i in range(20)])]
    asked = 0

    def possible(_: Claims) -> bool:
        nonlocal asked
        asked += 1
        return False

    core = smallest(claims, possible, most_calls=5)
    assert asked == 5
    assert len(core.requests) == 15
    assert not core.minimal


def test_where_the_judge_gives_up_the_member_stays() -> None:
    core = smallest([claim("x", ["a", "b"])], lambda _: None)
    assert core.requests == ((0, 0), (0, 1))
    assert not core.minimal


NAMES = ["x/a", "x/b", "x/c", "x:d/0", "x:d/1"]


@given(st.sets(st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_core_is_impossible_and_nothing_smaller_is(bad: set[frozenset[str]]) -> None:
    # A constraint means something only with requests.
    sets = [set(each) | ({"x/a"} if all(":" in name for name in each) else set()) for each in bad]
    claims = [claim("x", ["a", "b", "c"], [[], []])]
    possible = impossible_with(*sets)
    core = smallest(claims, possible)
    assert core.minimal
    assert not possible(reduced(claims, core.requests, core.constraints))
    for left in combinations(core.requests, len(core.requests) - 1):
        assert possible(reduced(claims, left, core.constraints))
    for rules in combinations(core.constraints, max(0, len(core.constraints) - 1)):
        if len(rules) < len(core.constraints):
            assert possible(reduced(claims, core.requests, rules))


def test_constraints_forget_requests_that_are_gone() -> None:
    claims = [claim("x", ["a", "b"], [["a", "b/large"], ["b"], []])]
    made = reduced(claims, [(0, 0)], constraints_of(claims))
    rules = objects_at(made[0], "spec", "devices", "constraints")
    assert [each["requests"] for each in rules] == [["a"], []]
    assert "config" not in object_at(made[0], "spec", "devices")


def test_claims_without_requests_are_left_out() -> None:
    claims = [claim("x", ["a"]), claim("y", ["b"])]
    assert members(reduced(claims, [(1, 0)], ())) == {"y/b"}
    assert requests_of(claims) == [(0, 0), (1, 0)]


def test_easier_claims_leave_the_others_as_they_were() -> None:
    claims = [claim("x", ["a", "b"])]
    easier = tolerant(with_count(claims, (0, 1), 1))
    exact = [each["exactly"] for each in objects_at(easier[0], "spec", "devices", "requests")]
    assert exact == [
        {"count": 2, "tolerations": [{"operator": "Exists"}]},
        {"allocationMode": "ExactCount", "count": 1, "tolerations": [{"operator": "Exists"}]},
    ]
    assert members(claims) == {"x/a", "x/b"}


def test_one_alternative_of_several_is_kept() -> None:
    first: JsonObject = {"name": "gpu", "firstAvailable": [{"name": "large"}, {"name": "small"}]}
    claims: list[JsonObject] = [{"metadata": {"name": "x"}, "spec": {"devices": {"requests": [first]}}}]
    made = only_alternative(claims, (0, 0), 1)
    assert objects_at(made[0], "spec", "devices", "requests")[0]["firstAvailable"] == [{"name": "small"}]
