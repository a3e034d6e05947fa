"""Amounts: the recorded rounding, partitions, what is left, and how amounts spread over devices."""

from __future__ import annotations

import json
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.api.quantities import parse
from scheduling.pools.capacity import AmountDemand, AmountSupply, PoolLedger, spread, take
from scheduling.pools.claim_documents import DeviceAllocation, ResourceAllocation
from scheduling.pools.documents import DevicePool, ResourceCapacity
from scheduling.pools.matching import devices_of
from scheduling.pools.reading import read
from tests.making.pool_documents import device, pool, recorded

INEXACT = {
    "block-16Gi-by-256Mi-want-1000Mi": ("1Gi", "0", "15Gi"),
    "block-16Gi-by-4Ki-want-5000": ("8Ki", "0", "16777208Ki"),
    "block-1Gi-by-1000-want-1Mi": ("1049k", "0", "1072692824"),
    "block-1Ei-by-1Gi-want-1Pi": ("1Pi", "0", "1023Pi"),
}
"""Where the prototype multiplied by 1000 once too often, or left 64 bits: the exact amounts."""
REFUSED = ("negative-quantity",)
"""Documents cannot say this."""


def amounts(capacity: dict[str, Any]) -> tuple[ResourceCapacity, bool] | None:
    if "block" in capacity:
        block = capacity["block"]
        return ResourceCapacity("x", parse(block["capacity"]), parse(block["size"])), True
    if "quantity" in capacity:
        return ResourceCapacity("x", parse(capacity["quantity"]["capacity"])), False
    return None


ROUNDED = [
    pytest.param(case, id=case["name"])
    for case in recorded("capacity")
    if amounts(case["capacity"]) and "error" not in case["expect"] and case["name"] not in (*INEXACT, *REFUSED)
]


def test_every_recorded_amount_in_blocks_is_judged() -> None:
    judged = {each.id for each in ROUNDED} | {*INEXACT, *REFUSED}
    left_out = [case for case in recorded("capacity") if case["name"] not in judged]
    # Documents have no counters and no access modes, and their amounts no types that could differ.
    assert all(not amounts(case["capacity"]) or "counter" in case["request"] for case in left_out)


@pytest.mark.parametrize("case", ROUNDED)
def test_amount_is_taken_in_blocks_as_recorded(case: dict[str, Any]) -> None:
    found = amounts(case["capacity"])
    assert found is not None
    capacity, blocks = found
    request, expect = parse(case["request"]["quantity"]["request"]), case["expect"]
    taken = take(capacity, request)
    one_block = blocks and capacity.capacity == capacity.block_size and request > capacity.capacity
    if one_block:  # the prototype passes over a capacity of exactly one block
        assert "allocated" not in expect
        assert taken.allocated == capacity.capacity
        return

    def amount(key: str) -> Any:
        return parse(expect[key]["quantity"]["request"]) if key in expect else parse("0")

    assert (taken.allocated, taken.unsatisfied) == (amount("allocated"), amount("unsatisfied"))
    after = expect.get("capacityAfter", case["capacity"])
    assert taken.left == parse((after.get("block") or after.get("quantity"))["capacity"])


@pytest.mark.parametrize("case", [case for case in recorded("capacity") if case["name"] in INEXACT])
def test_amounts_are_exact_where_those_of_the_prototype_were_not(case: dict[str, Any]) -> None:
    found = amounts(case["capacity"])
    assert found is not None
    taken = take(found[0], parse(case["request"]["quantity"]["request"]))
    assert (taken.allocated, taken.unsatisfied, taken.left) == tuple(map(parse, INEXACT[case["name"]]))


LEGAL = json.loads((Path(__file__).parents[2] / "vectors" / "partitions" / "all-legal-sets.json").read_text())
(GPU,) = (each for each in (read(document) for document in LEGAL["pools"]) if isinstance(each, DevicePool))


def fits(names: list[str]) -> bool:
    """True if all devices can be allocated together."""
    devices = {each.device.name: each for each in devices_of(GPU)}
    ledger = PoolLedger(devices.values())
    for name in names:
        if not ledger.fits_pool(devices[name]):
            return False
        ledger.draw_from_pool(devices[name])
    return True


NAMES = [each.name for each in GPU.spec.devices]
PAIRS = {frozenset(NAMES[each] for each in one) for one in LEGAL["expect"]["legalSets"] if len(one) == 2}


def can_exist(names: list[str]) -> bool:
    """True unless two of the devices are in one memory slice: the prototype lost slices in larger sets."""
    return all(frozenset(pair) in PAIRS for pair in combinations(names, 2))


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in recorded("partitions")])
def test_partitions_fit_together_as_recorded(case: dict[str, Any]) -> None:
    devices = case["devices"]
    together = case["expect"]["together"] and can_exist(devices)
    assert fits(devices) == together
    if together:
        addable = [name for name in NAMES if name not in devices and fits([*devices, name])]
        assert sorted(addable) == sorted(
            name for name in case["expect"].get("addable", addable) if can_exist([*devices, name])
        )


