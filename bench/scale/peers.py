"""One node with the agent, and one with a driver on Kubernetes' helper library: their requests for the same changes.

Both are whole processes with the rights of the chart. The agent is ``ostler run`` with the DRA door alone; the other is
``bench/cluster/go``, which asks the API server for nothing that the library does not ask for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.cluster.go_driver import go_driver
from bench.dra.drivers import AgentDriver, DriverProcess
from bench.dra.kubelet import DraKubelet
from bench.dra.server import NODE, delete_slices
from bench.hardware import Hardware
from bench.kubelet import BareKubelet
from bench.process import Measured
from bench.scale.audit import AuditedRequest, kinds, of_user
from bench.scale.pod_claims import PODS, BoundClaim, make_claims
from bench.scale.pools import PoolWatch, WatchedPool
from bench.scale.server import Account, ScaleServer
from node.kubelet.dra_state import FILE_NAME, ClaimInfo, DraState, encode
from tests.cluster.dra.claims import DRIVER
from tests.cluster.rig.api import Object

PEER, PEER_NODE = "helper.bench.ostler.dev", "node-2"
WITHIN = 60.0
QUIET = 2.0
"""Seconds after a change in which its last requests come: the longest wait in between is the publisher's pause."""
PUBLISH, TAINT, CHANGE, PREPARE, RESTART, WIPE = "publish", "taint", "change", "prepare", "restart", "wipe"
CHANGES = (PUBLISH, TAINT, CHANGE, PREPARE, RESTART, WIPE)
RULES: tuple[Object, ...] = ({"name": "ostler.dev/gpu", "door": "dra", "devices": {"kind": "gpu"}},)


class HelperDriver(DriverProcess):
    """The driver on the helper library; ``publish`` tells it what to publish."""

    def __init__(self, kubelet: DraKubelet, kubeconfig: Path, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self._pipe = root / "words"
        if not self._pipe.exists():
            os.mkfifo(self._pipe)
        # Open for both ends, so that neither side waits for the other.
        self._words = os.open(self._pipe, os.O_RDWR)
        flags = {
            "name": PEER,
            "node": PEER_NODE,
            "kubeconfig": kubeconfig,
            "devices": 8,
            "words": self._pipe,
            "plugins": kubelet.root / "plugins",
            "registry": kubelet.registry,
            "cdi": root / "cdi",
            "records": root / "records",
        }
        arguments = [f"-{name}={value}" for name, value in flags.items()]
        super().__init__(kubelet, Measured([str(go_driver()), *arguments], {}, root / "helper.log"))
        self._registry = kubelet.registry

    async def __aexit__(self, *error: object) -> None:
        await super().__aexit__(*error)
        os.close(self._words)
        # It is ended by a signal, which it does not expect.
        for socket in self._registry.glob(f"{PEER}*"):
            socket.unlink()

    def publish(self, word: str) -> None:
        """Publish ``plain``, ``changed`` or ``tainted`` devices."""
        os.write(self._words, f"{word}\n".encode())


class PeerPair:
    """Runs both through the changes; ``counts`` has the requests of each, by change and kind of request."""

    def __init__(self, server: ScaleServer, pools: PoolWatch, accounts: tuple[Account, Account], root: Path) -> None:
        root.mkdir()
        self._server = server
        self._pools = pools
        self._agent_account, self._helper_account = accounts
        self._root = root
        self._hardware = Hardware("h100-sxm-8", root / "hardware")
        self.counts: dict[str, dict[str, dict[str, int]]] = {}

    @asynccontextmanager
    async def running(self, say: Callable[[str], None]) -> AsyncIterator[None]:
        """Make all changes, one after the other; both drivers run until the end."""
        self._server.make_nodes((NODE, PEER_NODE))
        async with (
            DraKubelet(self._root / "kubelet") as kubelet,
            DraKubelet(self._root / "other") as other,
            BareKubelet(self._root / "kubelet/device-plugins") as plugins,
        ):
            self._take()
            async with self._agent(kubelet, plugins) as agent, self._helper(other) as peer:
                say("one node: publish")
                peer.publish("plain")
                await self._counted(PUBLISH, lambda pool: bool(pool.devices))
                say("one node: a device is lost and comes back")
                self._hardware.lose()
                peer.publish("tainted")
                await self._counted(TAINT, lambda pool: bool(pool.tainted))
                self._hardware.heal()
                peer.publish("changed")
                await self._counted(CHANGE, lambda pool: not pool.tainted)
                say("one node: a claim")
                await self._prepare(kubelet, agent, DRIVER, NODE)
                await self._prepare(other, peer, PEER, PEER_NODE)
                await self._counted(PREPARE, lambda _: True)
            say("one node: restart")
            await asyncio.sleep(QUIET)
            self._take()
            async with self._agent(kubelet, plugins), self._helper(other) as peer:
                peer.publish("changed")
                await self._counted(RESTART, lambda _: True)
                say("one node: the kubelet deletes the slices, which the helper library notices after 30 s")
                began = time.time()
                for driver, node in ((DRIVER, NODE), (PEER, PEER_NODE)):
                    await asyncio.to_thread(delete_slices, self._server.api, driver, node)
                await self._counted(WIPE, lambda pool: bool(pool.devices), after=began)
                yield

    def _agent(self, kubelet: DraKubelet, plugins: BareKubelet) -> AgentDriver:
        return AgentDriver(
            kubelet,
            plugins,
            self._agent_account.kubeconfig,
            self._root / "agent",
            resources=RULES,
            flags=self._hardware.flags,
            environment=self._hardware.environment,
        )

    def _helper(self, kubelet: DraKubelet) -> HelperDriver:
        return HelperDriver(kubelet, self._helper_account.kubeconfig, self._root / "helper")

    async def _counted(self, change: str, condition: Callable[[WatchedPool], bool], after: float = 0.0) -> None:
        """Wait until both pools meet the condition and nothing follows, and count what that took."""

        def met() -> bool:
            both = (self._pools.pool(DRIVER, NODE), self._pools.pool(PEER, PEER_NODE))
            return all(pool is not None and condition(pool) and pool.seen >= after for pool in both)

        await asyncio.to_thread(self._pools.wait, f"both drivers: {change}", met, WITHIN)
        await asyncio.sleep(QUIET)
        found = self._take()
        self.counts[change] = {
            name: dict(kinds(of_user(found, account.user)))
            for name, account in (("ostler", self._agent_account), ("helper", self._helper_account))
        }

    def _take(self) -> list[AuditedRequest]:
        return self._server.audit.take()

    async def _prepare(self, kubelet: DraKubelet, driver: DriverProcess, name: str, node: str) -> None:
        """A pod of the node with a claim, prepared as its kubelet does, which has it on record before."""
        pool = self._pools.pool(name, node)
        assert pool is not None
        claim, *_ = await asyncio.to_thread(
            make_claims, self._server, [BoundClaim(f"claim-of-{node}", node, pool.devices[1], name)]
        )
        pod = await asyncio.to_thread(self._server.api.get, f"{PODS}/{claim.name}")
        known = ClaimInfo(claim.uid, claim.name, claim.namespace, (pod["metadata"]["uid"],))
        (kubelet.root / FILE_NAME).write_bytes(encode(DraState((known,))))
        await driver.driver.prepare(claim)
