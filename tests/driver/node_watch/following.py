"""Follows pods and claims of a node as the agent does, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from driver.node_watch.node_claims import NodeClaims
from driver.node_watch.node_pods import PodsChanged
from driver.node_watch.reading import ReadPace
from driver.node_watch.reservations import ReservationsChanged
from driver.resource_api.async_client import AsyncResourceApi
from kube.bodies import JsonObject
from node.clocks import SystemClocks
from node.events import EventBus
from tests.making.watched_node import DRIVER, NODE, SOON
from tests.waiting import background

QUICK = ReadPace(per_second=1000.0, burst=1000, absent=SOON, later=SOON, pod=SOON)


@asynccontextmanager
async def following(
    api: AsyncResourceApi,
    *,
    changed: Callable[[], None] = lambda: None,
    check: Callable[[JsonObject], None] | None = None,
    list_every: float = 0.01,
) -> AsyncIterator[NodeClaims]:
    bus = EventBus()
    holders = NodeClaims(
        api,
        DRIVER,
        NODE,
        clocks=SystemClocks(clock=lambda: 1000.0, random=lambda: 0.5),
        check=check,
        bus=bus,
        policy=SOON,
        pace=QUICK,
        list_every=list_every,
    )
    bus.subscribe(PodsChanged, lambda _: changed())
    bus.subscribe(ReservationsChanged, lambda _: changed())
    async with background(holders.run()):
        yield holders
