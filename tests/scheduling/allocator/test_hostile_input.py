"""Broken and hostile objects: a typed error that names them or an answer, in bounded time."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import SliceIndex
from scheduling.allocator.reading import AllocationError
from tests.judge.generate import allocation_case
from tests.judge.our_allocation import features as features_of
from tests.making.claims import CLASSES, claim, distinct, exactly, first_available, match, request
from tests.making.slices import Json, device, resource_slice, slices
from tests.scheduling.allocator.manifests import NODE, allocator, devices_of

SLOWEST_S = 20.0
"""Most time for what takes a second or two on an idle machine."""

ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
DEEP: list[Any] = []
for _ in range(3_000):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    None, [], {}, "", "x", 0, -1, 10**30, 10**6_000, 1.5, float("nan"), float("inf"), True, False, ["a"], [None], [1],
    {"a": None}, {"a": 1}, {1: 2}, {None: "x"}, {"value": "1"}, "1Gi", "-5", [[]], ENDLESS, DEEP, b"x", "a" * 500,
    {"cel": None}, {"opaque": 3}, object(), (1, 2),
)  # fmt: skip


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths to everything in an object."""
    if len(path) > 14:
        return
    entries = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for key, value in entries:
        yield (*path, key)
        yield from places(value, (*path, key))


def spoil(case: Json, chance: random.Random) -> None:
    """Put something odd somewhere, or rename a field."""
    part = chance.choice(("node", "classes", "slices", "slices", "claims", "claims"))
    found = list(places(case[part], (part,)))
    if not found:
        return
    path = chance.choice(found)
    parent: Any = case
    for key in path[:-1]:
        parent = parent[key]
    odd = chance.choice(ODD)
    if isinstance(parent, dict) and chance.random() < 0.15:
        parent[odd if isinstance(odd, int | float | str | None) else "unknown"] = parent.pop(path[-1])
    else:
        parent[path[-1]] = odd


def classes_of(case: Json) -> dict[str, Any]:
    named = {}
    for each in case["classes"] if isinstance(case["classes"], list) else ():
        name = each.get("metadata") if isinstance(each, dict) else None
        if isinstance(name, dict) and isinstance(name.get("name"), str):
            named[name["name"]] = each
    return named


@pytest.mark.parametrize("seed", range(6))
def test_odd_values_anywhere_give_a_typed_error_or_an_answer(seed: int) -> None:
    chance = random.Random(seed)
    errors = longest = 0
    for number in range(150):
        case = allocation_case(seed, number)
        for _ in range(chance.choice((1, 1, 2, 4))):
            spoil(case, chance)
        asked = iter(range(80))
        try:
            made = Allocator(
                case["claims"],
                AllocatedState(),
                classes_of(case),
                case["slices"],
                features_of(case),
                give_up=lambda left=asked: next(left, None) is None,  # type: ignore[misc]
            )
            made.allocate(case["node"])
        except AllocationError as error:
            errors += 1
            longest = max(longest, len(str(error)))
        except TypeError:
            # A list of claims or slices that is none is a mistake of the calling program, not of an object.
            assert not all(isinstance(case[each], list | dict | str | tuple) for each in ("claims", "slices"))
    assert errors > 30
    assert longest < 2_500


@pytest.mark.parametrize("part", ["claims", "slices"])
def test_object_that_is_none_is_refused(part: str) -> None:
    given: dict[str, list[Any]] = {"claims": [claim([request("r")])], "slices": slices([device("d")])}
    given[part].append("x")
    with pytest.raises(AllocationError, match="'x' is not an object"):
        allocator(given["claims"], given["slices"]).allocate(NODE)


def timed(made: Allocator) -> list[list[str]] | None:
    start = time.process_time()
    results = made.allocate(NODE)
    assert time.process_time() - start < SLOWEST_S
    return devices_of(results)


