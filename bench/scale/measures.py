"""What is measured, step by step: one agent beside the helper library, then all agents of a cluster at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.dra.kubelet import AllocatedClaim
from bench.dra.server import delete_slices
from bench.figures import FLOOR
from bench.scale.audit import WATCH, AuditedRequest, busiest_second, kinds, of_user, renewed_each_minute, spread
from bench.scale.crowd import REPORTS, AgentCrowd, crowd
from bench.scale.figures import PREFIX
from bench.scale.peers import PeerPair
from bench.scale.pod_claims import BoundClaim, make_claims
from bench.scale.pools import PoolWatch, WatchedPool
from bench.scale.server import CLIENTS, Account, ScaleServer
from driver.node_watch.slice_features import LOOK_EVERY
from tests.cluster.dra.claims import DRIVER

PER_NODE = 5
"""Claims of a node, of its eight devices."""
WITHIN, WITHIN_EACH = 180.0, 0.6
"""Seconds that any step may take, and how much more for each agent, since all share two processors with the server."""
QUIET = 3.0
"""Seconds in which agents that have done everything have said so."""
LOST = 0
"""Index of the device that every node loses while the server is away."""


@dataclass(frozen=True, slots=True)
class ScaleEffort:
    """How much is measured. Seconds: ``idle`` agents are watched, the server is ``away`` besides its own start."""

    nodes: int
    processes: int
    idle: float
    away: float

    @property
    def within(self) -> float:
        """Seconds that any step may take."""
        return WITHIN + WITHIN_EACH * self.nodes


@dataclass(slots=True)
class ScaleReport:
    """``figures`` by name, and for each step what was asked, by kind, for people."""

    figures: dict[str, float] = field(default_factory=dict)
    asked: dict[str, Counter[str]] = field(default_factory=dict)


class ScaleRun:
    """One run below ``root``; ``say`` is told what is being measured."""

    def __init__(
        self, server: ScaleServer, pools: PoolWatch, root: Path, effort: ScaleEffort, say: Callable[[str], None]
    ) -> None:
        self._server = server
        self._pools = pools
        self._root = root
        self._effort = effort
        self._say = say
        self._crowd_account, self._agent_account, self._helper_account = (
            server.account(name) for name in ("ostler", "one", "helper")
        )
        self._names = [f"crowd-{number:05}" for number in range(effort.nodes)]
        self.report = ScaleReport()

    async def measure(self) -> None:
        """Everything, into ``report``."""
        self._server.allow("ostler", "one", "helper")
        pair = PeerPair(self._server, self._pools, (self._agent_account, self._helper_account), self._root / "pair")
        async with pair.running(self._say):
            for change, by_driver in pair.counts.items():
                for prefix, name in (("", "ostler"), (FLOOR, "helper")):
                    asked = by_driver[name]
                    self.report.figures[f"{prefix}{PREFIX}{change}_requests"] = sum(asked.values())
                    self.report.asked[f"{change}, {name}"] = Counter(asked)
            self._put(nodes=self._effort.nodes)
            folder = self._root / "crowd"
            account = self._crowd_account
            async with crowd(self._names, self._effort.processes, account.kubeconfig, folder) as agents:
                await self._start(agents)
                await self._idle(agents)
                await self._away(agents)
                await self._wipe(agents)
                await self._claims(agents)

    async def _start(self, agents: AgentCrowd) -> None:
        self._say(f"{self._effort.nodes} agents start")
        await asyncio.to_thread(self._server.make_nodes, self._names)
        rss = self._server.rss_bytes
        self._take()
        await agents.start()
        await self._until("all agents have published", lambda pool: bool(pool.devices))
        await self._calm(agents)
        await asyncio.sleep(QUIET)
        asked = self._asked("start", self._crowd_account)
        self._watches = [each for each in asked if each.verb == WATCH]
        self._put(
            start_requests_per_node=self._each(len(asked)),
            watches_per_node=self._each(len(self._watches)),
            apiserver_node_rss_bytes=self._each(self._server.rss_bytes - rss),
        )

    async def _idle(self, agents: AgentCrowd) -> None:
        """Nothing happens. Watches that end later than this lasts count by the time that they asked for."""
        self._say(f"idle for {self._effort.idle:g} s")
        before = self._server.traffic()
        began = time.time()
        await asyncio.sleep(self._effort.idle)
        minutes = (time.time() - began) / 60
        after = self._server.traffic()
        asked = [each for each in self._asked("idle", self._crowd_account) if each.verb != WATCH]
        later = renewed_each_minute(self._watches) + self._effort.nodes * 60 / LOOK_EVERY
        seldom = {"get /version"}
        others = [each for each in asked if each.kind not in seldom]
        self._put(
            idle_requests_per_node_minute=self._each(len(others) / minutes + later),
            idle_node_minute_bytes=self._each((after.bytes - before.bytes) / minutes),
            connections_per_node=self._each(after.connections),
        )
        await self._calm(agents)

    async def _away(self, agents: AgentCrowd) -> None:
        """The server ends, every node loses a device meanwhile, and the server comes back."""
        self._say("the API server is away")
        self._take()
        went = time.time()
        await asyncio.to_thread(self._server.go)
        with self._server.away() as attempts:
            await agents.lose(LOST)
            await asyncio.sleep(self._effort.away)
        listened = time.time() - went
        came = await asyncio.to_thread(self._server.come)
        self._say("the API server is back")
        right = await self._until("all slices show the lost device", lambda pool: bool(pool.tainted))
        await self._calm(agents)
        await asyncio.sleep(QUIET)
        found = self._server.audit.take()
        asked = of_user(found, self._crowd_account.user)
        self.report.asked["back"] = kinds(asked)
        for prefix, account in (("", self._agent_account), (FLOOR, self._helper_account)):
            own = of_user(found, account.user)
            self.report.figures[f"{prefix}{PREFIX}reconnect_requests"] = len(own)
            self.report.asked[f"reconnect, {'helper' if prefix else 'ostler'}"] = kinds(own)
        watches = [each.at for each in asked if each.verb == WATCH]
        self._put(
            away_attempts_per_node_minute=self._each(attempts.count) * 60 / listened,
            back_requests_per_node=self._each(len(asked)),
            back_spread_s=spread(watches),
            back_busiest_second_per_node=self._each(busiest_second(each.at for each in asked)),
            back_slices_right_s=right - came,
        )

    async def _wipe(self, agents: AgentCrowd) -> None:
        """The kubelets of all nodes start and delete the slices."""
        self._say("all slices are deleted")
        self._take()
        began = time.time()
        await asyncio.to_thread(self._delete_all)
        right = await self._until("all slices are back", lambda pool: bool(pool.devices) and pool.seen >= began)
        await self._calm(agents)
        await asyncio.sleep(QUIET)
        asked = self._asked("wiped", self._crowd_account)
        self._put(wiped_slices_right_s=right - began, wiped_requests_per_node=self._each(len(asked)))

    def _delete_all(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda name: delete_slices(self._server.api, DRIVER, name), self._names))

    async def _claims(self, agents: AgentCrowd) -> None:
        """Pods with claims start on all nodes."""
        wanted = [
            BoundClaim(f"{name}-{number}", name, self._pool(name).devices[1 + number], DRIVER)
            for number in range(PER_NODE)
            for name in self._names
        ]
        self._say(f"{len(wanted)} pods with claims")
        self._take()
        began = time.time()
        batches = [wanted[first : first + BATCH] for first in range(0, len(wanted), BATCH)]
        preparing: list[asyncio.Task[None]] = []
        for number, batch in enumerate(batches):
            if number:
                self._say(f"  {number * BATCH} pods with claims are made")
            made = await asyncio.to_thread(make_claims, self._server, batch)
            preparing.append(asyncio.create_task(agents.prepare(_by_node(batch, made))))
        await asyncio.gather(*preparing)
        prepared = time.time()
        await self._calm(agents)
        await asyncio.sleep(QUIET)
        asked = self._asked("claims", self._crowd_account)
        self._put(claims=len(wanted), claim_requests=len(asked) / len(wanted), claims_prepared_s=prepared - began)

    async def _until(self, what: str, condition: Callable[[WatchedPool], bool]) -> float:
        """The time at which the pools of all nodes meet a condition."""
        # The last is looked at first: one that is still waited for ends the look.
        waiting = list(self._names)
        report = time.monotonic() + REPORTS

        def met() -> bool:
            nonlocal report
            while waiting:
                if time.monotonic() > report:
                    report += REPORTS
                    self._say(f"  {what}: {self._count(condition)} of {len(self._names)}")
                pool = self._pools.pool(DRIVER, waiting[-1])
                if pool is None or not condition(pool):
                    return False
                waiting.pop()
            return True

        return await asyncio.to_thread(self._pools.wait, what, met, self._effort.within)

    def _count(self, condition: Callable[[WatchedPool], bool]) -> int:
        pools = (self._pools.pool(DRIVER, name) for name in self._names)
        return sum(pool is not None and condition(pool) for pool in pools)

    async def _calm(self, agents: AgentCrowd) -> None:
        await agents.calm(self._effort.within, self._say)

    def _pool(self, name: str) -> WatchedPool:
        found = self._pools.pool(DRIVER, name)
        assert found is not None
        return found

    def _take(self) -> list[AuditedRequest]:
        return self._server.audit.take()

    def _asked(self, step: str, account: Account) -> list[AuditedRequest]:
        asked = of_user(self._take(), account.user)
        self.report.asked[step] = kinds(asked)
        return asked

    def _each(self, total: float) -> float:
        return total / self._effort.nodes

    def _put(self, **figures: float) -> None:
        self.report.figures.update({f"{PREFIX}{name}": value for name, value in figures.items()})


BATCH = 200
"""Pods that are made before their claims are prepared."""


def _by_node(wanted: Sequence[BoundClaim], made: Sequence[AllocatedClaim]) -> dict[str, list[AllocatedClaim]]:
    found: dict[str, list[AllocatedClaim]] = {}
    for each, claim in zip(wanted, made, strict=True):
        found.setdefault(each.node, []).append(claim)
    return found
