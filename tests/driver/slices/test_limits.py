from __future__ import annotations

from typing import Any

from driver.slices.content import new_object
from driver.slices.errors import InvalidSlice
from driver.slices.model import Pool, Slice
from driver.slices.wanted import pool_fault, slice_faults

Json = dict[str, Any]
SET: Json = {"name": "cs", "counters": {"mem": {"value": "1Gi"}}}


def fault(*slices: Slice) -> str:
    found = pool_fault("p", Pool(slices))
    return str(found) if found else ""


def user(counter_set: str = "cs", counter: str = "mem") -> Json:
    return {"name": "d", "consumesCounters": [{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}]}


def test_a_name_in_two_slices_is_refused_with_its_place() -> None:
    assert fault(Slice(({"name": "a"}, {"name": "d"})), Slice(({"name": "d"},))) == (
        "pool p: slices[1].devices[0].name: 'd' names a second device of this pool; names must be unique in a pool"
    )


def test_a_counter_set_in_two_slices_is_refused() -> None:
    assert fault(Slice(shared_counters=(SET,)), Slice(shared_counters=(SET,))) == (
        "pool p: slices[1].sharedCounters[0].name: 'cs' names a second counter set of this pool; "
        "names must be unique in a pool"
    )


def test_counters_that_nobody_has_are_refused() -> None:
    counters = Slice(shared_counters=(SET,))
    assert fault(Slice((user("other"),)), counters) == (
        "pool p: slices[0].devices[0].consumesCounters[0].counterSet: 'other' is not a counter set of this pool; "
        "add it to sharedCounters of one of its slices"
    )
    assert fault(counters, Slice((user(counter="cpu"),))) == (
        "pool p: slices[1].devices[0].consumesCounters[0].counters: 'cpu' is not a counter of set 'cs'; "
        "add it there, or use one that it has"
    )
    assert fault(Slice((user(),)), counters) == ""


def invalid(slice_: Slice, driver: str = "led.example.com") -> str:
    body = new_object(
        driver=driver,
        owner=None,
        node="n",
        generate_name=f"00000-{driver}-",
        name="p",
        pool=Pool((slice_,)),
        index=0,
        generation=1,
    )
    causes = slice_faults(body)
    return str(InvalidSlice("p", 0, causes)) if causes else ""


def test_a_slice_is_judged_by_the_servers_rules_with_field_and_fix() -> None:
    tainted: Json = {"name": "t", "taints": [{"key": "k", "effect": "NoSchedule"}]}
    many: list[Json] = [{"name": f"d{number}"} for number in range(64)]
    assert invalid(Slice((*many,))) == ""
    assert invalid(Slice((tainted, *many))) == "pool p, slice 0: spec.devices: has 65 entries, at most 64 are allowed"
    assert "pool p, slice 0: spec.devices[0].name: " in invalid(Slice(({"name": "Bad"},)))
    assert "spec: [" in invalid(Slice(({"name": "d"},), (SET,)))


def test_a_driver_in_capitals_is_found_before_the_server_refuses_the_name() -> None:
    assert "metadata.generateName" in invalid(Slice(), driver="LED.example.com")


def test_features_that_only_the_server_knows_are_left_to_it() -> None:
    assert invalid(Slice(({"name": "d", "attributes": {"l": {"ints": [1, 2]}}},))) == ""


def test_of_many_faults_the_first_are_shown() -> None:
    found = invalid(Slice(tuple({"name": f"Bad-{number}"} for number in range(6))))
    assert found.endswith("; and 3 more faults")
