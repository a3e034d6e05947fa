"""What is refused before anything is searched, and what is not looked at."""

from __future__ import annotations

from typing import Any

import pytest

from scheduling.allocator.pools import Features
from scheduling.allocator.reading import FatalError, InvalidObject, MissingClass
from tests.making.claims import CLASSES, claim, distinct, exactly, first_available, request
from tests.making.slices import Json, device, of, resource_slice, slices
from tests.scheduling.allocator.manifests import NODE, allocator, problem

DEVICES = slices([device("d0", {"model": "a"}), device("d1", {"model": "b"})])


@pytest.mark.parametrize(
    ("wanted", "features", "message"),
    [
        (
            first_available("r", exactly()),
            Features(prioritized_list=False),
            ": firstAvailable needs the feature DRAPrioritizedList",
        ),
        (
            request("r", capacity={}),
            Features(consumable_capacity=False),
            ".exactly.capacity: requests for capacity need the feature DRAConsumableCapacity",
        ),
        (
            first_available("r", exactly(), exactly(capacity={"requests": {}})),
            Features(consumable_capacity=False),
            ".firstAvailable[1].capacity: requests for capacity need the feature DRAConsumableCapacity",
        ),
        (
            request("r", adminAccess=False),
            Features(admin_access=False),
            ".exactly.adminAccess: admin access needs the feature DRAAdminAccess",
        ),
        (
            request("r", derivedAttributes=[{"name": "x"}]),
            Features(),
            ".exactly.derivedAttributes: derived attributes need the feature DRADerivedAttributes",
        ),
        (
            request("r", selectors=[{"cel": {"expression": "true"}}, {}]),
            Features(),
            ".exactly.selectors[1]: the selector is not CEL; no other kind is supported",
        ),
        (request("r", deviceClassName=""), Features(), ".exactly.deviceClassName: no device class is named"),
        (
            request("r", allocationMode="Some"),
            Features(),
            '.exactly.allocationMode: "Some" is not one of ExactCount, All',
        ),
        (
            request("r", allocationMode=None),
            Features(),
            '.exactly.allocationMode: "" is not one of ExactCount, All',
        ),
        (
            request("r", 33),
            Features(),
            ": 33 devices, after 0 for other requests: a claim can hold 32",
        ),
        (
            request("r", 2**63 - 1),
            Features(),
            f": {2**63 - 1} devices, after 0 for other requests: a claim can hold 32",
        ),
    ],
)
def test_request_that_cannot_be_served_anywhere_is_refused(wanted: Json, features: Features, message: str) -> None:
    with pytest.raises(FatalError) as caught:
        problem([claim([wanted])], DEVICES, features)
    assert str(caught.value) == f"ResourceClaim team/claim: spec.devices.requests[0]{message}"


def test_class_that_does_not_exist_is_named() -> None:
    with pytest.raises(MissingClass) as caught:
        problem([claim([request("r", deviceClassName="big")])], DEVICES)
    assert str(caught.value) == (
        'ResourceClaim team/claim: spec.devices.requests[0].exactly.deviceClassName: there is no DeviceClass "big"'
    )


def test_class_that_is_no_object_is_refused() -> None:
    with pytest.raises(InvalidObject, match=r"^DeviceClass : 'x' is not an object$"):
        allocator([claim([request("r")])], DEVICES, classes={"any": "x"}).problem(NODE)  # type: ignore[dict-item]


def test_least_of_the_alternatives_counts_against_the_limit() -> None:
    wanted = [request("a", 30), first_available("b", exactly(33), exactly(2))]
    assert [[plan.wanted for plan in plans] for plans in problem([claim(wanted)], DEVICES).claims[0].plans] == [
        [30],
        [33, 2],
    ]
    with pytest.raises(FatalError, match=r"requests\[1\]: 3 devices, after 30 for other requests"):
        problem([claim([request("a", 30), first_available("b", exactly(33), exactly(3))])], DEVICES)


def test_each_claim_has_a_limit_of_its_own() -> None:
    assert len(problem([claim([request("a", 32)], name=each) for each in "ab"], DEVICES).claims) == 2


def test_mode_all_wants_every_device_that_suits_in_use_or_not() -> None:
    made = problem([claim([request("r", 0), request("s", 0, f'{of("model")} == "b"')])], DEVICES)
    assert [plans[0].devices for plans in made.claims[0].plans] == [(0, 1), (1,)]


def test_mode_all_leaves_out_what_is_too_small_for_the_request() -> None:
    devices = [device("d0", capacity={"mem": 1}), device("d1", capacity={"mem": 4})]
    made = problem([claim([request("r", 0, capacity={"requests": {"mem": "2"}})])], slices(devices))
    assert made.claims[0].plans[0][0].devices == (1,)


@pytest.mark.parametrize(
    ("given_slices", "state"),
    [
        ([resource_slice([], pool={"resourceSliceCount": 2})], "incomplete: 1 of 2 slices exist"),
        ([resource_slice([device("d"), device("d")])], "device d is in slice slice and in slice slice"),
    ],
)
def test_mode_all_must_know_all_devices(given_slices: list[Json], state: str) -> None:
    with pytest.raises(FatalError) as caught:
        problem([claim([request("r", 0)])], given_slices)
    assert str(caught.value) == (
        "ResourceClaim team/claim: spec.devices.requests[0].exactly.allocationMode: mode All needs every pool, "
        f"but pool gpu.example.com/pool is not usable: {state}"
    )


def test_constraints_that_cover_a_request_are_known_to_its_plans() -> None:
    wanted = [first_available("a", exactly(), exactly()), request("b")]
    made = problem([claim(wanted, distinct("x"), distinct("x", "a/s1"), distinct("x", "b"))], DEVICES)
    assert [[plan.constraints for plan in plans] for plans in made.claims[0].plans] == [[(0,), (0, 1)], [(0, 2)]]


def test_class_is_asked_for_once() -> None:
    asked = []

    class Lister:
        def get(self, name: str, /) -> dict[str, Any] | None:
            asked.append(name)
            return CLASSES.get(name)

    made = allocator([claim([request("a"), request("b")]), claim([request("c")])], DEVICES, classes=Lister())  # type: ignore[arg-type]
    made.problem(NODE)
    made.problem({"metadata": {"name": "node-2"}})
    assert asked == ["any"]
