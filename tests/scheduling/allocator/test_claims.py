"""ResourceClaims and DeviceClasses as they are read; taints and tolerations match as those of nodes and pods do."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.claims import Claim, DeviceClass, DeviceRequest, Toleration, prevents, tolerates, untolerated
from scheduling.allocator.reading import FatalError, InvalidObject
from scheduling.allocator.slices import Taint
from tests.making.claims import claim, exactly, first_available, request


def only(entry: dict[str, Any]) -> DeviceRequest:
    return Claim(claim([entry])).requests[0].alternatives[0]


def test_request_is_named_as_it_is_and_alternatives_behind_it() -> None:
    choices = Claim(claim([request("a"), first_available("b", exactly(), exactly(2))])).requests
    assert [choice.name for choice in choices] == ["a", "b"]
    assert [choice.prioritized for choice in choices] == [False, True]
    assert [[(each.name, each.parent, each.count) for each in choice.alternatives] for choice in choices] == [
        [("a", "", 1)],
        [("b/s0", "b", 1), ("b/s1", "b", 2)],
    ]


def test_alternatives_go_before_exactly() -> None:
    both = {**first_available("a", exactly(2)), "exactly": exactly(3)}
    assert only(both).name == "a/s0"


def test_alternative_cannot_ask_for_admin_access() -> None:
    made = only(first_available("a", exactly(adminAccess=True)))
    assert (made.admin_access, made.asks_admin_access) == (False, False)


@pytest.mark.parametrize(("value", "asks", "has"), [(True, True, True), (False, True, False), (None, False, False)])
def test_admin_access_is_asked_for_even_where_it_is_false(value: bool | None, asks: bool, has: bool) -> None:
    made = only(request("a", adminAccess=value))
    assert (made.asks_admin_access, made.admin_access) == (asks, has)


def test_tolerations_selectors_and_capacities_are_read() -> None:
    made = only(
        request(
            "a",
            2,
            "true",
            tolerations=[{"key": "k", "operator": "Exists"}],
            capacity={"requests": {"mem": "1Gi"}},
        )
    )
    assert made.tolerations == (Toleration("k", "Exists", "", ""),)
    assert made.selectors == ("true",)
    assert {name: amount.text for name, amount in made.capacities.items()} == {"mem": "1Gi"}
    assert made.asks_capacity


def test_selector_of_another_kind_is_kept_as_unknown() -> None:
    assert only(request("a", selectors=[{"cel": {"expression": "true"}}, {"rego": {}}])).selectors == ("true", None)


def test_request_without_a_way_to_satisfy_it_is_refused() -> None:
    with pytest.raises(FatalError) as caught:
        _ = Claim(claim([{"name": "a"}])).requests
    assert str(caught.value) == (
        "ResourceClaim team/claim: spec.devices.requests[0]: "
        "neither exactly nor firstAvailable is set: there is nothing to allocate"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("x", "spec: 'x' is not an object"),
        ({"devices": []}, "spec.devices: [] is not an object"),
        ({"devices": {"config": {}}}, "spec.devices.config: {} is not a list"),
    ],
)
def test_broken_claim_is_named_at_once(spec: object, message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        Claim({"metadata": {"name": "c"}, "spec": spec})
    assert str(caught.value) == f"ResourceClaim c: {message}"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": 5, "exactly": {}}, "name: 5 is not a string"),
        ({"name": "a", "exactly": []}, "exactly: [] is not an object"),
        ({"name": "a", "firstAvailable": {}}, "firstAvailable: {} is not a list"),
        ({"name": "a", "firstAvailable": [{"name": 1}]}, "firstAvailable[0].name: 1 is not a string"),
        (request("a", deviceClassName=1), "exactly.deviceClassName: 1 is not a string"),
        (request("a", allocationMode=["All"]), "exactly.allocationMode: ['All'] is not a string"),
        (request("a", "1"), "exactly.count: '1' is not a whole number"),
        (request("a", 2**70), f"exactly.count: {2**70} is not a whole number of 64 bits"),
        (request("a", adminAccess="yes"), "exactly.adminAccess: 'yes' is not true or false"),
        (request("a", selectors="true"), "exactly.selectors: 'true' is not a list"),
        (request("a", selectors=[{"cel": "true"}]), "exactly.selectors[0].cel: 'true' is not an object"),
        (
            request("a", selectors=[{"cel": {"expression": 1}}]),
            "exactly.selectors[0].cel.expression: 1 is not a string",
        ),
        (request("a", tolerations=[{"key": 1}]), "exactly.tolerations[0].key: 1 is not a string"),
        (request("a", capacity=5), "exactly.capacity: 5 is not an object"),
        (request("a", capacity={"requests": ["mem"]}), "exactly.capacity.requests: ['mem'] is not an object"),
        (request("a", capacity={"requests": {"mem": "x"}}), 'exactly.capacity.requests[mem]: "x" is not a quantity'),
    ],
)
def test_broken_request_is_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        _ = Claim(claim([entry])).requests
    assert str(caught.value).startswith(f"ResourceClaim team/claim: spec.devices.requests[0].{message}")


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        ({"requests": "a", "matchAttribute": "x"}, "requests: 'a' is not a list of strings"),
        ({"matchAttribute": 5}, "matchAttribute: 5 is not a string"),
        ({"distinctAttribute": ["x"]}, "distinctAttribute: ['x'] is not a string"),
    ],
)
def test_broken_constraint_is_named(constraint: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        _ = Claim(claim([request("a")], constraint)).constraints
    assert str(caught.value).startswith(f"ResourceClaim team/claim: spec.devices.constraints[0].{message}")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (5, "spec: 5 is not an object"),
        ({"selectors": {}}, "spec.selectors: {} is not a list"),
        ({"selectors": [{"cel": {"expression": []}}]}, "spec.selectors[0].cel.expression: [] is not a string"),
        ({"config": [5]}, "spec.config[0]: 5 is not an object"),
    ],
)
def test_broken_class_is_named(spec: object, message: str) -> None:
    with pytest.raises(InvalidObject) as caught:
        DeviceClass({"metadata": {"name": "gpu"}, "spec": spec})
    assert str(caught.value).startswith(f"DeviceClass gpu: {message}")


def test_class_has_selectors_and_configuration() -> None:
    spec = {"selectors": [{"cel": {"expression": "true"}}], "config": [{"opaque": {}}]}
    made = DeviceClass({"metadata": {"name": "gpu"}, "spec": spec})
    assert (made.name, made.selectors, [each.object for each in made.config]) == ("gpu", ("true",), [{"opaque": {}}])


TAINT = Taint("example.com/maint", "soon", "NoSchedule")


@pytest.mark.parametrize(
    ("effect", "prevented"),
    [("NoSchedule", True), ("NoExecute", True), ("None", False), ("", False), ("PreferNoSchedule", False)],
)
def test_only_two_effects_keep_a_claim_away(effect: str, prevented: bool) -> None:
    assert prevents(Taint("key", "", effect)) is prevented


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("example.com/maint", "Equal", "soon", "NoSchedule"), True),
        (Toleration("example.com/maint", "", "soon", ""), True),
        (Toleration("", "Equal", "soon", ""), True),
        (Toleration("example.com/maint", "Equal", "later", ""), False),
        (Toleration("example.com/maint", "Equal", "", ""), False),
        (Toleration("example.com/maint", "Exists", "", ""), True),
        (Toleration("example.com/maint", "Exists", "later", ""), True),
        (Toleration("", "Exists", "", ""), True),
        (Toleration("example.com/other", "Exists", "", ""), False),
        (Toleration("example.com/maint", "Exists", "", "NoExecute"), False),
        (Toleration("example.com/maint", "Foo", "soon", ""), False),
    ],
)
def test_toleration_matches_by_key_operator_value_and_effect(toleration: Toleration, tolerated: bool) -> None:
    assert tolerates(toleration, TAINT) is tolerated


def test_every_preventing_taint_needs_a_toleration_of_its_own() -> None:
    other, harmless = Taint("other", "", "NoExecute"), Taint("note", "", "None")
    taints = (TAINT, other, harmless)
    one = Toleration("example.com/maint", "Exists", "", "")
    assert untolerated(taints, ()) == (TAINT, other)
    assert untolerated(taints, (one,)) == (other,)
    assert untolerated(taints, (one, Toleration("other", "Exists", "", ""))) == ()
