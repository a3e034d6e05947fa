"""Claims of this node's pods, read one by one while pods come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from driver.claims.model import ClaimReference, RecordState
from driver.claims.record import ClaimRecord, RecordedDevice
from driver.node_watch.pods import NodePod
from driver.node_watch.reading import Key, ReadPace
from driver.node_watch.reservations import Reservations, ReservationsChanged
from driver.resource_api.async_client import AsyncResourceApi
from driver.resource_api.client import ResourceApi
from kube.backoff import BackoffPolicy
from node.clocks import SystemClocks
from node.events import EventBus
from node.inventory.model import Capacity
from node.rules import Rule
from node.sharing import MILLION, Sharing
from node.values import replace
from sandbox.apiserver.server import ApiServer
from tests.making.devices import gpu
from tests.making.resource_api import async_api_of, client_of
from tests.making.watched_node import DRIVER, NODE, TEAM, WatchedWorld
from tests.waiting import background, eventually

T = TypeVar("T")
GIB = 2**30


class _Slow(AsyncResourceApi):
    """Answers are on their way until ``gate`` is open."""

    def __init__(self, server: ApiServer) -> None:
        super().__init__(lambda: ResourceApi(client_of(server.url, connections=2)))
        self.gate = asyncio.Event()

    async def call(self, ask: Callable[[ResourceApi], T], *, patience: float | None = None) -> T:
        answer = await super().call(ask, patience=patience)
        await self.gate.wait()
        return answer


async def test_a_claim_that_another_pod_names_while_it_is_read_is_read_once_more(
    server: ApiServer, world: WatchedWorld
) -> None:
    world.claim("c", "gpu-0", users=("uid-1",))
    api, seldom = _Slow(server), BackoffPolicy(first=3600.0, most=3600.0)
    found = Reservations(
        api,
        DRIVER,
        NODE,
        clocks=SystemClocks(random=lambda: 0.0),
        bus=EventBus(),
        pace=ReadPace(later=seldom, pod=seldom),
    )
    one, two = (NodePod(f"uid-{n}", TEAM, f"p{n}", claims=("c",)) for n in (1, 2))
    async with background(found.run()):
        found.apply((one,))
        await eventually(lambda: world.asked("get", "resourceclaims") == 1)
        world.free("c")
        world.allocate("c", "gpu-1", users=("uid-1", "uid-2"))
        found.apply((one, two))
        api.gate.set()
        await eventually(lambda: [hold.device for holds in found.holds().values() for hold in holds] == ["gpu-1"])
        assert world.asked("get", "resourceclaims") == 2
        api.close()


async def test_a_pod_that_comes_to_name_a_reserved_claim_is_told_at_once(
    server: ApiServer, world: WatchedWorld
) -> None:
    world.claim("c", "gpu-0", users=("uid-1",))
    told: list[list[str]] = []
    api = async_api_of(server)
    bus = EventBus()
    bus.subscribe(ReservationsChanged, lambda _: told.append(pods()))
    found = Reservations(api, DRIVER, NODE, clocks=SystemClocks(random=lambda: 0.0), bus=bus)

    def pods() -> list[str]:
        return [pod for holds in found.holds().values() for hold in holds for pod in hold.pods]

    one, two = (NodePod(f"uid-{n}", TEAM, f"p{n}", claims=("c",)) for n in (1, 2))
    async with background(found.run()):
        found.apply((one,))
        await eventually(lambda: told == [["uid-1"]])
        found.apply((one, two))
        assert told[-1] == ["uid-1", "uid-2"]
        found.apply((two,))
        assert told[-1] == ["uid-2"]
        found.apply(())
        assert told[-1] == []
        api.close()


async def test_a_reserved_share_without_amounts_counts_as_the_default_share(
    server: ApiServer, world: WatchedWorld
) -> None:
    world.claim("c", "gpu-0", users=("uid-1",), shareID="00000000-0000-4000-8000-000000000001")
    api, bus = async_api_of(server), EventBus()
    found = Reservations(api, DRIVER, NODE, clocks=SystemClocks(random=lambda: 0.0), bus=bus)
    device = replace(gpu(0), name="gpu-0", capacity=(Capacity("memory", 80 * GIB),))
    quarter = (("compute", MILLION // 4), ("memory", 20 * GIB))
    async with background(found.run()):
        found.apply((NodePod("uid-1", TEAM, "p1", claims=("c",)),))
        await eventually(lambda: bool(found.holds()))
        assert found.place((device,), (Rule("nvidia.com/gpu", sharing=Sharing(replicas=4)),))
        [(hold,)] = found.holds().values()
        assert hold.amounts == quarter
        assert found.place((device,), (Rule("nvidia.com/gpu", sharing=Sharing(replicas=8)),)), "the rule is another"
        [(hold,)] = found.holds().values()
        assert hold.amounts == (("compute", MILLION // 100 * 12), ("memory", 10 * GIB))
        api.close()


def prepared(pool: str = NODE) -> ClaimRecord:
    """The record of claim ``c``, prepared for the pod ``uid-1``."""
    devices = (RecordedDevice("gpu", pool, "gpu-0"),)
    return ClaimRecord(ClaimReference(TEAM, "c", "claim-1"), RecordState.COMPLETED, devices=devices, users=("uid-1",))


async def test_a_claim_that_is_prepared_for_its_pod_is_not_read(server: ApiServer, world: WatchedWorld) -> None:
    world.claim("c", "gpu-1", users=("uid-2",))
    asked: list[tuple[Key, frozenset[str]]] = []

    def find(key: Key, pods: frozenset[str]) -> ClaimRecord | None:
        asked.append((key, pods))
        return prepared() if "uid-1" in pods else None

    api, bus = async_api_of(server), EventBus()
    found = Reservations(api, DRIVER, NODE, clocks=SystemClocks(random=lambda: 0.0), bus=bus, prepared=find)
    async with background(found.run()):
        found.apply((NodePod("uid-1", TEAM, "p1", claims=("c",)),))
        await eventually(lambda: bool(found.holds()), "the record says what it has")
        [(uid, (hold,))] = found.holds().items()
        assert (uid, hold.device, hold.owner, hold.pods) == ("claim-1", "gpu-0", "claim-1", ("uid-1",))
        assert asked == [((TEAM, "c"), frozenset({"uid-1"}))]
        assert world.asked("get", "resourceclaims") == 0
        assert found.unread == ()
        # Another claim of the same name, for another pod.
        found.apply((NodePod("uid-2", TEAM, "p2", claims=("c",)),))
        await eventually(lambda: [each.device for holds in found.holds().values() for each in holds] == ["gpu-1"])
        assert world.asked("get", "resourceclaims") == 1
        api.close()


async def test_devices_of_another_pool_in_a_record_reserve_nothing(server: ApiServer, world: WatchedWorld) -> None:
    api, bus = async_api_of(server), EventBus()
    clocks = SystemClocks(random=lambda: 0.0)
    found = Reservations(api, DRIVER, NODE, clocks=clocks, bus=bus, prepared=lambda *_: prepared("elsewhere"))
    async with background(found.run()):
        found.apply((NodePod("uid-1", TEAM, "p1", claims=("c",)),))
        await eventually(lambda: found.unread == ())
        assert found.holds() == {}
        api.close()


async def test_claims_of_pods_that_come_wait_unless_they_matter_at_once(server: ApiServer, world: WatchedWorld) -> None:
    world.claim("c", "gpu-0", users=("uid-1",))
    api, bus = async_api_of(server), EventBus()
    clock = Hand()
    found = Reservations(api, DRIVER, NODE, clocks=SystemClocks(monotonic=clock, random=lambda: 0.0), bus=bus)
    async with background(found.run()):
        found.read_at_once(at_once=False)
        found.apply((NodePod("uid-1", TEAM, "p1", claims=("c",)),))
        await asyncio.sleep(0)
        assert world.asked("get", "resourceclaims") == 0
        found.read_at_once(at_once=True)
        await eventually(lambda: bool(found.holds()), "it is read as soon as it matters")
        api.close()


class Hand:
    """A clock that stands still."""

    def __call__(self) -> float:
        return 100.0
