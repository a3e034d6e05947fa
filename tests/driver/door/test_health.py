from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from driver.door import health_stream
from driver.door.health_stream import HealthReports, device_report
from driver.door.registration import DraDoorObserver
from node.clocks import SystemClocks
from node.health.state import Health, HealthState
from node.offer import Cause
from protos.drahealth.v1 import api_pb2 as v1
from protos.drahealth.v1 import api_pb2_grpc as v1_grpc
from protos.drahealth.v1alpha1 import api_pb2 as v1alpha1
from protos.drahealth.v1alpha1 import api_pb2_grpc as v1alpha1_grpc
from tests.driver.door.kubelet import channel
from tests.making.dra_door import DoorSide, offered, options, view
from tests.making.virtual_time import in_virtual_time
from tests.waiting import eventually

ILL = Health(HealthState.UNHEALTHY, "XID 79: GPU has fallen off the bus")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_stream, "FIRST_REPEAT", 0.05)
    monkeypatch.setattr(health_stream, "EVERY", 0.1)


@asynccontextmanager
async def watching(side: DoorSide, module: Any = v1, grpc_module: Any = v1_grpc) -> AsyncIterator[Any]:
    """A health stream to the door."""
    socket = await side.serving()
    async with channel(socket) as connection:
        stream = grpc_module.DRAResourceHealthStub(connection).NodeWatchResources(module.NodeWatchResourcesRequest())
        yield stream
        stream.cancel()


@pytest.mark.parametrize(("module", "grpc_module"), [(v1, v1_grpc), (v1alpha1, v1alpha1_grpc)])
async def test_both_versions_report_every_field_at_once(
    short_dir: Path, module: Any, grpc_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is not reported at once would not be reported before the test's patience is over.
    for name in ("FIRST_REPEAT", "EVERY"):
        monkeypatch.setattr(health_stream, name, 3600.0)
    side = DoorSide(options(short_dir))
    async with side.running():
        ill = offered("gpu-1", ILL, healthy=False, reason=ILL.reason, cause=Cause.HEALTH)
        side.door.apply(view(offered("gpu-0"), ill))
        await eventually(lambda: side.door.status().socket)
        async with watching(side, module, grpc_module) as stream:
            report = await asyncio.wait_for(stream.read(), 120)
            first, second = report.devices
            assert (first.device.pool_name, first.device.device_name) == ("node-a", "gpu-0")
            assert first.health == module.HEALTHY
            assert second.health == module.UNHEALTHY
            assert second.message == ILL.reason
            assert first.last_updated_time == 1_000_000
            assert first.health_check_timeout_seconds == 30


async def test_streams_end_in_order_with_the_door(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    side.door.apply(view(offered("gpu-0")))
    async with side.running(), watching(side) as one, watching(side, v1alpha1, v1alpha1_grpc) as two:
        for stream in (one, two):
            await stream.read()
        began = time.monotonic()
        await side.end()
        assert time.monotonic() - began < health_stream.TIMEOUT / 2
        for stream in (one, two):
            while await stream.read() is not grpc.aio.EOF:
                pass
            assert await stream.code() is grpc.StatusCode.OK
        assert side.counted.lines[-1] == "watched 0"


async def test_a_change_is_reported_to_every_stream(short_dir: Path) -> None:
    side = DoorSide(options(short_dir))
    side.door.apply(view(offered("gpu-0")))
    async with side.running(), watching(side) as one, watching(side) as two:
        for stream in (one, two):
            assert (await stream.read()).devices[0].health == v1.HEALTHY
        side.door.apply(view(offered("gpu-0", ILL, healthy=False, reason=ILL.reason, cause=Cause.HEALTH)))
        for stream in (one, two):
            while (await stream.read()).devices[0].health != v1.UNHEALTHY:
                pass
        assert side.door.status().health_streams == 2
    assert "watched 2" in side.counted.lines


async def first_of(reports: HealthReports, count: int) -> list[v1.NodeWatchResourcesResponse]:
    """The next reports of a new stream."""
    found = []
    async with aclosing(reports.follow()) as stream:
        async for report in stream:
            found.append(report)
            if len(found) == count:
                break
    return found


def reports_of(alive: Callable[[], bool] = lambda: True) -> HealthReports:
    return HealthReports(
        "node-a", clocks=SystemClocks(clock=lambda: 1_000_000.0), is_alive=alive, observer=DraDoorObserver()
    )


@in_virtual_time
async def test_a_report_is_repeated_long_before_it_is_stale() -> None:
    assert health_stream.TIMEOUT >= 2 * 10.0
    reports = reports_of()
    reports.apply(view(offered("gpu-0")))
    async with asyncio.timeout(20):
        first, *rest = await first_of(reports, 4)
    assert all(each.devices == first.devices for each in rest)


@in_virtual_time
async def test_a_report_can_be_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_stream, "FIRST_REPEAT", 30.0)
    reports = reports_of()
    reports.apply(view(offered("gpu-0")))
    async with aclosing(reports.follow()) as stream, asyncio.timeout(20):
        first = await anext(stream)
        again = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.01)
        monkeypatch.setattr(health_stream, "FIRST_REPEAT", 0.01)
        reports.repeat()
        assert (await again).devices == first.devices
        assert (await anext(stream)).devices == first.devices


