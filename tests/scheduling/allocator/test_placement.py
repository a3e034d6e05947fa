"""Placing and taking back: nothing remembers a device that is no longer placed."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.placement import Placement
from scheduling.allocator.pools import Features
from scheduling.allocator.problem import Problem
from scheduling.allocator.reading import FatalError
from scheduling.allocator.slices import DeviceID, SharedDeviceID
from tests.making.claims import claim, distinct, exactly, match, request
from tests.making.slices import DRIVER, device, slices
from tests.scheduling.allocator.manifests import NODE, allocator, problem
from tests.scheduling.allocator.tight import Tight


def picture(placement: Placement) -> object:
    """Everything a placement remembers."""
    return copy.deepcopy(
        (
            [[(each.plan.number, each.position) for each in own] for own in placement.placed],
            placement.marked,
            placement.marked_by,
            placement.states,
            {pool.id: left for pool, left in placement.counters.items()},
            placement.taken,
            placement.shares,
        )
    )


def place(placement: Placement, made: Problem, index: int, position: int) -> bool:
    """Place a device for the claim's first request, as a search does: only what is not busy and suits."""
    plan = made.claims[index].plans[0][0]
    if placement.busy(index, plan) >> position & 1:
        return False
    amounts = made.amounts(plan, made.claims[index].claim, position)
    return amounts is not None and placement.place(index, plan, position, amounts)


@given(st.integers(0, 2**32), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12), st.booleans()), max_size=25))
def test_taking_back_restores_what_was_before(seed: int, steps: list[tuple[int, int, bool]]) -> None:
    case = Tight(seed, 0, 8)
    try:
        made = problem(case.claims, case.slices, Features(list_attributes=case.lists))
    except FatalError:
        assume(False)
    placement = Placement(made)
    for pool in made.pools:
        # What is left is looked up when it is first needed; that is no change.
        placement.counters[pool] = dict(made.availability.counters(pool))
    history: list[tuple[int, Any]] = []
    for number, place_number, back in steps:
        index, position = number % len(made.claims), place_number % len(made.devices)
        if history and back:
            owner, before = history.pop()
            placement.undo(owner)
            assert picture(placement) == before
        before_this = picture(placement)
        try:
            placed = bool(made.claims[index].plans) and place(placement, made, index, position)
        except FatalError:
            placed = False
        if placed:
            history.append((index, before_this))
        else:
            assert picture(placement) == before_this
    while history:
        owner, before = history.pop()
        placement.undo(owner)
        assert picture(placement) == before


def test_device_is_busy_for_all_once_it_is_placed() -> None:
    made = problem([claim([request("a")]), claim([request("b")])], slices([device("d0"), device("d1")]))
    placement = Placement(made)
    assert place(placement, made, 0, 0)
    assert not place(placement, made, 1, 0)
    placement.undo(0)
    assert place(placement, made, 1, 0)


def test_admin_access_joins_others_but_keeps_later_ones_out() -> None:
    wanted = [claim([request("a")]), claim([request("b", adminAccess=True)]), claim([request("c")])]
    made = problem(wanted, slices([device("d0")]))
    placement = Placement(made)
    assert place(placement, made, 0, 0)
    assert place(placement, made, 1, 0)
    assert not place(placement, made, 1, 0)
    placement.undo(1)
    placement.undo(0)
    assert place(placement, made, 1, 0)
    assert not place(placement, made, 2, 0)
    placement.undo(1)
    assert place(placement, made, 2, 0)


def test_device_stays_busy_while_another_claim_has_it_too() -> None:
    made = problem([claim([request("a")]), claim([request("b", adminAccess=True)])], slices([device("d0")]))
    placement = Placement(made)
    assert place(placement, made, 0, 0)
    assert place(placement, made, 1, 0)
    placement.undo(1)
    assert placement.marked == 1


def test_shared_device_takes_its_counters_once() -> None:
    shared = device("d0", counters={"set": {"x": 2}}, capacity={"mem": 4}, shared=True)
    share = request("a", capacity={"requests": {"mem": "1"}})
    made = problem([claim([share], name=f"c{each}") for each in range(3)], slices([shared], {"set": {"x": 2}}))
    placement = Placement(made)
    assert [place(placement, made, each, 0) for each in range(3)] == [True, True, True]
    (left,) = placement.counters.values()
    assert left == {("set", "x"): 0}
    for each in (2, 1, 0):
        placement.undo(each)
    assert left == {("set", "x"): 2 * 10**9}


def test_shared_device_of_which_a_share_is_in_use_takes_no_counters() -> None:
    shared = device("d0", counters={"set": {"x": 2}}, capacity={"mem": 4}, shared=True)
    held = DeviceID(DRIVER, "pool", "d0")
    state = AllocatedState(shared=frozenset({SharedDeviceID(held, "s")}), capacity={held: {"mem": 3 * 10**9}})
    share = request("a", capacity={"requests": {"mem": "1"}})
    wanted = [claim([share]), claim([share], name="other")]
    made = allocator(wanted, slices([shared], {"set": {"x": 2}}), allocated=state).problem(NODE)
    placement = Placement(made)
    assert place(placement, made, 0, 0)
    assert not place(placement, made, 1, 0)  # 3 of 4 were in use


def test_overdrawn_counter_blocks_every_device_of_its_pool_that_takes_counters() -> None:
    devices = [
        device("held", counters={"a": {"x": 3}}),
        device("d0", counters={"b": {"x": 1}}),
        device("d1"),
    ]
    state = AllocatedState(devices=frozenset({DeviceID(DRIVER, "pool", "held")}))
    given_slices = slices(devices, {"a": {"x": 2}, "b": {"x": 2}})
    made = allocator([claim([request("a")])], given_slices, allocated=state).problem(NODE)
    placement = Placement(made)
    assert not place(placement, made, 0, 1)
    assert place(placement, made, 0, 2)


def test_tainted_device_needs_a_toleration_only_while_taints_count() -> None:
    tainted = slices([device("d0", taints=[{"key": "k", "effect": "NoExecute"}])])
    wanted = [claim([request("a")])]
    made = problem(wanted, tainted)
    assert not place(Placement(made), made, 0, 0)
    made = problem(wanted, tainted, Features(device_taints=False))
    assert place(Placement(made), made, 0, 0)


def test_device_that_takes_counters_cannot_be_placed_while_the_feature_is_off() -> None:
    made = problem(
        [claim([request("a")])],
        slices([device("d0", counters={"set": {"x": 0}}), device("d1")]),
        Features(partitionable_devices=False),
    )
    placement = Placement(made)
    assert [place(placement, made, 0, each) for each in (0, 1)] == [False, True]


def test_constraint_broken_in_mode_all_is_an_error_that_names_device_and_constraint() -> None:
    devices = [device("d0", {"model": "a"}), device("d1", {"model": "b"})]
    made = problem([claim([request("a", 0)], distinct("nosuch", "x"), match("model"))], slices(devices))
    placement = Placement(made)
    assert place(placement, made, 0, 0)
    before = picture(placement)
    with pytest.raises(FatalError) as caught:
        place(placement, made, 0, 1)
    assert str(caught.value) == (
        "ResourceClaim team/claim: spec.devices.constraints[1]: mode All includes device gpu.example.com/pool/d1, "
        "but the constraint on gpu.example.com/model refuses it"
    )
    assert picture(placement) == before


def test_alternatives_of_zero_devices_place_nothing() -> None:
    made = problem([claim([{"name": "a", "exactly": {**exactly(), "count": 0}}])], slices([device("d0")]))
    assert made.claims[0].plans[0][0].wanted == 0
