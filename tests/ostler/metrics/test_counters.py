"""What is counted, where it is counted: the door against a kubelet, scans, and what no sandbox's scrape shows."""

from __future__ import annotations

from pathlib import Path

from node.clocks import SystemClocks
from node.health.state import Health, HealthState
from node.inventory.diff import diff
from node.inventory.loop import ScanDone, SnapshotPublished
from node.inventory.model import Device, DeviceKind, Snapshot, SourceState, SourceStatus
from node.metrics import Histogram
from node.sockets import FileId
from ostler.metrics.counters import CALLS, PluginMetrics, ScanMetrics
from plugin.kubelet import RegistrationPath
from sandbox.kubelet.kubelet import Kubelet
from tests.making.plugin_door import door, offer_of, offered, running, state
from tests.plugin.test_registration import refusing
from tests.waiting import eventually

GPU = "nvidia.com/gpu"
REGISTER = (RegistrationPath.REGISTER,)
REGISTRY = (RegistrationPath.REGISTRY,)
DEVICES = tuple(offered(f"g{index}", 0) for index in range(2))


def device(name: str, state: HealthState = HealthState.HEALTHY) -> Device:
    return Device(name, DeviceKind.GPU, "nvidia", health=Health(state))


async def test_refused_registers_are_attempts_and_failures(short_dir: Path) -> None:
    counters = PluginMetrics()
    async with refusing(short_dir, 2) as kubelet:
        served = door(short_dir, paths=REGISTER, observer=counters)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await eventually(lambda: len(kubelet.requests) == 3)
            await eventually(lambda: state(served) == "offered")
    assert counters.attempts.counts == {(GPU, "register"): 3}
    assert counters.failures.counts == {(GPU, "register"): 2}
    assert counters.registrations.counts == {}
    assert counters.registered_at == {}


async def test_a_kubelet_that_never_asks_is_a_failure_by_that_path_and_register_a_success(short_dir: Path) -> None:
    counters = PluginMetrics(SystemClocks(clock=lambda: 1700000000.0))
    async with Kubelet(short_dir, watch_plugins=False) as kubelet:
        (short_dir / "plugins_registry").mkdir(exist_ok=True)
        served = door(short_dir, observer=counters, patience=0.1)
        served.apply(offer_of(GPU, *DEVICES))
        async with running(served):
            await kubelet.wait_for(GPU, healthy=2)
            await eventually(lambda: state(served) == "registered")
    assert counters.failures.counts == {(GPU, "registry"): 1}
    assert counters.attempts.counts == counters.registrations.counts == {(GPU, "register"): 1}
    assert counters.registered_at == {GPU: 1700000000.0}


async def test_a_folder_that_takes_no_socket_is_a_failure(short_dir: Path) -> None:
    counters = PluginMetrics()
    served = door(short_dir, paths=REGISTRY, observer=counters)
    served.apply(offer_of(GPU, *DEVICES))
    async with running(served):
        await eventually(lambda: state(served) == "failed")
    # Every look at the folder is one, and the folder watcher causes some.
    assert counters.failures.counts.keys() == {(GPU, "registry")}
    assert counters.attempts.counts == {}


def test_the_kubelet_is_restarted_when_its_socket_is_another_one_whoever_tells() -> None:
    counters = PluginMetrics()
    first, second = FileId(1, 1, 1), FileId(1, 2, 2)
    for socket in (first, first, second, second, first):
        counters.kubelet_seen(socket)
    assert counters.restarts.counts == {(): 2}


def test_what_the_first_scan_finds_is_no_change() -> None:
    scans = ScanMetrics()
    empty = Snapshot()
    first = Snapshot(1, (device("a"), device("b")))
    scans.published(SnapshotPublished(first, diff(empty, first)))
    assert (scans.changes.counts, scans.transitions.counts) == ({}, {})
    second = Snapshot(2, (device("b", HealthState.UNHEALTHY), device("c")))
    scans.published(SnapshotPublished(second, diff(first, second)))
    assert scans.changes.counts == {("gpu", "added"): 1, ("gpu", "removed"): 1}
    assert scans.transitions.counts == {("gpu", "healthy", "unhealthy"): 1}


def test_sources_that_fail_are_counted_and_those_that_wait_are_not() -> None:
    scans = ScanMetrics(SystemClocks(clock=lambda: 5.0))
    for state_ in (SourceState.OK, SourceState.WAITING, SourceState.FAILED, SourceState.FAILED):
        scans.scanned(ScanDone(0.02, (SourceStatus("nvml", state_),)))
    assert scans.failures.counts == {("nvml",): 2}
    assert scans.last.values == {(): 5.0}
    assert sum(scans.durations.series[()].counts) == 4


def test_a_value_on_a_bound_belongs_below_it_and_the_last_bucket_takes_the_rest() -> None:
    histogram = Histogram("a", "b", CALLS)
    for seconds in (CALLS[0], CALLS[-1], 60.0):
        histogram.observe(seconds)
    found = histogram.series[()]
    assert (found.counts[0], found.counts[-2], found.counts[-1]) == (1, 1, 1)
    assert found.total == CALLS[0] + CALLS[-1] + 60.0
