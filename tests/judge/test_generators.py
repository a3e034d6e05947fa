"""Generators repeat themselves with their seed, reach everything they are meant to, and shrink what differs."""

from __future__ import annotations

import json

import pytest

from tests.judge.answers import Judge
from tests.judge.chance import Json
from tests.judge.comparison import cel_verdict
from tests.judge.expressions import Expressions
from tests.judge.fuzz import Contest, cel_cases, compare, smallest
from tests.judge.generate import allocation_case
from tests.judge.shrink import shrunk

REACHED = (
    "allNodes", "nodeSelector", "perDeviceNodeSelection", "matchFields", "sharedCounters", "consumesCounters", "taints",
    "tolerations", "bindingConditions", "bindsToNode", "firstAvailable", '"All"', "adminAccess", "matchAttribute",
    "distinctAttribute", "ints", "validValues", "validRange", "allowMultipleAllocations", "opaque", "shared", "nosuch",
    "moreNodes", '"r5"', "-counters-1", "gpu.example.com/mem",
)  # fmt: skip


def test_same_number_is_the_same_case() -> None:
    assert allocation_case(1, 7) == allocation_case(1, 7) != allocation_case(1, 8)
    assert Expressions(1, 7).case() == Expressions(1, 7).case() != Expressions(1, 8).case()


@pytest.mark.parametrize("word", REACHED)
def test_feature_is_reached_within_a_hundred_cases(word: str) -> None:
    assert any(word in json.dumps(allocation_case(1, number)) for number in range(100))


def test_generated_allocations_are_neither_all_possible_nor_all_impossible(judge: Judge) -> None:
    cases = [allocation_case(1, number) for number in range(200)]
    answers = list(judge.answers("allocate", cases))
    given = sum(1 for answer in answers if answer.get("results"))
    failed = sum(1 for answer in answers if answer.get("errorKind"))
    assert given > 40
    assert failed > 10
    assert len(answers) - given - failed > 40


def test_most_generated_expressions_can_be_evaluated(judge: Judge) -> None:
    answers = list(judge.answers("cel", [Expressions(1, number).case() for number in range(300)]))
    assert sum(1 for answer in answers if "result" in answer) > 100
    assert sum(1 for answer in answers if "runtime_error" in answer) > 20
    assert sum(1 for answer in answers if "compile_error" in answer) > 20


def test_shrinking_keeps_what_differs_and_drops_the_rest() -> None:
    case = {
        "name": "x",
        "slices": [
            {"spec": {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 2}, "devices": [{"name": "a"}]}},
            {
                "spec": {
                    "driver": "d",
                    "pool": {"name": "p", "resourceSliceCount": 2},
                    "devices": [{"name": "b", "k": 1}],
                }
            },
        ],
    }
    small = shrunk(case, lambda smaller: '"b"' in json.dumps(smaller))
    assert small == {
        "name": "x",
        "slices": [
            {"spec": {"driver": "d", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": [{"name": "b"}]}}
        ],
    }


def test_difference_is_found_and_made_small(judge: Judge) -> None:
    def ours(case: Json) -> Json:
        answer = judge.answer("cel", case)
        return answer | {"result": True} if "result" in answer else answer

    def differences(one: Json, other: Json) -> list[str]:
        return ["differs"] if one.get("result") != other.get("result") else []

    contest = Contest("cel", cases=cel_cases, ours=ours, differences=differences, verdict=cel_verdict)
    cases = list(cel_cases(1, 0, 50))
    # The answers are read while the contest asks for others: two judges.
    with Judge() as other:
        tally = compare(contest, other, iter(cases))
        assert 0 < len(tally.differing) < len(cases)
        small = smallest(contest, other, tally.differing[0][0])
    assert set(small["device"]) <= {"driver", "attributes", "capacity"}
