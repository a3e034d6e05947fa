"""Pods whose author names thousands of claims that do not exist: they cost little, and keep nobody waiting.

Hours pass here in virtual time; one test does the same over real HTTP.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from driver.node_watch.node_claims import NodeClaims
from driver.node_watch.node_pods import NodePods, PodsChanged
from driver.node_watch.pods import MOST_CLAIMS, NodePod, pod_of
from driver.node_watch.reservations import SHOWN, Reservations, ReservationsChanged
from driver.resource_api.async_client import AsyncResourceApi
from kube.bodies import Json, JsonObject, object_at, text_at
from kube.errors import Forbidden, ServerFault
from node.clocks import SystemClocks
from node.events import EventBus
from sandbox.apiserver.server import ApiServer
from tests.making.virtual_time import beside, now
from tests.making.watched_node import DRIVER, NODE, TEAM, WatchedWorld
from tests.waiting import background, eventually

T = TypeVar("T")
LATENCY = 0.005
ATTACKERS = 5
NAMES = 5000


def attack_body(number: int, names: int = NAMES) -> JsonObject:
    claims: list[Json] = [{"name": f"c{n}", "resourceClaimName": f"missing-{number}-{n}"} for n in range(names)]
    metadata: JsonObject = {"namespace": TEAM, "name": f"attack-{number}", "uid": f"uid-attack-{number}"}
    spec: JsonObject = {"nodeName": NODE, "resourceClaims": claims}
    # The kubelet has seen them: of others no names are kept.
    return {"metadata": metadata, "spec": spec, "status": {"startTime": "2026-01-01T00:00:00Z"}}


ATTACK = tuple(pod_of(attack_body(number)) for number in range(ATTACKERS))


def honest(name: str = "honest", *, namespace: str = TEAM, claims: int = 1) -> NodePod:
    return NodePod(f"uid-{name}", namespace, name, claims=tuple(f"{name}-gpu-{n}" for n in range(claims)))


class _Claims(AsyncResourceApi):
    """An API server that knows the claims which honest pods name; everything else does not exist."""

    def __init__(self) -> None:
        super().__init__(lambda: self)  # type: ignore[arg-type, return-value]
        self.asked: list[tuple[float, str]] = []
        self.refusals: dict[str, list[Exception]] = {}
        self.drivers: dict[str, str] = {}

    async def call(self, ask: Callable[[Any], T], *, patience: float | None = None) -> T:
        await asyncio.sleep(LATENCY)
        return ask(self)

    def claim(self, namespace: str, name: str, *, attempts: int) -> JsonObject | None:  # type: ignore[override]
        assert attempts == 1
        self.asked.append((now(), name))
        if refusals := self.refusals.get(name):
            raise refusals.pop(0)
        if name.startswith("missing"):
            return None
        pod = name.rpartition("-gpu-")[0]
        result: JsonObject = {"request": "r", "pool": NODE, "device": name, "driver": self.drivers.get(name, DRIVER)}
        user: JsonObject = {"resource": "pods", "name": pod, "uid": f"uid-{pod}"}
        status: JsonObject = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
        return {"metadata": {"uid": f"claim-{name}"}, "status": status}

    def count(self, begin: float, end: float) -> int:
        return sum(begin <= at < end for at, _ in self.asked)


class Story:
    """Reservations beside an attack, in virtual time."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.api = _Claims()
        self.known: dict[str, float] = {}
        bus = EventBus()
        bus.subscribe(ReservationsChanged, self._changed)
        self.reservations = Reservations(
            self.api,
            DRIVER,
            NODE,
            clocks=SystemClocks(loop.time, loop.time, Random(7).random),
            bus=bus,
        )

    async def run(self) -> None:
        await self.reservations.run()

    def _changed(self, _: ReservationsChanged) -> None:
        for holds in self.reservations.holds().values():
            for hold in holds:
                self.known.setdefault(hold.device, now())


def played(story: Callable[[Story], Any]) -> Story:
    return beside(Story, Story.run, story)


@pytest.mark.parametrize("namespace", [TEAM, "other"])
def test_an_honest_reservation_is_known_at_once_in_the_middle_of_an_attack(namespace: str) -> None:
    async def story(each: Story) -> None:
        each.reservations.apply(ATTACK)
        await asyncio.sleep(3.0)
        each.reservations.apply([*ATTACK, honest(namespace=namespace, claims=4)])
        await asyncio.sleep(3.0)

    known = played(story).known
    assert len(known) == 4
    assert max(known.values()) < 3.5


def test_honest_pods_that_come_with_the_attack_are_known_within_two_seconds() -> None:
    pods = [honest(f"h{n}", namespace=f"ns-{n % 3}", claims=8) for n in range(20)]

    async def story(each: Story) -> None:
        each.reservations.apply([*ATTACK, *pods])
        await asyncio.sleep(10.0)

    known = played(story).known
    assert len(known) == 160
    assert max(known.values()) < 2.0


def test_an_attack_costs_reads_more_and_more_seldom() -> None:
    async def story(each: Story) -> None:
        each.reservations.apply(ATTACK)
        await asyncio.sleep(7200.0)

    api = played(story).api
    assert api.count(0, 1) <= 4 * ATTACKERS
    assert api.count(0, 60) < 10 * ATTACKERS
    # 25,000 names: less than one read in four seconds.
    assert api.count(3600, 7200) / 3600 < 0.25


