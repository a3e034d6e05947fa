"""A rescan: shared by its callers, of some GPUs alone or of everything, and refused at the end."""

from __future__ import annotations

import asyncio

import pytest

from node.inventory.facts import NodeFacts
from node.inventory.loop import InventoryStopped
from tests.making.inventories import Scripted, running
from tests.making.nvidia_facts import gpu, node
from tests.waiting import eventually


async def test_callers_of_rescan_share_one_scan_that_begins_after_their_call() -> None:
    source = Scripted(node(gpu(0)))
    source.gate.clear()
    async with running(source) as inventory:
        await eventually(lambda: source.starts, "a scan begins")
        callers = [asyncio.create_task(inventory.rescan()) for _ in range(5)]
        impatient = asyncio.create_task(asyncio.wait_for(inventory.rescan(), 0.01))
        with pytest.raises(TimeoutError):
            await impatient
        source.facts = node(gpu(0), gpu(1))
        source.gate.set()
        await asyncio.wait_for(asyncio.gather(*callers), 120)
        assert len(source.starts) == 2


class Parted(Scripted):
    """A source that can read single GPUs; ``parts``: for which ones it was asked, empty for everything."""

    def __init__(self, facts: NodeFacts) -> None:
        super().__init__(facts)
        self.parts: list[frozenset[str]] = []

    def read(self) -> NodeFacts:
        self.parts.append(frozenset())
        return super().read()

    def read_gpus(self, uuids: frozenset[str]) -> NodeFacts:
        self.parts.append(uuids)
        return super().read()


async def test_a_rescan_of_gpus_reads_them_alone_together_with_those_of_other_callers() -> None:
    source, other = Parted(node(gpu(0))), Scripted(NodeFacts(), "other")
    async with running(source, other) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        source.facts = node(gpu(0, memory_bytes=1))
        found = await asyncio.gather(inventory.rescan(frozenset("a")), inventory.rescan(frozenset("b")))
        assert source.parts == [frozenset(), frozenset("ab")]
        assert not found[0].empty
        assert len(other.starts) == 2


async def test_whoever_wants_everything_gets_it_beside_a_rescan_of_gpus() -> None:
    source = Parted(node(gpu(0)))
    async with running(source) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        await asyncio.gather(inventory.rescan(frozenset("a")), inventory.rescan())
        await asyncio.gather(inventory.rescan(), inventory.rescan(frozenset("a")))
        inventory.wake()
        await inventory.rescan(frozenset("a"))
        assert source.parts == [frozenset()] * 4


async def test_a_wake_during_a_rescan_of_gpus_leads_to_a_scan_of_everything() -> None:
    source = Parted(node(gpu(0)))
    async with running(source) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        source.gate.clear()
        caller = asyncio.create_task(inventory.rescan(frozenset("a")))
        await eventually(lambda: len(source.parts) == 2, "the scan of a GPU begins")
        inventory.wake()
        source.gate.set()
        await caller
        await eventually(lambda: source.parts[2:] == [frozenset()], "a scan of everything follows")


async def test_rescans_of_gpus_do_not_put_off_the_scan_of_everything() -> None:
    source = Parted(node(gpu(0)))
    async with running(source, max_interval=0.05) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)

        async def often() -> None:
            while source.parts.count(frozenset()) < 3:
                await inventory.rescan(frozenset("a"))

        await asyncio.wait_for(often(), 120)
        assert frozenset("a") in source.parts


async def test_rescan_after_the_end_is_refused() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source) as inventory:
        await inventory.rescan()
    with pytest.raises(InventoryStopped, match="the inventory has stopped; no scan will follow"):
        await inventory.rescan()
    await inventory.close()
    assert source.closed == 1


async def test_rescan_under_way_at_the_end_is_refused() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source) as inventory:
        await inventory.rescan()
        seen = len(source.starts)
        source.gate.clear()
        callers = [asyncio.create_task(inventory.rescan()) for _ in range(2)]
        await eventually(lambda: len(source.starts) > seen, "the scan begins")
        callers.append(asyncio.create_task(inventory.rescan()))
        await asyncio.sleep(0)
    source.gate.set()
    results = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(result) for result in results] == [InventoryStopped] * 3
