"""The agent's DRA door against the sandbox's kubelet and cluster: both doors of one process, and its prompt."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator

import pytest

from sandbox.claimtour import claim_tour
from sandbox.cluster import samples
from sandbox.cluster.cluster import SandboxCluster
from sandbox.cluster.samples import DRIVER
from sandbox.cluster.views import tainted
from sandbox.configuration import configuration
from sandbox.node import SandboxNode
from sandbox.nodes import path
from tests.waiting import eventually


@pytest.fixture
async def box() -> AsyncIterator[SandboxNode]:
    text = configuration(mig=True, both=True)
    async with SandboxNode(path("h100-sxm-8"), configuration=text, reconcile_interval=0.05, cluster=True) as box:
        await box.registered()
        yield box


def cluster_of(box: SandboxNode) -> SandboxCluster:
    assert box.cluster is not None
    return box.cluster


async def published(box: SandboxNode) -> list[str]:
    slices = await cluster_of(box).slices(DRIVER)
    devices = [device for each in slices for device in each["spec"]["devices"]]
    return [device["name"] for device in devices if device["attributes"]["type"]["string"] == "gpu"]


async def test_what_one_door_has_given_the_other_does_not_give(box: SandboxNode) -> None:
    cluster = cluster_of(box)
    assert len(await published(box)) == 8
    assert box.kubelet.allocatable()["nvidia.com/gpu"] == 8
    await cluster.apply([samples.template("five", 5), samples.template("one")])
    given = await box.give("nvidia.com/gpu", 3)
    await box.waits.published()
    assert (await cluster.run(samples.pod("p", "five"))).running
    late = await cluster.run(samples.pod("q", "one"))
    assert late.phase == "Pending"
    await box.over(given.pod)
    again = await cluster.retry("q")
    assert again.running, again.message
    await box.kubelet.wait_for("nvidia.com/gpu", healthy=2)
    refused = await box.give("nvidia.com/gpu", 3)
    assert not refused.admission.admitted


async def test_tour_leaves_nothing_held_and_no_device_tainted(box: SandboxNode) -> None:
    steps = [step.key async for step in claim_tour(box)]
    assert steps[-2:] == ["claim_pair", "islands"]
    assert [device.device for device in (await box.agent.holds()).devices if device.holds] == []
    assert tainted(await cluster_of(box).slices(DRIVER)) == {}


async def test_slices_are_back_after_the_kubelet_wiped_them(box: SandboxNode) -> None:
    before = await published(box)
    await box.kubelet.restart()
    await eventually(lambda: box.kubelet.dra.drivers.wiping.wiped == [None], "the wipe")

    async def back() -> bool:
        return await published(box) == before

    await eventually(back, "the slices")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_claim_outlives_the_agent(box: SandboxNode, number: signal.Signals) -> None:
    cluster = cluster_of(box)
    await cluster.apply([samples.template("one")])
    first = await cluster.run(samples.pod("p", "one"))
    assert first.running, first.message
    specs = {each.name: each.read_bytes() for each in box.cdi.glob(f"{DRIVER}-claim_*")}
    assert len(specs) == 1
    await box.restart_agent(number)
    await box.registered()
    assert {each.name: each.read_bytes() for each in box.cdi.glob(f"{DRIVER}-claim_*")} == specs
    second = await cluster.run(samples.pod("q", "one"))
    assert second.running, second.message
    assert set(first.claims.values()).isdisjoint(second.claims.values())
    for name in ("p", "q"):
        await cluster.end(name)
    assert not list(box.cdi.glob(f"{DRIVER}-claim_*"))


async def test_unprepare_needs_no_api_server(box: SandboxNode) -> None:
    cluster = cluster_of(box)
    await cluster.apply([samples.template("one")])
    outcome = await cluster.run(samples.pod("p", "one"))
    assert outcome.running, outcome.message
    assert box.server is not None
    box.server.down()
    (pod,) = box.kubelet.pods()
    await box.kubelet.end(pod)
    assert not list(box.cdi.glob(f"{DRIVER}-claim_*"))
    box.server.up()


async def test_what_is_not_published_is_told(box: SandboxNode) -> None:
    assert box.server is not None
    assert box.hardware is not None
    box.server.down()
    box.hardware.fail(7)
    await box.agent.rescan()
    with pytest.raises(TimeoutError, match="pool sandbox: "):
        await box.waits.published(asyncio.get_running_loop().time() + 0.5)
    box.server.up()
    await box.waits.published()
