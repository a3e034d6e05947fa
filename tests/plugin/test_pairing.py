"""GPUs and NICs of one container in whichever order the kubelet takes them, on the nodes that are shipped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugin.gpu_nic_pairing import PAUSE
from tests.node.placement import brute
from tests.plugin.admitting import GPU, NIC, SECOND, Admitting, Given, shipped

BESIDE = ("a100-sxm-8", "h100-sxm-8", "mi300x-8", "mi300x-cpx-8")
"""Nodes where every GPU has a NIC below its own switch, or shares several with another."""
NEARER = ("dgx1-v100-8", "l4-2", "vm-flat-8", *BESIDE)
"""Nodes where no GPU is nearer to the NIC that is nearest to another one."""
WITH_BOTH = ("a100-mig-4", "dgx2-v100-16", *NEARER)
ORDERS = ((GPU, NIC), (NIC, GPU))
ONE_EACH = {GPU: 1, NIC: 1}
step = st.tuples(st.booleans(), st.sampled_from(ORDERS), st.integers(0, 99))
"""Whether a container ends, which one, or in which order the next gets its resources."""


def pair(node: Admitting, order: Sequence[str]) -> tuple[str, str]:
    """The GPU and the NIC of a container that asks for one of each."""
    given = asyncio.run(node.admit(ONE_EACH, order))
    return given.ids[GPU][0], given.ids[NIC][0]


def nearest(node: Admitting, one: Sequence[str], others: Sequence[str] | frozenset[str]) -> int:
    """The least distance of any of these from any of those."""
    return min(node.rank(each, other) for each in one for other in others)


@pytest.mark.parametrize("name", NEARER)
@given(orders=st.lists(st.sampled_from(ORDERS), min_size=8, max_size=8))
@settings(max_examples=10, deadline=None)
def test_a_node_fills_up_with_the_same_pairs_in_any_order(name: str, orders: list[Sequence[str]]) -> None:
    first, any_order = shipped(name), shipped(name)
    count = min(len(first.free[GPU]), len(first.free[NIC]), 8)
    assert [pair(first, (GPU, NIC)) for _ in range(count)] == [pair(any_order, order) for order in orders[:count]]


@pytest.mark.parametrize("name", BESIDE)
@given(steps=st.lists(step, max_size=30))
@settings(max_examples=15, deadline=None)
def test_containers_of_a_gpu_and_a_nic_that_come_and_go_are_always_beside_each_other(
    name: str, steps: list[tuple[bool, Sequence[str], int]]
) -> None:
    node, running = shipped(name), list[Given]()
    for ends, order, which in steps:
        if running and (ends or not node.free[GPU]):
            node.end(running.pop(which % len(running)))
        else:
            running.append(given := asyncio.run(node.admit(ONE_EACH, order)))
            assert nearest(node, given.ids[GPU], given.ids[NIC]) <= 2, "PIX or PXB"


@pytest.mark.parametrize("name", WITH_BOTH)
@given(steps=st.lists(st.tuples(step, st.tuples(st.integers(0, 4), st.integers(0, 3))), max_size=30))
@settings(max_examples=15, deadline=None)
def test_what_comes_second_is_the_nearest_that_is_free_and_islands_stay_as_small(
    name: str, steps: list[tuple[tuple[bool, Sequence[str], int], tuple[int, int]]]
) -> None:
    """Of any containers that come and go, GPUs or NICs alone among them."""
    node, running = shipped(name), list[Given]()
    for (ends, order, which), counts in steps:
        asked = dict(zip((GPU, NIC), counts, strict=True))
        wanted = [resource for resource in order if asked[resource]]
        fits = all(asked[resource] <= len(node.free[resource]) for resource in wanted)
        if running and (ends or not fits):
            node.end(running.pop(which % len(running)))
        elif fits:
            # Containers of different kinds follow each other: a pause tells them apart.
            node.clock.now += PAUSE
            running.append(given := asyncio.run(node.admit(asked, wanted)))
            check(node, given, wanted)


def check(node: Admitting, given: Given, order: Sequence[str]) -> None:
    if asked := len(given.ids.get(GPU, ())):
        assert island(node, given.ids[GPU]) == island(node, node.packed(given.free[GPU], asked))
    if len(order) > 1:
        first, second = order
        got, free = given.ids[second], given.free[second]
        if second == NIC or len(got) == 1:
            assert nearest(node, given.ids[first], got) == nearest(node, given.ids[first], free)


def island(node: Admitting, gpus: Sequence[str]) -> int:
    """The size of the smallest cell that holds them."""
    root = node.placement.topology.root
    assert root is not None
    return min(len(cell.gpus) for cell in brute.cells(root) if set(gpus) <= set(cell.gpus))


@pytest.mark.parametrize("order", list(permutations((GPU, NIC, SECOND))))
async def test_nics_of_two_resources_are_near_the_same_gpu(order: Sequence[str]) -> None:
    node = shipped("h100-sxm-8", split=True)
    for _ in range(4):
        given = await node.admit({GPU: 1, NIC: 1, SECOND: 1}, order)
        after = order[order.index(GPU) + 1 :]
        for resource in after:
            assert nearest(node, given.ids[GPU], given.ids[resource]) == nearest(
                node, given.ids[GPU], given.free[resource]
            )
        if before := [given.ids[resource][0] for resource in order if resource not in (GPU, *after)]:
            assert nearest(node, given.ids[GPU], before) == nearest(node, before, given.free[GPU])


@pytest.mark.parametrize("orders", [(one, other) for one in ORDERS for other in ORDERS])
async def test_containers_of_one_pod_have_their_own_pairs(orders: Sequence[Sequence[str]]) -> None:
    node = shipped("h100-sxm-8")
    for order in (*orders, *orders, *orders, *orders):
        given = await node.admit(ONE_EACH, order)
        assert nearest(node, given.ids[GPU], given.ids[NIC]) == 2


async def test_a_nic_that_the_kubelet_takes_without_asking_leads_the_gpu() -> None:
    node = shipped("h100-sxm-8")
    (wanted,) = (nic for nic in node.free[NIC] if nic.endswith("-c0-00-0"))
    node.free[NIC] = {wanted}
    given = await node.admit(ONE_EACH, (NIC, GPU))
    assert nearest(node, given.ids[GPU], [wanted]) == 2


async def test_nics_of_a_container_lead_no_gpu_after_the_pause() -> None:
    node = shipped("h100-sxm-8")
    for count in (1, 2, 1):
        before = frozenset(node.free[GPU])
        await node.admit({NIC: 2}, (NIC,))
        node.clock.now += PAUSE
        given = await node.admit({GPU: count}, (GPU,))
        assert list(given.ids[GPU]) == node.packed(before, count)
        node.clock.now += PAUSE


async def test_nics_that_come_first_are_near_gpus_that_are_free() -> None:
    node = shipped("h100-sxm-8")
    alone = [await node.admit({GPU: 1}, (GPU,)) for _ in range(3)]
    node.clock.now += PAUSE
    given = await node.admit({NIC: 1}, (NIC,))
    assert nearest(node, given.ids[NIC], list(node.free[GPU])) == 2
    assert all(nearest(node, given.ids[NIC], each.ids[GPU]) > 2 for each in alone)