def test_ten_thousand_devices_in_a_pool_are_looked_through() -> None:
    devices = [device(f"d{each}", {"index": each, "root": each // 2}) for each in range(10_000)]
    last = request("last", 2, 'device.attributes["gpu.example.com"].index >= 9998')
    assert timed(allocator([claim([last], match("root"))], slices(devices))) == [["last=d9998", "last=d9999"]]
    assert timed(allocator([claim([request("a", 30), last], match("root"))], slices(devices))) is None


def test_ten_thousand_devices_that_take_counters_are_looked_through() -> None:
    devices = [device(f"d{each}", counters={f"set-{each // 10}": {"x": 1}}) for each in range(10_000)]
    sets = {f"set-{each}": {"x": 0} for each in range(1_000)}
    assert timed(allocator([claim([request("a", 3)])], slices(devices, sets))) is None


def test_thousand_slices_of_a_pool_are_gathered() -> None:
    made = [
        resource_slice([device(f"d{each}")], f"slice-{each:04}", pool={"resourceSliceCount": 1_000})
        for each in range(1_000)
    ]
    assert timed(allocator([claim([request("a", 2)])], made)) == [["a=d0", "a=d1"]]
    assert timed(allocator([claim([request("a", 2)])], made[1:])) is None


def test_thousands_of_claims_need_no_deep_recursion() -> None:
    devices = slices([device(f"d{each}") for each in range(2_000)])
    claims = [claim([request("r")], name=f"claim-{each}") for each in range(2_000)]
    found = timed(allocator(claims, devices))
    assert found is not None
    assert found[-1] == ["r=d1999"]
    assert timed(allocator([*claims, claim([request("r")], name="last")], devices)) is None


def test_thousands_of_requests_need_no_deep_recursion() -> None:
    none_of_them = [request(f"r{each}", count=0, allocationMode="ExactCount") for each in range(5_000)]
    assert timed(allocator([claim([*none_of_them, request("one")])], slices([device("d")]))) == [["one=d"]]
    assert timed(allocator([claim([*none_of_them, request("two", 2)])], slices([device("d")]))) is None


def test_thousands_of_alternatives_are_tried() -> None:
    many = first_available("r", *(exactly(2) for _ in range(5_000)), exactly(1))
    assert timed(allocator([claim([many])], slices([device("d")]))) == [["r/s5000=d"]]


def test_thousands_of_constraints_are_kept() -> None:
    devices = slices([device("a", {"x": 1}), device("b", {"x": 2})])
    wanted = claim([request("r", 2)], *([distinct("x")] * 2_000))
    assert timed(allocator([wanted], devices)) == [["r=a", "r=b"]]


def test_negative_count_wants_nothing() -> None:
    wanted = [request("r", -5), request("s", 2)]
    assert timed(allocator([claim(wanted)], slices([device("a"), device("b")]))) == [["s=a", "s=b"]]


def test_requests_and_claims_of_one_name_are_kept_apart() -> None:
    twins = [claim([request("r"), request("r")]), claim([request("r")])]
    assert timed(allocator(twins, slices([device(f"d{each}") for each in range(3)]))) == [["r=d0", "r=d1"], ["r=d2"]]


def test_slices_of_one_name_count_as_two() -> None:
    twins = [resource_slice([device(each)], "slice", pool={"resourceSliceCount": 2}) for each in "ab"]
    assert timed(allocator([claim([request("r", 2)])], twins)) == [["r=a", "r=b"]]


def test_classes_that_name_each_other_are_just_names() -> None:
    classes = {each: {"metadata": {"name": each}, "spec": {"deviceClassName": each[::-1]}} for each in ("ab", "ba")}
    made = allocator([claim([request("r", deviceClassName="ab")])], slices([device("d")]), classes=classes)
    assert timed(made) == [["r=d"]]


def test_broken_slice_of_another_node_harms_nobody_until_its_devices_are_needed() -> None:
    broken = resource_slice([device("d", attributes={"a": {}})], "broken", nodeName="node-2", pool={"name": "other"})
    broken["spec"]["devices"][0]["bindingConditions"] = 5
    index = SliceIndex([*slices([device("a")]), broken])
    made = Allocator([claim([request("r")])], AllocatedState(), CLASSES, index)
    assert timed(made) == [["r=a"]]
    with pytest.raises(AllocationError, match="bindingConditions: 5 is not a list of strings"):
        made.allocate({"metadata": {"name": "node-2"}})
