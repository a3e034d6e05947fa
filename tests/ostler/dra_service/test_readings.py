"""News of pods that make the agent ask the kubelet what pods have: a reading costs both of them time during a start."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from driver.claims.model import ClaimReference
from driver.node_watch.node_pods import PodsChanged
from driver.node_watch.pods import NodePod
from node.rules import Doors
from ostler.agent import dra_service
from ostler.agent.dra_service import only_came
from sandbox.apiserver.server import ApiServer
from tests.making.both_doors import Both, begun
from tests.making.watched_node import TEAM, WatchedWorld
from tests.waiting import eventually

DEVICE = "gpu-0000"
POD = NodePod("1", "team", "a", claims=("c",))
OTHER = NodePod("2", "team", "b")
STATIC = "0123456789abcdef0123456789abcdef"


class News:
    """What the agent has been told of pods, and what it asked because of that."""

    def __init__(self, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.count = 0
        self.pods: set[str] = set()
        """Names of the pods that had not ended at the last news."""
        self._both = both
        monkeypatch.setattr(both.books, "pods_changed", lambda: self.asked.append("read"))
        # The agent subscribed before and has concluded when this is told.
        both.books.bus.subscribe(PodsChanged, self._told)

    def _told(self, _: PodsChanged) -> None:
        self.count += 1
        self.pods = {pod.name for pod in self._both.second._parts.node_claims.pods}


async def followed(both: Both, monkeypatch: pytest.MonkeyPatch, *names: str) -> News:
    """News from the moment at which the ledger has the device and these pods are known."""
    await eventually(lambda: DEVICE in both.books.ledger.by_device(), "the ledger has the pod's device")
    pods = both.second._parts.node_claims
    await eventually(lambda: {pod.name for pod in pods.pods} == {*names}, "the pods are known")
    return News(both, monkeypatch)


@asynccontextmanager
async def two_pods(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[News]:
    """News from the moment at which the pod ``plugin`` has the device, and ``other`` has none."""
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        world.pod("plugin")
        world.pod("other")
        both.pod_gets(DEVICE)
        yield await followed(both, monkeypatch, "plugin", "other")


async def test_a_pod_that_comes_for_a_claim_asks_nothing_and_one_that_goes_does(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
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
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_pods(short_dir, server, world, monkeypatch) as news:
        world.remove("other")
        await eventually(lambda: news.pods == {"plugin"}, "the other pod is gone")
        assert news.asked == []
        world.remove("plugin")
        await eventually(lambda: not news.pods, "the pod with the device is gone")
        assert news.asked == ["read"]


async def test_more_pods_than_a_node_runs_are_not_compared_at_each_news(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dra_service, "_COMPARED", 0)
    async with two_pods(short_dir, server, world, monkeypatch) as news:
        world.remove("other")
        await eventually(lambda: news.pods == {"plugin"}, "the other pod is gone")
        assert news.asked


async def test_a_pod_without_devices_that_ends_and_then_goes_asks_nothing(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_pods(short_dir, server, world, monkeypatch) as news:
        world.status("other", phase="Succeeded")
        await eventually(lambda: news.pods == {"plugin"}, "the other pod has ended")
        count = news.count
        world.remove("other")
        await eventually(lambda: news.count > count, "the other pod is gone")
        assert news.asked == []


async def test_a_pod_that_is_being_deleted_may_be_gone_at_any_news(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two_pods(short_dir, server, world, monkeypatch) as news:
        world.store.delete("pods", "plugin", namespace=TEAM, options={"gracePeriodSeconds": 600})
        world.remove("other")
        await eventually(lambda: news.pods == {"plugin"}, "the other pod is gone")
        assert news.asked == ["read"]


async def test_a_static_pod_has_its_devices_by_the_uid_that_the_kubelet_gave_it(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        world.pod("plugin", mirror=STATIC)
        world.pod("other")
        await eventually(lambda: both.second._parts.node_claims.name_of(STATIC) != "", "the static pod is known")
        both.kubelet.uids[DEVICE] = STATIC
        both.pod_gets(DEVICE)
        news = await followed(both, monkeypatch, "plugin", "other")
        world.remove("other")
        await eventually(lambda: news.pods == {"plugin"}, "the other pod is gone")
        assert news.asked == []


async def test_a_static_pod_that_comes_asks_whether_it_has_what_it_had_before(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        world.pod("plugin")
        both.pod_gets(DEVICE)
        news = await followed(both, monkeypatch, "plugin")
        world.pod("static", mirror=STATIC)
        await eventually(lambda: news.pods == {"plugin", "static"}, "the static pod is known")
        assert news.asked == ["read"]


async def test_a_claim_for_a_device_that_a_pod_has_asks_whether_that_pod_lives(
    short_dir: Path, server: ApiServer, world: WatchedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begun(short_dir, server, 2, Doors.BOTH) as both:
        both.pod_gets(DEVICE)
        await eventually(lambda: DEVICE in both.books.ledger.by_device(), "the ledger has the pod's device")
        asked: list[str] = []
        monkeypatch.setattr(both.books, "pods_changed", lambda: asked.append("read"))
        world.claim("c", DEVICE, users=(world.pod("p", "c"),))
        await eventually(lambda: asked != [], "the claim is refused")


async def test_a_claim_is_read_once_for_its_start_where_no_device_is_for_both_doors(
    short_dir: Path, server: ApiServer, world: WatchedWorld
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
        # A static pod may be back with what it had before.
        ((), (POD, NodePod("3", "team", "s", static=STATIC)), False),
        ((NodePod("3", "team", "s", static=STATIC),), (NodePod("3", "team", "s", static=STATIC), POD), True),
    ],
)
def test_only_pods_that_come_have_nothing_that_the_kubelet_allocated_before(
    before: tuple[NodePod, ...], now: tuple[NodePod, ...], came: bool
) -> None:
    assert only_came({pod.uid: pod for pod in before}, {pod.uid: pod for pod in now}) is came