@in_virtual_time
async def test_repeats_never_come_further_apart_than_a_stale_report_allows() -> None:
    reports = reports_of()
    reports.apply(view(offered("gpu-0")))
    async with asyncio.timeout(8):
        await first_of(reports, 14)


@in_virtual_time
async def test_after_a_repeat_the_next_one_is_soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_stream, "EVERY", 60.0)
    reports = reports_of()
    reports.apply(view(offered("gpu-0")))
    async with aclosing(reports.follow()) as stream, asyncio.timeout(40):
        for _ in range(6):
            await anext(stream)
        reports.repeat()
        await anext(stream)
        async with asyncio.timeout(1.0):
            await anext(stream)


@in_virtual_time
async def test_a_view_that_says_nothing_new_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_stream, "FIRST_REPEAT", 30.0)
    reports = reports_of()
    reports.apply(view(offered("gpu-0")))
    async with aclosing(reports.follow()) as stream:
        await anext(stream)
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        for _ in range(3):
            reports.apply(view(offered("gpu-0")))
            await asyncio.sleep(0.01)
        assert not following.done()
        reports.apply(view(offered("gpu-1")))
        assert (await following).devices[0].device.device_name == "gpu-1"


@in_virtual_time
async def test_a_stream_that_opens_before_the_first_view_waits_for_it() -> None:
    reports = reports_of()
    waiting = asyncio.ensure_future(first_of(reports, 1))
    await eventually(lambda: reports.streams == 1)
    reports.apply(view())
    assert (await waiting)[0].devices == []


@in_virtual_time
async def test_nobody_vouches_for_an_inventory_that_hangs() -> None:
    alive = True
    reports = reports_of(lambda: alive)
    reports.apply(view(offered("gpu-0")))
    async with aclosing(reports.follow()) as stream:
        assert (await anext(stream)).devices[0].health == v1.HEALTHY
        await anext(stream)
        alive = False
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await anext(stream)


@in_virtual_time
async def test_a_stream_opened_while_the_inventory_hangs_says_unknown() -> None:
    alive = False
    reports = reports_of(lambda: alive)
    reports.apply(view(offered("gpu-0")))
    async with aclosing(reports.follow()) as stream:
        (device,) = (await anext(stream)).devices
        assert device.health == v1.UNKNOWN
        assert device.message == "ostler has not checked its devices for too long"
        alive = True
        assert (await anext(stream)).devices[0].health == v1.HEALTHY


@pytest.mark.parametrize(
    ("cause", "state", "health"),
    [
        (Cause.HEALTH, HealthState.UNHEALTHY, v1.UNHEALTHY),
        (Cause.HEALTH, HealthState.UNKNOWN, v1.UNKNOWN),
        (Cause.GONE, HealthState.UNHEALTHY, v1.UNHEALTHY),
        (Cause.LINK_DOWN, HealthState.HEALTHY, v1.UNHEALTHY),
        (Cause.UNFIT, HealthState.HEALTHY, v1.UNHEALTHY),
        (Cause.NODE_USE, HealthState.HEALTHY, v1.HEALTHY),
        (Cause.OTHER_DOOR, HealthState.HEALTHY, v1.HEALTHY),
    ],
)
def test_what_is_only_withheld_is_not_ill(cause: Cause, state: HealthState, health: v1.HealthStatus) -> None:
    device = offered("gpu-0", Health(state), healthy=False, reason="because", cause=cause)
    assert device_report("node-a", device).health == health


def test_a_degraded_device_is_healthy_and_says_why() -> None:
    report = device_report("node-a", offered("gpu-0", Health(HealthState.DEGRADED, "row remap pending"), reason="row"))
    assert (report.health, report.message) == (v1.HEALTHY, "row")


def test_a_message_is_cut_before_the_kubelet_cuts_it() -> None:
    report = device_report("node-a", offered("gpu-0", healthy=False, reason="ü" * 2000, cause=Cause.HEALTH))
    assert len(report.message.encode()) <= 1000
    assert report.message.endswith("...")


@pytest.mark.parametrize(
    "cause",
    [Cause.OTHER_DOOR, Cause.OVERLAP, Cause.PENDING_RELEASE, Cause.HOLDS_UNKNOWN, Cause.MOVING, Cause.NODE_USE],
)
def test_a_device_that_is_withheld_is_not_ill_and_why_is_not_told_to_who_has_it(cause: Cause) -> None:
    report = device_report("node-a", offered("gpu-0", healthy=False, reason="held by team/other", cause=cause))
    assert (report.health, report.message) == (v1.HEALTHY, "")
    worn = Health(HealthState.DEGRADED, "row remap pending")
    report = device_report("node-a", offered("gpu-0", worn, healthy=False, reason="held by team/other", cause=cause))
    assert (report.health, report.message) == (v1.HEALTHY, "row remap pending")
