"""What several devices and requests do to each other, and what devices that fit have in common.

Smallest sets that cannot be satisfied together are checked against a judge that is a rule of the test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
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
from tests.making.clusters import (
    GPU,
    GPU_CLASS,
    NIC,
    NIC_CLASS,
    ROOT,
    Object,
    claim,
    device,
    gpus,
    holder,
    match,
    node,
    request,
    resource_slice,
)
from tests.scheduling.explain.cases import CaseAnswers


def bare_claim(name: str, requests: Sequence[str], constraints: Sequence[Sequence[str]] = ()) -> JsonObject:
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
    claims = [bare_claim("x", ["a", "b", "c"]), bare_claim("y", ["d"])]
    core = smallest(claims, impossible_with({"x/b", "y/d"}))
    assert (core.requests, core.constraints, core.minimal) == (((0, 1), (1, 0)), (), True)


def test_a_constraint_is_part_of_the_core_where_it_is_needed() -> None:
    claims = [bare_claim("x", ["a", "b"], [["a"], []])]
    core = smallest(claims, impossible_with({"x/a", "x:d/1"}))
    assert (core.requests, core.constraints) == (((0, 0),), ((0, 1),))


def test_the_number_of_questions_is_bounded_and_the_answer_says_so() -> None:
    claims = [bare_claim("x", [f"r{i}" for i in range(20)])]
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
    core = smallest([bare_claim("x", ["a", "b"])], lambda _: None)
    assert core.requests == ((0, 0), (0, 1))
    assert not core.minimal


NAMES = ["x/a", "x/b", "x/c", "x:d/0", "x:d/1"]


@given(st.sets(st.frozensets(st.sampled_from(NAMES), min_size=1, max_size=4), min_size=1, max_size=4))
def test_a_core_is_impossible_and_nothing_smaller_is(bad: set[frozenset[str]]) -> None:
    # A constraint means something only with requests.
    sets = [set(each) | ({"x/a"} if all(":" in name for name in each) else set()) for each in bad]
    claims = [bare_claim("x", ["a", "b", "c"], [[], []])]
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
    claims = [bare_claim("x", ["a", "b"], [["a", "b/large"], ["b"], []])]
    made = reduced(claims, [(0, 0)], constraints_of(claims))
    rules = objects_at(made[0], "spec", "devices", "constraints")
    assert [each["requests"] for each in rules] == [["a"], []]
    assert "config" not in object_at(made[0], "spec", "devices")


def test_claims_without_requests_are_left_out() -> None:
    claims = [bare_claim("x", ["a"]), bare_claim("y", ["b"])]
    assert members(reduced(claims, [(1, 0)], ())) == {"y/b"}
    assert requests_of(claims) == [(0, 0), (1, 0)]


def test_easier_claims_leave_the_others_as_they_were() -> None:
    claims = [bare_claim("x", ["a", "b"])]
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


A = node("node-a")
CLASSES = (GPU_CLASS, NIC_CLASS)
MIXED = resource_slice(
    "node-a", [device("gpu-0", root="pci0"), device("gpu-1", root="pci1"), device("gpu-2", root="pci1")]
)
NIC_AT_0 = resource_slice("node-a", [device("nic-0", root="pci0")], NIC)
NIC_AT_1 = resource_slice("node-a", [device("nic-0", root="pci1")], NIC)
GPUS_AND_NIC = claim(request(count=2), request("nic", NIC), constraints=[match(ROOT)])
CASES: dict[str, tuple[Object, ...]] = {
    "what-devices-that-fit-have-in-common": (A, *CLASSES, MIXED, NIC_AT_1, GPUS_AND_NIC),
    "a-match-that-no-choice-keeps": (A, *CLASSES, MIXED, NIC_AT_0, GPUS_AND_NIC),
    "a-match-that-a-held-device-breaks": (A, *CLASSES, MIXED, NIC_AT_1, GPUS_AND_NIC, holder("node-a", "gpu-2")),
    "a-match-of-an-attribute-that-nobody-has": (
        A,
        *CLASSES,
        MIXED,
        claim(request(), constraints=[match("x.example.com/y")]),
    ),
    "a-distinction-that-no-choice-keeps": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(4, slot=1)),
        claim(request(count=2), constraints=[{"distinctAttribute": f"{GPU}/slot"}]),
    ),
    "requests-that-compete": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(3)),
        claim(request("a", GPU, 2), request("b", GPU, 2)),
    ),
    "requests-that-compete-are-told-without-those-that-do-not": (
        A,
        *CLASSES,
        NIC_AT_0,
        resource_slice("node-a", gpus(3)),
        claim(request("a", GPU, 2), request("nic", NIC), request("b", GPU, 2)),
    ),
    "constraints-that-compete": (
        A,
        GPU_CLASS,
        resource_slice(
            "node-a",
            [
                device("gpu-0", root="pci0", slot=0),
                device("gpu-1", root="pci0", slot=0),
                device("gpu-2", root="pci1", slot=1),
            ],
        ),
        claim(request(count=2), constraints=[match(ROOT), {"distinctAttribute": f"{GPU}/slot"}]),
    ),
    "all-devices-under-a-match-that-they-break": (
        A,
        GPU_CLASS,
        MIXED,
        claim(request(allocationMode="All"), constraints=[match(ROOT)]),
    ),
    "admin-access-does-not-mind-holders": (
        A,
        GPU_CLASS,
        resource_slice("node-a", gpus(2)),
        claim(request(count=2, adminAccess=True)),
        holder("node-a", "gpu-0", "gpu-1"),
    ),
    "devices-with-conditions-make-the-pod-wait": (
        A,
        GPU_CLASS,
        resource_slice(
            "node-a",
            [device("gpu-0", more={"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]})],
        ),
        claim(request()),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_answer(case: str, tmp_path: Path, capsys: Any) -> None:
    CaseAnswers(tmp_path, capsys).check(case, *CASES[case])
