"""Pods that are evicted by the agent: only as long as their device has its taint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from driver.node_watch.evictions import EvictedPod, PodEvictions
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from sandbox.apiserver.server import ApiServer
from tests.making.events import RecordedEvents
from tests.making.resource_api import client_of
from tests.making.watched_node import TEAM, WatchedWorld
from tests.waiting import background, eventually

T = TypeVar("T")


async def test_a_pod_whose_taint_ends_while_others_are_evicted_stays(server: ApiServer, world: WatchedWorld) -> None:
    uids = {name: world.made({"name": name}, {"nodeName": "node-1", "containers": []}) for name in ("a", "b", "c")}
    wanted = {uid: EvictedPod(uid, TEAM, name, "gpu-0") for name, uid in uids.items()}

    class Slow(AsyncResourceApi):
        """While the first eviction is answered, the second pod's device becomes well again."""

        async def call(self, ask: Callable[[ResourceApi], T], *, patience: float | None = None) -> T:
            wanted.pop(uids["b"], None)
            evictions.apply(dict(wanted))
            return await super().call(ask, patience=patience)

    api, events = Slow(lambda: ResourceApi(client_of(server.url, connections=2))), RecordedEvents()
    evictions = PodEvictions(api, events=events, patience=0.0)
    evictions.apply(dict(wanted))
    async with background(evictions.run()):
        await eventually(lambda: events.reasons == ["PodEvicted"] * 2)
    api.close()
    assert [message.split()[1] for message in events.of("PodEvicted")] == [f"{TEAM}/a", f"{TEAM}/c"]
