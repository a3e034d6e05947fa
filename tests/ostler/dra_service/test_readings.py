"""News of pods that make the agent ask the kubelet what pods have: a reading costs both of them time during a start."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.claims.model import ClaimReference
from driver.node_watch.pods import NodePod
from node.rules import Doors
from ostler.agent.dra_service import only_came
from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import begun
from tests.making.watched_node import TEAM, World
from tests.waiting import eventually

DEVICE = "gpu-0000"
POD = NodePod("1", "team", "a", claims=("c",))
OTHER = NodePod("2", "team", "b")


async def test_a_pod_that_comes_for_a_claim_asks_nothing_and_one_that_goes_does(
    short_dir: Path, server: ApiServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        asked: list[str] = []
        monkeypatch.setattr(both.books, "pods_changed", lambda: asked.append("read"))
        uid = world.claim("c", DEVICE, users=(world.pod("p", "c"),))
        await eventually(lambda: uid in both.books.ledger.owners, "the device is reserved")
        assert asked == []
        world.remove("p")
        await eventually(lambda: asked != [], "the pod is gone")


async def test_a_pod_without_devices_that_goes_asks_nothing_and_the_one_that_has_a_device_does(
    short_dir: Path, server: ApiServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        world.pod("plugin")
        world.pod("other")
        both.pod_gets(DEVICE)
        await eventually(lambda: DEVICE in both.books.ledger.by_device(), "the ledger has the pod's device")
        pods = both.second._parts.node_claims
        await eventually(lambda: {pod.name for pod in pods.pods} == {"plugin", "other"}, "both pods are known")
        asked: list[str] = []
        monkeypatch.setattr(both.books, "pods_changed", lambda: asked.append("read"))
        world.remove("other")
        await eventually(lambda: {pod.name for pod in pods.pods} == {"plugin"}, "the other pod is gone")
        assert asked == []
        world.remove("plugin")
        await eventually(lambda: asked != [], "the pod with the device is gone")


async def test_a_claim_for_a_device_that_a_pod_has_asks_whether_that_pod_lives(
    short_dir: Path, server: ApiServer, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        both.pod_gets(DEVICE)
        await eventually(lambda: DEVICE in both.books.ledger.by_device(), "the ledger has the pod's device")
        asked: list[str] = []
        monkeypatch.setattr(both.books, "pods_changed", lambda: asked.append("read"))
        world.claim("c", DEVICE, users=(world.pod("p", "c"),))
        await eventually(lambda: asked != [], "the claim is refused")


async def test_a_claim_is_read_once_for_its_start_where_no_device_is_for_both_doors(
    short_dir: Path, server: ApiServer, world: World
) -> None:
    async with begun(short_dir, server, 2, Doors.DRA) as both:
        uid = world.claim("c", DEVICE, users=(pod := world.pod("p", "c"),))
        await both.second._parts.claims.prepare(ClaimReference(TEAM, "c", uid))
        await eventually(lambda: uid in both.second._parts.node_claims.reservations(), "the record says it")
        assert both.second._parts.node_claims.reservations()[uid][0].pods == (pod,)
        assert both.asked("get", "resourceclaims") == 1


@pytest.mark.parametrize(
    ("before", "now", "came"),
    [
        ((), (POD,), True),
        ((OTHER,), (OTHER, POD), True),
        ((NodePod("1", "team", "a"),), (POD,), True),
        ((POD,), (), False),
        ((OTHER,), (POD,), False),
        # No pod differs: a question about a pod was answered.
        ((POD,), (POD,), False),
        # Nor does one that matters: a pod without claims came some time before.
        ((POD,), (POD, OTHER), False),
        ((POD,), (NodePod("1", "team", "a", claims=("c",), ending=True),), False),
    ],
)
def test_only_pods_that_come_have_nothing_that_the_kubelet_allocated_before(
    before: tuple[NodePod, ...], now: tuple[NodePod, ...], came: bool
) -> None:
    assert only_came({pod.uid: pod for pod in before}, {pod.uid: pod for pod in now}) is came
