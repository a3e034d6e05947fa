"""The loop and what fails in it: no source, subscriber or assembly can end it, and people hear of it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from node.events import EventBus
from node.health.state import HealthState
from node.inventory.facts import NodeFacts, NvmlFacts
from node.inventory.loop import SnapshotPublished
from node.inventory.model import SourceState
from node.inventory.source import DriverHeld
from node.quiesce import Quiesce
from tests.making.events import heard
from tests.making.inventories import Scripted, running
from tests.making.nvidia_facts import gpu, node
from tests.waiting import eventually


async def test_hanging_source_is_left_behind_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    source = Scripted(node(gpu(0)), "nvml")
    source.gate.clear()
    async with running(source):
        await eventually(lambda: source.starts, "the scan begins")
    # The source still hangs, for as long as the gate is closed.
    assert source.closed == 0
    assert "a source hangs and could not be closed" in caplog.text
    assert [record.__dict__["source"] for record in caplog.records if "hangs" in record.message] == ["nvml"]
    source.gate.set()


async def test_source_that_raises_is_failed_and_keeps_its_facts(caplog: pytest.LogCaptureFixture) -> None:
    whole = node(gpu(0))
    broken = Scripted(NodeFacts(nvml=whole.nvml), "nvml")
    sound = Scripted(NodeFacts(sysfs=whole.sysfs), "sysfs")
    async with running(broken, sound) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        before = inventory.snapshot
        broken.fault = RuntimeError("struct is too short")
        await inventory.rescan()
        await inventory.rescan()
        assert inventory.snapshot.devices == before.devices
        assert [(each.name, each.state.value, each.detail) for each in inventory.snapshot.sources] == [
            ("nvml", "failed", "internal error: RuntimeError: struct is too short"),
            ("sysfs", "ok", ""),
        ]
        tracebacks = [record.exc_info for record in caplog.records if record.message == "a scan hit a bug"]
        assert [bool(traceback) for traceback in tracebacks] == [True, False]
        broken.fault = None
        await inventory.rescan()
        assert inventory.snapshot.sources[0].state is SourceState.OK
        broken.fault = RuntimeError("cannot close either")
    assert sound.closed == 1
    assert "a source could not be closed" in caplog.text


async def test_source_that_raises_from_the_start_is_named() -> None:
    broken = Scripted(NodeFacts(), "recorded")
    broken.fault = RuntimeError("boom")
    async with running(broken) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        assert [(each.name, each.state.value) for each in inventory.snapshot.sources] == [("recorded", "failed")]


async def test_bug_of_the_assembly_keeps_the_devices() -> None:
    source = Scripted(node(gpu(0)))
    async with running(source) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        source.facts = NodeFacts(nvml=NvmlFacts(gpus=(replace(gpu(0), mig_devices=(None,)),)))  # type: ignore[arg-type]
        await inventory.rescan()
        assert [device.name for device in inventory.snapshot.devices] == ["gpu-0000-1b-00-0"]
        (status,) = inventory.snapshot.sources
        assert (status.name, status.state) == ("assembly", SourceState.FAILED)
        assert status.detail.startswith("internal error: AttributeError")


async def test_subscriber_that_raises_keeps_nobody_from_the_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: SnapshotPublished) -> None:
        raise ValueError("a bug")

    bus = EventBus(logging.getLogger("ostler.inventory"))
    bus.subscribe(SnapshotPublished, broken)
    published = heard(bus, SnapshotPublished)
    async with running(Scripted(node(gpu(0))), bus=bus) as inventory:
        await asyncio.wait_for(inventory.first.wait(), 120)
        assert [each.snapshot.generation for each in published] == [1]
        assert "a subscriber failed" in caplog.text


class _Holding(Scripted):
    """A source that keeps a driver in use."""

    holds_driver: Literal[True] = True


async def test_a_driver_that_cannot_be_let_go_of_is_told_until_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source, quiesce = _Holding(node(gpu(0)), "nvml"), Quiesce(tmp_path / "quiesce.json")
    async with running(source, quiesce=quiesce) as inventory:
        await inventory.rescan()
        quiesce.begin("driver 580")
        source.fault = DriverHeld("a call does not return")
        await inventory.rescan()
        assert inventory.held == "a call does not return"
        (status,) = [status for status in inventory.snapshot.sources if status.name == "nvml"]
        assert (status.state, status.detail) == (SourceState.FAILED, "a call does not return")
        assert inventory.snapshot.devices[0].health.state is HealthState.UNKNOWN
        assert "a scan hit a bug" not in caplog.text
        source.fault = RuntimeError("a bug")
        await inventory.rescan()
        assert inventory.held == "internal error: RuntimeError: a bug"
        source.fault = None
        await inventory.rescan()
        assert inventory.held == ""
        source.fault = DriverHeld("a call does not return")
        await inventory.rescan()
        quiesce.end()
        await inventory.rescan()
        assert inventory.held == "", "nobody wants it to be let go of"