def test_sets_of_partitions_that_fit_are_those_recorded() -> None:
    devices = devices_of(GPU)
    ledger = PoolLedger(devices)
    found: set[frozenset[int]] = set()

    def grow(chosen: list[int]) -> None:
        for number in range(chosen[-1] + 1 if chosen else 0, len(devices)):
            if ledger.fits_pool(devices[number]):
                ledger.draw_from_pool(devices[number])
                found.add(frozenset([*chosen, number]))
                grow([*chosen, number])
                ledger.draw_from_pool(devices[number], -1)

    grow([])
    legal = LEGAL["expect"]["legalSets"]
    assert found == {frozenset(each) for each in legal if can_exist([NAMES[number] for number in each])}
    assert len(found) == 2319


def allocation(device: str, pool: str = "p", **drawn: str) -> DeviceAllocation:
    return DeviceAllocation(pool, device, tuple(ResourceAllocation(name, parse(each)) for name, each in drawn.items()))


def test_what_is_left_counts_devices_once_and_rounds_to_blocks() -> None:
    parent = pool(
        "p",
        device("a", {"slices": 3}, [("memory", "10Gi", "4Gi")]),
        device("b", {"slices": 2}),
        resources=[("slices", 8, 2)],
    )
    ledger = PoolLedger(devices_of(parent))
    memory, slices = parent.spec.devices[0].resources[0], parent.spec.resources[0]
    ledger.apply(
        [allocation("a", memory="1Gi"), allocation("a", memory="4Gi"), allocation("gone"), allocation("b", "q")]
    )
    assert ledger.left_of_device(("p", "a"), memory).text == "2Gi"
    assert ledger.left_of_pool("p", slices).text == "4"
    ledger.apply([allocation("a")])
    assert ledger.left_of_device(("p", "a"), memory).text == "0"
    assert ledger.fits_pool(ledger.devices["p", "b"])
    ledger.apply([allocation("b"), allocation("b")])
    assert ledger.left_of_pool("p", slices).text == "2"


def test_device_whose_pool_lacks_a_resource_never_fits() -> None:
    broken = devices_of(DevicePool(spec=GPU.spec.__class__(devices=GPU.spec.devices)))
    assert not PoolLedger(broken).fits_pool(broken[0])


DEVICES = [("p", "a"), ("p", "b"), ("p", "c")]
CASES = st.tuples(
    st.lists(st.tuples(st.integers(0, 6), st.sets(st.sampled_from(DEVICES), min_size=1)), min_size=1, max_size=3),
    st.lists(st.integers(0, 7), min_size=3, max_size=3),
    st.sampled_from([0, 1, 2]),
)


@settings(max_examples=75)
@given(CASES)
def test_amounts_spread_whenever_there_is_a_way(case: Any) -> None:
    wanted, lefts, block = case
    demands = [AmountDemand(amount, tuple(sorted(names))) for amount, names in wanted]
    supplies = {name: AmountSupply(left, block) for name, left in zip(DEVICES, lefts, strict=True)}
    found = spread(demands, supplies)
    assert (found is not None) == _possible(demands, supplies, block or 1, least=block)
    for name in DEVICES if found is not None else ():
        assert sum(each.get(name, 0) for each in found or ()) <= supplies[name].left
    for demand, gives in zip(demands, found or (), strict=found is not None):
        assert sum(gives.values()) >= demand.amount
        assert all(amount >= (block if demand.amount else 0) for amount in gives.values())
        assert all(block == 0 or amount % block == 0 for amount in gives.values())


def _possible(demands: list[AmountDemand], supplies: Any, step: int, least: int) -> bool:
    if not demands:
        return True
    first, *rest = demands
    low = least if first.amount else 0
    choices = [range(low, supplies[name].left + 1, step) for name in first.devices]
    for gives in product(*choices):
        if first.amount <= sum(gives) < max(first.amount, low * len(gives)) + step * len(gives):
            after = dict(supplies)
            for name, amount in zip(first.devices, gives, strict=True):
                after[name] = AmountSupply(after[name].left - amount, after[name].block)
            if _possible(rest, after, step, least):
                return True
    return False


def test_devices_of_different_blocks_are_filled_in_order() -> None:
    supplies = {DEVICES[0]: AmountSupply(10, 4), DEVICES[1]: AmountSupply(10, 3)}
    (found,) = spread([AmountDemand(12, tuple(DEVICES[:2]))], supplies) or [{}]
    assert found == {DEVICES[0]: 8, DEVICES[1]: 6}
    assert spread([AmountDemand(18, tuple(DEVICES[:2]))], supplies) is None
