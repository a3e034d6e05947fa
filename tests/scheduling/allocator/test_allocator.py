"""The allocator as its callers use it and as the reference describes it, and the results that it writes to claims."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from scheduling.allocator import allocated, claims, pools
from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import Features, SliceIndex
from scheduling.allocator.reading import AllocationError, FatalError, GaveUp, NodeError
from scheduling.allocator.slices import DeviceID, PoolID
from tests.judge.generate import allocation_case
from tests.judge.our_allocation import allocated as allocated_of
from tests.judge.our_allocation import classes as classes_of
from tests.judge.our_allocation import features as features_of
from tests.making.claims import CLASSES, claim, exactly, first_available, match, request
from tests.making.slices import Json, device, of, resource_slice, slices
from tests.scheduling.allocator.families import FAMILIES
from tests.scheduling.allocator.manifests import NODE, devices_of

DEVICES = slices([device("d0"), device("d1")])


class Lister:
    """A lister that counts how often it is asked."""

    def __init__(self, claims: Sequence[Json]) -> None:
        self.asked = 0
        self._claims = claims

    def list_all_allocated(self) -> Sequence[Json]:
        self.asked += 1
        return self._claims


def holding(name: str, **fields: Any) -> Json:
    result = {"request": "r", "driver": "gpu.example.com", "pool": "pool", "device": name, **fields}
    return {"metadata": {"name": f"has-{name}"}, "status": {"allocation": {"devices": {"results": [result]}}}}


REFERENCE = {
    "func NewAllocator": Allocator.__init__,
    "func (*Allocator) Allocate": Allocator.allocate,
    "func (*Allocator) ClaimsToAllocate": Allocator.claims_to_allocate,
    "type ClaimLister": allocated.ClaimLister,
    "ListAllAllocated": allocated.ClaimLister.list_all_allocated,
    "type DeviceID": DeviceID,
    "func (DeviceID) String": DeviceID.__str__,
    "type Pool": pools.ResourcePool,
    "func GatherPools": pools.gather_pools,
    "type PoolID": PoolID,
    "func (PoolID) String": PoolID.__str__,
    "NewAllocator's class lister": claims.ClassLister,
}
"""What k8s.io/dynamic-resource-allocation/structured offers, and what stands for it here."""


@pytest.mark.parametrize("name", REFERENCE)
def test_every_function_of_the_reference_has_a_counterpart_that_is_explained(name: str) -> None:
    assert REFERENCE[name].__doc__


def test_fields_of_the_reference_have_counterparts() -> None:
    assert DeviceID._fields == ("driver", "pool", "device")
    assert PoolID._fields == ("driver", "pool")
    assert {"id", "is_incomplete", "slices"} <= pools.ResourcePool.__dataclass_fields__.keys()


def test_claims_to_allocate_are_those_that_were_given() -> None:
    one, other = claim([request("r")]), claim([request("s")], name="other")
    made = Allocator((each for each in (one, other)), AllocatedState(), CLASSES, DEVICES)
    assert len(made.claims_to_allocate) == 2
    assert made.claims_to_allocate[0] is one
    assert made.claims_to_allocate[1] is other


def test_claim_lister_is_asked_once_for_all_nodes() -> None:
    lister = Lister([holding("d0")])
    made = Allocator([claim([request("r")])], lister, CLASSES, DEVICES)
    assert [devices_of(made.allocate(NODE)) for _ in range(3)] == [[["r=d1"]]] * 3
    assert lister.asked == 1


def test_admin_access_of_others_leaves_a_device_free() -> None:
    made = Allocator([claim([request("r")])], Lister([holding("d0", adminAccess=True)]), CLASSES, DEVICES)
    assert devices_of(made.allocate(NODE)) == [["r=d0"]]


def test_allocation_is_the_same_each_time_and_changes_nothing_that_was_given() -> None:
    given: list[Any] = [
        [claim([request("r", 2)], match("model"))],
        slices([device(each, {"model": "a"}) for each in "xy"]),
    ]
    before = copy.deepcopy(given)
    made = Allocator(given[0], AllocatedState(), CLASSES, given[1])
    first = made.allocate(NODE)
    assert devices_of(first) == [["r=x", "r=y"]]
    assert first is not None
    first[0]["devices"]["results"].clear()
    assert devices_of(made.allocate(NODE)) == [["r=x", "r=y"]]
    assert given == before


def test_one_index_of_slices_serves_several_allocators() -> None:
    index = SliceIndex(DEVICES)
    found = [
        devices_of(Allocator([claim([request(name)])], AllocatedState(), CLASSES, index).allocate(NODE))
        for name in "ab"
    ]
    assert found == [[["a=d0"]], [["b=d0"]]]


def test_nothing_to_allocate_is_allocated() -> None:
    assert Allocator([], AllocatedState(), CLASSES, DEVICES).allocate(NODE) == []


def test_claims_that_do_not_fit_have_no_result() -> None:
    assert Allocator([claim([request("r", 3)])], AllocatedState(), CLASSES, DEVICES).allocate(NODE) is None


def test_results_are_in_the_order_of_the_claims() -> None:
    wanted = [claim([request(name)], name=name) for name in ("b", "a")]
    assert devices_of(Allocator(wanted, AllocatedState(), CLASSES, DEVICES).allocate(NODE)) == [["b=d0"], ["a=d1"]]


def test_shares_have_different_ids() -> None:
    shared = slices([device("d", shared=True)])
    results = Allocator([claim([request("a"), request("b")])], AllocatedState(), CLASSES, shared).allocate(NODE)
    assert results is not None
    ids = {each["shareID"] for each in results[0]["devices"]["results"]}
    assert len(ids) == 2
    assert all(len(each) == 36 for each in ids)


def test_node_with_an_invalid_pool_and_no_allocation_cannot_say() -> None:
    broken = resource_slice([device("x"), device("x")], "broken", pool={"name": "broken"})
    made = Allocator([claim([request("r", 3)])], AllocatedState(), CLASSES, [*DEVICES, broken])
    with pytest.raises(NodeError) as caught:
        made.allocate(NODE)
    assert str(caught.value) == (
        "Node node-1: invalid resource pools: pool gpu.example.com/broken: "
        "device x is in slice broken and in slice broken"
    )


def test_invalid_pool_does_not_matter_where_others_suffice() -> None:
    broken = resource_slice([device("x"), device("x")], "broken", pool={"name": "broken"})
    made = Allocator([claim([request("r", 2)])], AllocatedState(), CLASSES, [*DEVICES, broken])
    assert devices_of(made.allocate(NODE)) == [["r=d0", "r=d1"]]


def test_first_claim_that_can_only_break_its_limit_is_an_error() -> None:
    devices = slices([device(f"d{each}", {"odd": each % 2}) for each in range(40)])
    half = exactly(0, f"{of('odd')} == 0")
    large = [first_available("a", half), first_available("b", exactly(13, f"{of('odd')} == 1"), exactly(14))]
    with pytest.raises(FatalError) as caught:
        Allocator([claim(large)], AllocatedState(), CLASSES, devices).allocate(NODE)
    assert str(caught.value) == (
        "ResourceClaim team/claim: spec.devices.requests[1]: 13 devices, after 20 for other requests: "
        "a claim can hold 32"
    )


def test_limit_that_only_the_search_finds_is_an_error() -> None:
    """Each request alone has a small alternative, but the small ones need a device that there is not."""
    devices = slices([device(f"d{each}") for each in range(40)])
    wanted = [first_available("a", exactly(20)), first_available("b", exactly(20), exactly(12)), request("c", 0)]
    with pytest.raises(FatalError):
        Allocator([claim(wanted)], AllocatedState(), CLASSES, devices).allocate(NODE)


def test_patience_that_ends_is_told_with_the_number_of_steps() -> None:
    family = FAMILIES["nine queens"]()
    made = Allocator(family.claims, AllocatedState(), CLASSES, family.slices, give_up=lambda: True)
    with pytest.raises(GaveUp) as caught:
        made.allocate(NODE)
    assert str(caught.value) == "ResourceClaim team/claim: no answer for node node-1 after 256 steps of the search"


def test_patience_is_asked_for_only_from_time_to_time() -> None:
    def never() -> bool:
        raise AssertionError("a short search does not ask")

    made = Allocator([claim([request("r")])], AllocatedState(), CLASSES, DEVICES, give_up=never)
    assert devices_of(made.allocate(NODE)) == [["r=d0"]]


def answer(made: Allocator, node: Json) -> object:
    try:
        results = made.allocate(node)
    except AllocationError as error:
        return type(error).__name__, str(error)
    if results is not None:
        for each in results:
            for entry in each["devices"].get("results", ()):
                entry.pop("shareID", None)
    return results


def generated(number: int) -> tuple[Allocator, list[Json]]:
    case = allocation_case(3, number)
    made = Allocator(case["claims"], allocated_of(case), classes_of(case), case["slices"], features_of(case))
    return made, [{"metadata": {**case["node"]["metadata"], "name": f"node-{each}"}} for each in range(1, 9)]


def test_many_threads_and_nodes_give_the_answers_of_one() -> None:
    numbers = range(40)
    alone = [[answer(made, node) for node in nodes] for made, nodes in map(generated, numbers)]
    together = [generated(number) for number in numbers]
    start = threading.Barrier(8)

    def work(worker: int) -> list[list[object]]:
        start.wait(timeout=60)
        order = [*numbers[worker * 5 :], *numbers[: worker * 5]]
        found = {each: [answer(together[each][0], node) for node in together[each][1]] for each in order}
        return [found[each] for each in numbers]

    with ThreadPoolExecutor(8) as pool:
        for answers in pool.map(work, range(8)):
            assert answers == alone


def test_features_that_are_off_make_a_difference() -> None:
    tainted = slices([device("d0", taints=[{"key": "k", "effect": "NoSchedule"}])])
    wanted = [claim([request("r")])]
    assert Allocator(wanted, AllocatedState(), CLASSES, tainted).allocate(NODE) is None
    off = Features(device_taints=False)
    assert devices_of(Allocator(wanted, AllocatedState(), CLASSES, tainted, off).allocate(NODE)) == [["r=d0"]]
