"""Many agents in one process: of each everything that talks to the API server, wired as in ``ostler run``.

Every agent has its own parts of the DRA door, publisher, ledger, poster of events, clients and threads, with the
product's own settings; its devices are those of one recorded node. What an agent has of a node is left out: no sockets
for a kubelet, no scans, and a kubelet that reports no pods. So a claim is prepared when the benchmark says so.

Arguments: a JSON file (``Crowd``). Commands come as lines of JSON, and each is answered by one line.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driver.claims.model import ClaimError, ClaimReference
from driver.door.door import DraDoor
from driver.door.registration import DoorOptions
from node.clocks import SYSTEM
from node.events import EventType
from node.health.state import Health, HealthState, Recovery
from node.inventory.identity import IdentityStore
from node.inventory.model import Snapshot
from node.inventory.scan import Scanner
from node.ledger.events import HoldsChanged, OfferChanged
from node.ledger.holds import Id
from node.ledger.reader import Holding, Holdings, Reading
from node.values import replace
from ostler.agent.api_server import ApiEnvironment, RecentProofs
from ostler.agent.doors import kubelet_folders, open_books
from ostler.agent.dra_parts import DraParts
from ostler.agent.dra_service import DraService
from ostler.agent.edges import Edges
from ostler.agent.event_log import EventLog
from ostler.agent.loading import KubeletFirst
from ostler.agent.node_events import NodeEvents
from ostler.agent.publisher import Publisher
from ostler.agent.sources import compute_processes, make_sources
from ostler.config.load import load
from ostler.config.settings import Settings
from ostler.metrics.counters import HoldsMetrics
from plugin.door import PluginDoor
from plugin.observer import PluginObserver
from plugin.servicer import renderer
from sandbox import nodes

AT_ONCE = 32
"""Claims that one process prepares at the same time."""
STACK = 512 << 10
"""Bytes of a thread's stack: thousands of threads wait here."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """The agents of one process: their nodes, the recorded node whose devices each has, and where their files are."""

    names: tuple[str, ...]
    recorded: str
    kubeconfig: str
    root: str

    def write(self, path: Path) -> Path:
        """Write it for the process."""
        path.write_text(json.dumps(dataclasses.asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> Crowd:
        """What ``write`` wrote."""
        found: dict[str, Any] = json.loads(path.read_text())
        return cls(**{**found, "names": tuple(found["names"])})


class IdleKubelet:
    """A kubelet without pods (``node.ledger.reader.KubeletSource``)."""

    has_records = False

    async def read(self) -> Reading:
        return Reading(time.monotonic(), (), (), frozenset())

    async def holding(self, ids: Collection[Id], gone: object) -> Holding | None:
        return None

    async def recorded(self) -> Holdings | None:
        return ()


class _NoSockets(DraDoor):
    """A door without a kubelet."""

    async def run(self) -> None:
        await asyncio.Event().wait()


class _Parts(DraParts):
    """All parts, with that door."""

    def _door(self, is_alive: object) -> DraDoor:
        settings = self._settings
        return _NoSockets(
            DoorOptions(
                settings.dra.driver_name, settings.node_name, settings.dra.plugins_dir, settings.kubelet.registry_dir
            ),
            self.claims,
            events=self._events,
            observer=self.metrics.door,
            clocks=self._edges,
            bus=self._books.bus,
            reporter=self.status,
        )


class CrowdAgent:
    """One agent; ``run`` runs it until cancelled. For the event loop."""

    def __init__(self, settings: Settings, snapshot: Snapshot, edges: Edges) -> None:
        self._snapshot = snapshot
        self._events = EventLog(edges)
        books = open_books(
            settings,
            edges,
            compute_processes((), settings.roots.proc),
            self._events,
            HoldsMetrics(edges),
            reader=IdleKubelet(),
        )
        door = PluginDoor(kubelet_folders(settings), renderer, edges, events=self._events, observer=PluginObserver())
        self._books = books
        self._publisher = Publisher(settings, door, self._events)
        self._publisher.follow_ledger(books)
        proofs = RecentProofs()
        self._parts = _Parts(settings, edges, books, self._events, is_alive=lambda: True, proofs=proofs)
        self._service = DraService(settings.dra.driver_name, self._parts, books)
        self._publisher.open_dra(self._service)
        books.bus.subscribe(HoldsChanged, self._publisher.on_holds_changed)
        books.bus.subscribe(OfferChanged, self._publisher.on_holds_changed)
        books.begin(relieves=False)
        self._poster = NodeEvents(settings, self._events, ApiEnvironment(os.environ, random=edges.random), proofs)

    async def run(self) -> None:
        first = KubeletFirst()
        first.served()
        self._publisher.submit(self._snapshot)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._books.run())
            group.create_task(self._publisher.run())
            group.create_task(self._service.run(first))
            group.create_task(self._poster.run())

    def lose(self, device: int) -> None:
        """Show a device as lost from now on, and report that as the agent does."""
        devices = list(self._snapshot.devices)
        lost = Health(HealthState.UNHEALTHY, "the GPU is lost", time.time(), Recovery.RESET, "lost")
        devices[device] = replace(devices[device], health=lost)
        self._snapshot = replace(self._snapshot, generation=self._snapshot.generation + 1, devices=tuple(devices))
        self._publisher.submit(self._snapshot)
        self._events.emit(EventType.WARNING, "DeviceUnhealthy", f"{devices[device].name}: {lost.reason}")

    async def prepare(self, claim: ClaimReference) -> None:
        """Prepare a claim as the kubelet would have it; raises ``ClaimError``."""
        self._parts.status.prepared(claim, await self._parts.claims.prepare(claim))

    def problems(self) -> tuple[str, ...]:
        """Why this agent and the API server do not agree at the moment."""
        publication = self._parts.slices.publication()
        ordered = () if publication.in_order else (f"slices are not in order: {publication.error or 'being written'}",)
        watched = self._parts.slices.problem()
        return (*ordered, *filter(None, (watched,)), *self._service.problems(), *self._poster.reasons())


class _Process:
    """Answers the commands."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._agents: dict[str, CrowdAgent] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def start(self, _: Any) -> Any:
        """Start all agents, one after the other."""
        edges, root = Edges(), Path(self._crowd.root)
        snapshot = _scanned(self._crowd.recorded)
        for name in self._crowd.names:
            agent = self._agents[name] = CrowdAgent(_settings(self._crowd, name, root / name), snapshot, edges)
            task = asyncio.create_task(agent.run(), name=name)
            self._tasks.add(task)
            await asyncio.sleep(0)
        return {}

    async def lose(self, device: int) -> Any:
        """Every agent loses that device, in one step of the loop: its turns are few while all threads have work."""
        for agent in self._agents.values():
            agent.lose(device)
        return {}

    async def prepare(self, claims: list[list[str]]) -> Any:
        """Prepare these claims (node, namespace, name, uid), as kubelets do side by side."""
        failures = [found for found in await asyncio.gather(*(self._prepared(*claim) for claim in claims)) if found]
        return {"failures": failures[:3], "failed": len(failures)}

    async def _prepared(self, node: str, namespace: str, name: str, uid: str) -> str:
        async with self._slots:
            try:
                await self._agents[node].prepare(ClaimReference(namespace, name, uid))
            except ClaimError as error:
                return str(error)
        return ""

    async def look(self, _: Any) -> Any:
        """How the agents are."""
        problems = [f"{name}: {each}" for name, agent in self._agents.items() for each in agent.problems()]
        ended = [task for task in self._tasks if task.done()]
        problems += [f"{task.get_name()} ended: {task.exception()!r}" for task in ended]
        return {
            "problems": problems[:3],
            "troubled": len(problems),
            "threads": threading.active_count(),
            "rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        }


def _scanned(recorded: str) -> Snapshot:
    settings = load(None, {"--recorded": str(nodes.path(recorded)), "--node-name": "any"}, {}).settings
    found = Scanner(make_sources(settings), IdentityStore(None), SYSTEM).scan(Snapshot())
    return Snapshot(1, found.devices, found.sources, found.host, found.topology)


def _settings(crowd: Crowd, name: str, root: Path) -> Settings:
    """The settings of a DaemonSet for claims alone, with the folders of this agent."""
    # Short: the folders could have sockets in them.
    for folder in ("state", "cdi", "k/plugins", "k/registry", "k/devices"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    document = root / "config.yaml"
    rule = {"name": "ostler.dev/gpu", "door": "dra", "devices": {"kind": "gpu"}}
    document.write_text(json.dumps({"apiVersion": "ostler.dev/v1alpha1", "kind": "Config", "resources": [rule]}))
    flags = {
        "--node-name": name,
        "--kubeconfig": crowd.kubeconfig,
        "--kubelet-device-plugin-dir": str(root / "k/devices"),
        "--kubelet-registry-dir": str(root / "k/registry"),
        "--cdi-dir": str(root / "cdi"),
        "--cdi-spec-dirs": str(root / "cdi"),
        "--state-dir": str(root / "state"),
    }
    return load(document, flags, {}).settings


async def _serve(crowd: Crowd) -> None:
    process = _Process(crowd)
    lines = asyncio.StreamReader(limit=64 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked = json.loads(line)
        answer = await getattr(process, asked["do"])(asked.get("with"))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    # The agents hold nothing that outlives the process.
    os._exit(0)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    threading.stack_size(STACK)
    # The API server has a machine of its own in a cluster; here it shares the processors with all agents.
    os.nice(10)
    # Of hundreds of threads that want the interpreter each wakes up at this interval (5 ms by default) and waits on.
    sys.setswitchinterval(0.1)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(Crowd.read(Path(sys.argv[1]))))