def test_a_hundred_attacking_pods_that_come_anew_all_the_time_cost_ten_reads_a_second() -> None:
    async def story(each: Story) -> None:
        pods: list[NodePod] = []
        for second in range(60):
            pods = [pod_of(attack_body(second * 100 + n, 10)) for n in range(100)]
            each.reservations.apply(pods)
            await asyncio.sleep(1.0)
        each.reservations.apply([*pods, honest(namespace="other")])
        await asyncio.sleep(1.0)

    told = played(story)
    assert told.api.count(0, 60) <= 50 + 60 * 10 + 4
    assert told.known["honest-gpu-0"] < 60.5


def test_a_claim_that_may_not_be_read_yet_is_read_a_moment_later_in_the_middle_of_an_attack() -> None:
    async def story(each: Story) -> None:
        refusal = Forbidden("GET", "/", 403, "Forbidden", "no relationship found between node and this object")
        each.api.refusals["honest-gpu-0"] = [refusal, refusal]
        each.reservations.apply(ATTACK)
        await asyncio.sleep(10.0)
        each.reservations.apply([*ATTACK, honest()])
        await asyncio.sleep(0.01)
        assert each.reservations.unread[-1] == f"{TEAM}/honest-gpu-0"
        await asyncio.sleep(5.0)

    assert played(story).known["honest-gpu-0"] < 12.0


def test_claims_of_other_drivers_are_read_once() -> None:
    async def story(each: Story) -> None:
        each.api.drivers["honest-gpu-0"] = "other.example"
        each.reservations.apply([honest()])
        await asyncio.sleep(3600.0)

    told = played(story)
    assert told.known == {}
    assert len(told.api.asked) == 1


def test_pods_that_are_gone_are_not_read_for() -> None:
    async def story(each: Story) -> None:
        each.reservations.apply(ATTACK)
        await asyncio.sleep(1.0)
        each.reservations.apply(())
        asked = len(each.api.asked)
        await asyncio.sleep(600.0)
        assert len(each.api.asked) == asked
        assert each.reservations.problems == each.reservations.unread == ()

    played(story)


def test_what_cannot_be_read_is_told_in_a_few_lines() -> None:
    async def story(each: Story) -> None:
        pods = [honest(f"h{n}") for n in range(40)]
        for pod in pods:
            each.api.refusals[pod.claims[0]] = [
                ServerFault("GET", "/", 503, "", "etcd " + "x" * 5000) for _ in range(50)
            ]
        each.reservations.apply([*ATTACK, *pods])
        await asyncio.sleep(30.0)
        problems = each.reservations.problems
        assert len(problems) == 2 * (SHOWN + 1)
        assert max(len(line) for line in problems) < 600
        assert problems[0] == (
            f"pod {TEAM}/attack-0 names {NAMES} claims, and only the first {MOST_CLAIMS} are read: the devices of the "
            "others are not reserved before the kubelet asks for them; name fewer claims"
        )
        assert problems[SHOWN] == f"{ATTACKERS - SHOWN} more pods name more claims than are read"
        assert problems[SHOWN + 1].startswith(f"claim {TEAM}/h")
        assert problems[-1] == f"{40 - SHOWN} more claims cannot be read"

    played(story)


def test_applying_many_pods_costs_the_loop_little() -> None:
    async def story(each: Story) -> None:
        pods = [pod_of(attack_body(n, MOST_CLAIMS)) for n in range(200)]
        worst = 0.0
        for number in range(60):
            began = time.thread_time()
            each.reservations.apply(pods[number:])
            each.reservations.holds()
            assert isinstance(each.reservations.problems, tuple)
            worst = max(worst, time.thread_time() - began)
            await asyncio.sleep(0.1)
        assert worst < 0.05

    played(story)


def test_pods_that_only_their_author_bound_here_are_no_news_and_others_are_told_together() -> None:
    async def story(_: Story) -> None:
        news: list[int] = []
        bus = EventBus()
        pods = NodePods(_Claims(), NODE, clocks=SystemClocks(random=Random(7).random), bus=bus)
        bus.subscribe(PodsChanged, lambda _: news.append(len(pods.pods)))
        pods.replaced([])
        await asyncio.sleep(1.0)
        for number in range(12_000):
            pods.applied(pod_of({"metadata": {"namespace": TEAM, "name": f"p{number}", "uid": f"uid-{number}"}}))
        await asyncio.sleep(1.0)
        assert news == [0]
        for number in range(100):
            pods.applied(honest(f"honest-{number}"))
        assert news == [0]
        await asyncio.sleep(0)
        assert news == [0, 12_100]

    played(story)


async def test_over_http_the_attack_gets_few_answers_and_the_honest_pod_its_reservation(
    server: ApiServer, world: WatchedWorld, api: AsyncResourceApi
) -> None:
    for number in range(ATTACKERS):
        body = attack_body(number)
        world.made({"name": text_at(body, "metadata", "name")}, object_at(body, "spec"))
    holders = NodeClaims(api, DRIVER, NODE, clocks=SystemClocks(random=Random(7).random), bus=EventBus())
    async with background(holders.run()):
        await eventually(lambda: world.asked("get", "resourceclaims") >= ATTACKERS)
        began = time.monotonic()
        uid = world.pod("honest", "gpu")
        world.claim("gpu", "gpu-0", users=(uid,))
        await eventually(holders.reservations)
        seconds = time.monotonic() - began
    assert world.asked("get", "resourceclaims") <= 2 * ATTACKERS * (2 + seconds) + 2
