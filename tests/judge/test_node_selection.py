"""A slice is for the nodes that Kubernetes' own node affinity selects."""

from __future__ import annotations

from typing import Any

from tests.judge.answers import Judge
from tests.judge.chance import Chance
from tests.judge.comparison import allocation_differences
from tests.judge.generate import GATES
from tests.judge.our_allocation import allocate

CASES = 600
KEYS = ("zone", "rack", "nosuch", "example.com/zone", "metadata.name", "", "a b", "/x", "x/", "a/b/c", "A.b/c", "-x")
VALUES = ("z1", "z2", "", "3", "2", "-1", "+3", "03", "x y", "-", "a" * 63, "a" * 64, str(2**63), "1_0", "node-1")
OPERATORS = ("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Foo", "")


def selector(chance: Chance) -> dict[str, Any]:
    return {"nodeSelectorTerms": [_term(chance) for _ in range(chance.number(0, 2))]}


def _term(chance: Chance) -> dict[str, Any]:
    term: dict[str, Any] = {}
    if chance.maybe(0.8):
        term["matchExpressions"] = [_requirement(chance, KEYS[: chance.one((4, 4, 4, 12))]) for _ in range(2)]
    if chance.maybe(0.3):
        term["matchFields"] = [_requirement(chance, ("metadata.name", "metadata.name", "zone"))]
    return term


def _requirement(chance: Chance, keys: tuple[str, ...]) -> dict[str, Any]:
    operator = chance.one(OPERATORS[: chance.one((7, 7, 9))])
    made: dict[str, Any] = {"key": chance.one(keys), "operator": operator}
    many = {"Exists": 0, "DoesNotExist": 0, "Gt": 1, "Lt": 1}.get(operator, chance.number(1, 3))
    if chance.maybe(0.1):
        many = chance.number(0, 2)
    values = VALUES[: chance.one((6, 6, len(VALUES)))]
    return {**made, "values": [chance.one(values) for _ in range(many)]} if many else made


def case(number: int) -> dict[str, Any]:
    chance = Chance(f"node selection {number}")
    place = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec: dict[str, Any] = {
        "driver": "d.example.com",
        "pool": place,
        "devices": [{"name": "d"}],
        "nodeSelector": selector(chance),
    }
    if chance.maybe(0.3):
        spec["perDeviceNodeSelection"] = True
        spec["devices"] = [{"name": "d", "nodeSelector": spec.pop("nodeSelector")}]
    labels = {"zone": chance.one(("z1", "z2", "")), "rack": chance.one(("3", "x", "-1", "+3")), "example.com/zone": "3"}
    exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
    return {
        "name": f"node-selection-{number}",
        "features": {**dict.fromkeys(GATES, True), "listTypeAttributes": False},
        "variant": "incubating",
        "node": {"metadata": {"name": "node-1", "labels": labels}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": [{"metadata": {"name": "slice"}, "spec": spec}],
        "claims": [
            {
                "metadata": {"name": "c", "namespace": "n", "uid": "u"},
                "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            }
        ],
        "allocated": {},
    }


def test_generated_node_selectors_select_what_kubernetes_selects(judge: Judge) -> None:
    cases = [case(number) for number in range(CASES)]
    kinds: set[str] = set()
    for each, theirs in zip(cases, judge.answers("allocate", iter(cases)), strict=True):
        kinds.add(theirs["errorKind"] or ("selected" if theirs["results"] else "not selected"))
        assert allocation_differences(allocate(each), theirs) == [], each["slices"]
    assert kinds == {"fatal", "selected", "not selected"}
