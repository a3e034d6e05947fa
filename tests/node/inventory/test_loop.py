"""The loop: when it scans, what it publishes, and that no source can end it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from node.events import EventBus
from node.health.state import HealthState
from node.inventory.devices import devices_of, host_of, statuses_of
from node.inventory.facts import CdiFacts, GpuFacts, NodeFacts, NvmlFacts
from node.inventory.identity import Identities, IdentityStore
from node.inventory.loop import Inventory, SnapshotPublished
from node.inventory.model import Snapshot, SourceState
from node.inventory.places import places_of
from node.topology.cells import topology_of
from ostler.agent.edges import Edges
from tests.making.clock import ManualClock
from tests.making.events import heard
from tests.making.inventories import Scripted, running
from tests.making.nvidia_facts import a100, gpu, mig, node, uuid
from tests.waiting import eventually

WAITING = NodeFacts(nvml=NvmlFacts(status="DRIVER_NOT_LOADED"))


async def test_first_scan_is_published_at_once() -> None:
    source = Scripted(node(gpu(0), gpu(1)))
    async with running(source) as inventory:
        assert inventory.snapshot == Snapshot()
        await asyncio.wait_for(inventory.first.wait(), 120)
        snapshot = inventory.snapshot
        assert snapshot.generation == 1
        assert [device.name for device in snapshot.devices] == ["gpu-0000-1b-00-0", "gpu-0000-2b-00-0"]
        assert [status.name for status in snapshot.sources] == ["nvml", "sysfs"]
    assert source.closed == 1
    assert source.threads
    assert threading.get_ident() not in source.threads


async def test_node_without_anything_is_published_too() -> None:
    async with running() as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        assert inventory.snapshot == Snapshot(generation=1)


async def test_sections_of_several_sources_are_one_node() -> None:
    whole = node(gpu(0))
    sources = [Scripted(NodeFacts(nvml=whole.nvml), "nvml"), Scripted(NodeFacts(sysfs=whole.sysfs), "sysfs")]
    async with running(*sources) as inventory:
        await inventory.rescan()
        assert inventory.snapshot.devices[0].numa_node == 0


async def test_scan_that_finds_nothing_new_publishes_nothing() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        before = inventory.snapshot
        assert (await inventory.rescan()).empty
        assert inventory.snapshot is before


async def test_change_is_published_with_its_difference_and_old_objects_are_kept() -> None:
    source = Scripted(node(gpu(0), gpu(1)))
    bus = EventBus()
    published = heard(bus, SnapshotPublished)
    async with running(source, bus=bus) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        before = inventory.snapshot
        source.facts = node(gpu(0), gpu(1, error="GPU_IS_LOST"))
        found = await inventory.rescan()
        assert [change.fields for change in found.changed] == [("health",)]
        assert [each.snapshot.generation for each in published] == [1, 2]
        changed = [[change.new.name for change in each.changes.changed] for each in published]
        assert changed == [[], ["gpu-0000-2b-00-0"]]
        assert inventory.snapshot.devices[0] is before.devices[0]


async def test_change_of_host_or_source_alone_is_published() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        source.facts = replace(source.facts, cdi=CdiFacts(devices=("nvidia.com/gpu=0",)))
        found = await inventory.rescan()
        assert found.host
        assert [status.name for status in found.sources] == ["cdi"]
        assert inventory.snapshot.generation == 2


async def test_state_that_lasts_keeps_its_beginning() -> None:
    clock = ManualClock(1000.0)
    lost = node(gpu(0, error="GPU_IS_LOST"), gpu(1))
    source = Scripted(lost)
    async with running(source, clock=clock) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        assert inventory.snapshot.devices[0].health.since == 1000.0
        clock.now = 1060.0
        source.facts = node(gpu(0, error="GPU_IS_LOST"), gpu(1, remapped_rows_pending=True))
        await inventory.rescan()
        assert [device.health.since for device in inventory.snapshot.devices] == [1000.0, 1060.0]
        clock.now = 1120.0
        source.facts = node(gpu(0), gpu(1, remapped_rows_pending=True))
        await inventory.rescan()
        assert [device.health.since for device in inventory.snapshot.devices] == [1120.0, 1060.0]


async def test_gpu_lost_while_running_keeps_its_mig_devices() -> None:
    source = Scripted(node(a100(0, mig(0, 0)), gpu(1)))
    async with running(source) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        source.facts = node(GpuFacts(index=0, error="GPU_IS_LOST"), gpu(1))
        found = await inventory.rescan()
        assert found.removed == ()
        part = inventory.snapshot.device("mig-0000-1b-00-0-0-1")
        assert part is not None
        assert part.health.state is HealthState.UNHEALTHY


async def test_gpu_lost_before_the_start_keeps_its_uuid(tmp_path: Path) -> None:
    path = tmp_path / "identities.json"
    async with running(Scripted(node(gpu(0), gpu(1))), store=IdentityStore(path)) as inventory:
        await inventory.rescan()
    lost = Scripted(node(GpuFacts(index=0, error="GPU_IS_LOST"), gpu(1)))
    async with running(lost, store=IdentityStore(path)) as inventory:
        await inventory.rescan()
        assert inventory.snapshot.devices[0].uuid == uuid(0)


async def test_a_scan_that_takes_too_long_is_known_while_it_hangs() -> None:
    source = Scripted(node(gpu(0)))
    source.gate.clear()
    async with running(source) as inventory:
        await eventually(lambda: source.starts, "a scan begins")
        assert not inventory.hangs(60.0)
        await eventually(lambda: inventory.hangs(0.01), "it hangs")
        source.gate.set()
        await asyncio.wait_for(inventory.first.wait(), 120)
        assert not inventory.hangs(0.0)


async def test_wakes_during_a_scan_are_one_scan_more() -> None:
    source = Scripted(node(gpu(0)))
    source.gate.clear()
    async with running(source) as inventory:
        await eventually(lambda: source.starts, "a scan begins")
        for _ in range(10):
            inventory.wake()
        source.gate.set()
        await eventually(lambda: len(source.starts) == 2, "the scan after the wakes")
        await inventory.rescan()
        assert len(source.starts) == 3


async def test_first_wake_after_quiet_is_served_at_once_and_a_storm_is_not() -> None:
    begins: list[float] = []

    class Noting(Scripted):
        """Notes when the loop began each scan: its thread may begin later."""

        def read(self) -> NodeFacts:
            assert inventory._scanning is not None
            begins.append(inventory._scanning)
            return super().read()

    source = Noting(node(gpu(0)))
    async with running(source, min_interval=0.5) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        await eventually(lambda: time.monotonic() > begins[0] + 0.6)
        source.gate.clear()
        inventory.wake()
        for _ in range(20):
            await asyncio.sleep(0)
        assert inventory.hangs(-1.0), "the scan of the first wake waits for no time to pass"
        source.gate.set()

        def wake_and_count() -> bool:
            inventory.wake()
            return len(begins) >= 4

        await eventually(wake_and_count, "two more scans")
    gaps = [later - sooner for sooner, later in pairwise(begins[1:])]
    assert min(gaps) >= 0.49


async def test_scan_that_somebody_waits_for_begins_at_once() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source, min_interval=3600.0) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        inventory.wake()
        for _ in range(3):
            await asyncio.wait_for(inventory.rescan(), 60)
        assert len(source.starts) == 4


async def test_scans_come_back_after_the_interval_without_a_wake() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source, max_interval=0.05):
        await eventually(lambda: len(source.starts) >= 3, "three scans")


async def test_waiting_source_is_asked_again_with_backoff() -> None:
    source = Scripted(WAITING)
    async with running(source, max_interval=0.4, jitter=lambda: 0.0) as inventory:
        await eventually(lambda: len(source.starts) >= 4, "four scans")
        assert inventory.snapshot.sources[0].state is SourceState.WAITING
        assert inventory.snapshot.generation == 1
        source.facts = node(gpu(0))
        await eventually(lambda: inventory.snapshot.devices, "the driver has come")


def test_backoff_doubles_up_to_the_interval_and_starts_again_when_woken() -> None:
    inventory = Inventory([], IdentityStore(None), EventBus(), clocks=Edges(ManualClock(1000.0), random=lambda: 1.0))
    assert inventory._interval() == 60.0
    inventory._snapshot = Snapshot(1, sources=statuses_of(WAITING))
    assert [inventory._interval() for _ in range(8)] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]
    inventory.wake()
    inventory._jitter = lambda: 0.0
    assert [inventory._interval() for _ in range(3)] == [0.5, 1.0, 2.0]


async def test_log_tells_generation_devices_and_changes(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ostler.inventory"):
        many = Scripted(node(a100(0, *(mig(index, index) for index in range(40)))))
        async with running(many) as inventory:
            await asyncio.wait_for(inventory.first.wait(), 120)
    published = next(record for record in caplog.records if record.message == "scan published")
    assert (published.__dict__["generation"], published.__dict__["devices"]) == (1, 41)
    assert "and 11 more changes" in caplog.text


async def test_replayed_facts_give_the_same_snapshot() -> None:
    facts = node(gpu(0), a100(1, mig(0, 0), mig(1, 1)))
    snapshots = []
    for _ in range(2):
        async with running(Scripted(facts)) as inventory:
            await asyncio.wait_for(inventory.first.wait(), 120)
            snapshots.append(inventory.snapshot)
    assert snapshots[0] == snapshots[1]
    bare = Snapshot(1, devices_of(facts, Identities()), statuses_of(facts), host_of(facts))
    stamped = tuple(replace(each, health=each.health.carried(None, 1000.0)) for each in bare.devices)
    assert snapshots[0] == replace(bare, devices=stamped, topology=topology_of(places_of(stamped)))
