"""Reports of health: which stream is read, what a pod's status shows, and for how long."""

from __future__ import annotations

import json

import pytest

from sandbox.kubelet.dra.claims import ResourceHealth
from sandbox.kubelet.events import DriverHealth
from sandbox.kubelet.generations import Generation
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Container, Pod
from tests.making.clock import ManualClock
from tests.sandbox.kubelet.dra.conftest import POOL, DraKubeletNode, claim, pod, uses
from tests.sandbox.kubelet.dra.driver import NAME, SERVICES, DriverScript, FakeDriver
from tests.waiting import eventually

HEALTHY, UNHEALTHY = 1, 2
CDI = f"{NAME}/fake=uid-one-dev-0"


async def prepared(
    node: DraKubeletNode, clock: ManualClock | None = None, **settings: object
) -> tuple[Kubelet, FakeDriver, Pod]:
    """A pod whose container ``c`` has dev-0, and ``d`` two requests."""
    kubelet = await node.kubelet({"now": clock or ManualClock(1_800_000_000.0)}, **settings)
    driver = await node.driver()
    await eventually(lambda: any(each.connected for each in kubelet.dra.drivers.instances(NAME)), "the connection")
    node.api.add(claim("one"), claim("two", devices=[("r", "dev-1"), ("s", "dev-2")]))
    containers = [Container("c", claims=uses("one")), Container("d", claims=uses("two/s", "two"))]
    running = pod("p", "one", "two", containers=[*containers, Container("i", "init", claims=uses("one"))])
    assert (await kubelet.admit(running)).admitted
    await kubelet.prepare(running)
    return kubelet, driver, running


async def test_report_shows_in_the_status_of_the_pods_that_hold_the_device(node: DraKubeletNode) -> None:
    kubelet, driver, running = await prepared(node)
    await driver.tell((POOL, "dev-0", UNHEALTHY, "too hot", 0), (POOL, "dev-2", HEALTHY, "", 0))
    hot = {"claim:one": (ResourceHealth(CDI, "Unhealthy", "too hot"),)}
    await eventually(lambda: kubelet.claim_health(running, "c") == hot, "the report")
    two = f"{NAME}/fake=uid-two-dev-"
    assert kubelet.claim_health(running, "d") == {
        "claim:two/s": (ResourceHealth(f"{two}2", "Healthy"),),
        "claim:two": (ResourceHealth(f"{two}1", "Unknown"), ResourceHealth(f"{two}2", "Healthy")),
    }
    assert kubelet.claim_health(running, "i") == {}
    assert ("p",) in kubelet.dra.updates.drain()
    await eventually((node.root / "dra_health_state").exists, "the file")
    state = json.loads((node.root / "dra_health_state").read_bytes())
    assert state[NAME]["Devices"][f"{POOL}/dev-0"] == {
        "PoolName": POOL,
        "DeviceName": "dev-0",
        "Health": "Unhealthy",
        "LastUpdated": "2027-01-15T08:00:00Z",
        "HealthCheckTimeout": 30_000_000_000,
        "Message": "too hot",
    }


async def test_report_is_believed_for_the_devices_own_time(node: DraKubeletNode) -> None:
    clock = ManualClock(1_800_000_000.0)
    kubelet, driver, running = await prepared(node, clock)
    await driver.tell((POOL, "dev-0", HEALTHY, "fine", 5), (POOL, "dev-1", HEALTHY, "", -1))
    fine = {"claim:one": (ResourceHealth(CDI, "Healthy", "fine"),)}
    await eventually(lambda: kubelet.claim_health(running, "c") == fine, "the report")
    clock.now += 5.1
    assert kubelet.claim_health(running, "c") == {"claim:one": (ResourceHealth(CDI, "Unknown"),)}
    assert kubelet.claim_health(running, "d")["claim:two"][0].health == "Healthy"
    clock.now += 25
    assert kubelet.claim_health(running, "d")["claim:two"][0].health == "Unknown"
    # A report without them turns them unknown for good, and tells whom it concerns.
    kubelet.dra.updates.drain()
    await driver.tell()
    await eventually(lambda: kubelet.dra.updates.drain() == (("p",),), "the change")


async def test_long_message_is_cut(node: DraKubeletNode) -> None:
    kubelet, driver, running = await prepared(node)
    await driver.tell((POOL, "dev-0", UNHEALTHY, "x" * 1025, 0))
    cut = ResourceHealth(CDI, "Unhealthy", "x" * 1021 + "...")
    await eventually(lambda: kubelet.claim_health(running, "c") == {"claim:one": (cut,)}, "the report")


async def test_end_of_the_stream_forgets_everything_and_it_is_opened_again(node: DraKubeletNode) -> None:
    kubelet, driver, running = await prepared(node)
    await driver.tell((POOL, "dev-0", UNHEALTHY, "", 0))
    await eventually(lambda: kubelet.claim_health(running, "c")["claim:one"][0].health == "Unhealthy", "the report")
    await driver.stop()
    await eventually(lambda: kubelet.claim_health(running, "c")["claim:one"][0].health == "Unknown", "its end")
    assert any(isinstance(event, DriverHealth) and event.ended for event in node.events)
    await driver.start()
    await eventually(lambda: kubelet.claim_health(running, "c")["claim:one"][0].health == "Unhealthy", "it again")


@pytest.mark.parametrize(
    ("generation", "services", "streams"),
    [
        ("1.35", SERVICES, {}),
        ("1.36", SERVICES, {"v1alpha1": 1}),
        ("1.36", ("v1.DRAPlugin", "v1.DRAResourceHealth"), {"v1alpha1": 1}),
        ("1.37", SERVICES, {"v1": 1}),
        ("1.37", ("v1.DRAPlugin", "v1alpha1.DRAResourceHealth"), {"v1alpha1": 1}),
        ("1.37", ("v1.DRAPlugin",), {}),
    ],
)
async def test_generation_decides_which_health_service_is_watched(
    node: DraKubeletNode, generation: Generation, services: tuple[str, ...], streams: dict[str, int]
) -> None:
    kubelet = await node.kubelet(generation=generation)
    driver = await node.driver(script=DriverScript(services))
    await eventually(lambda: any(each.connected for each in kubelet.dra.drivers.instances(NAME)), "the connection")
    if streams:
        await eventually(lambda: driver.streams == streams, "the stream")
    (instance,) = kubelet.dra.drivers.instances(NAME)
    assert (instance.health is None) == (not streams)
    assert driver.streams == streams


async def test_health_survives_a_restart_in_its_file(node: DraKubeletNode) -> None:
    device = {
        "PoolName": "n1",
        "DeviceName": "dev-0",
        "Health": "Healthy",
        "LastUpdated": "2027-01-15T08:00:00Z",
        "HealthCheckTimeout": 0,
        "Message": "m",
    }
    text = json.dumps({NAME: {"Devices": {"n1/dev-0": device}}})
    (node.root / "dra_health_state").write_text(text)
    clock = ManualClock(1_800_000_000.0)
    kubelet = await node.kubelet({"now": clock})
    assert kubelet.dra.health.of(NAME, "n1", "dev-0").message == "m"
    clock.now += 31
    assert kubelet.dra.health.of(NAME, "n1", "dev-0").health == "Unknown"


async def test_unreadable_health_file_is_as_none(node: DraKubeletNode) -> None:
    (node.root / "dra_health_state").write_bytes(b"{")
    kubelet = await node.kubelet()
    assert kubelet.dra.health.of(NAME, "n1", "dev-0").health == "Unknown"
