"""Our process: both doors' servicers and all that they stand on, wired as the agent does; what it meets is the model's.

Sockets and threads are left out: calls come from the model's kubelet, news of pods from the model's API server, and
what the DRA door shows reaches that by ``PublishedSlices``. Dead, the process leaves what is on the disk; another one
begins from that, from readings and from the API server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Any

from driver.devices.view import DoorView
from driver.door.claim_calls import ClaimCalls
from driver.door.registration import DraDoorObserver as SilentDriver
from driver.door.serving import DraPlugin
from node.clocks import SystemClocks
from node.door_policy import Taints, TaintSupport
from node.ledger.events import HoldsChanged, OfferChanged
from node.offer import Offer, OfferedDevice
from node.rules import Rule
from node.values import replace
from ostler.agent.doors import open_books
from ostler.agent.dra_parts import DraParts
from ostler.agent.dra_service import Decision, DraService
from ostler.agent.edges import Edges
from ostler.agent.publisher import Publisher
from ostler.config.settings import CdiSettings, InventorySettings, KubeletSettings, Settings
from ostler.metrics.counters import HoldsMetrics
from plugin.door import PluginDoor
from plugin.kubelet import KubeletFolders
from plugin.observer import PluginObserver
from plugin.servicer import renderer
from tests.making.events import RecordedEvents
from tests.making.virtual_time import VirtualLoop
from tests.model import hardware
from tests.model.api import ModelApi
from tests.model.cluster import ModelCluster
from tests.model.kubelet import ModelKubelet
from tests.model.lives import StatesWatch
from tests.model.objects import POOL, ModelPod
from tests.model.slices import PublishedSlices


class ModelAgent:
    """``shown``: called with what both doors show, whenever that is decided anew."""

    def __init__(
        self,
        loop: VirtualLoop,
        root: Path,
        kubelet: ModelKubelet,
        *,
        cluster: ModelCluster,
        processes: hardware.ModelProcesses,
        rules: tuple[Rule, ...],
        shown: Callable[[ModelAgent], None],
    ) -> None:
        self.loop = loop
        self.kubelet = kubelet
        self.alive = True
        self.events = RecordedEvents()
        self._shown = shown
        self._served: set[str] = set()
        folders = KubeletSettings(root / "kubelet/device-plugins", root / "kubelet/plugins_registry")
        self.settings = Settings(
            node_name=POOL,
            kubelet=folders,
            cdi=CdiSettings((root / "cdi",), root / "cdi"),
            inventory=InventorySettings(recorded=root / "node.yaml"),
            state_dir=root / "state",
            rules=rules,
        )
        self.door = PluginDoor(
            KubeletFolders(folders.device_plugin_dir, folders.registry_dir),
            renderer,
            edges := Edges(loop.unix, loop.time, _half),
            events=self.events,
            observer=PluginObserver(),
            admission=self,
        )
        self.publisher = Publisher(self.settings, self.door, self.events)
        counters = HoldsMetrics(edges)
        self.books = open_books(
            self.settings, edges, processes, self.events, counters, reader=kubelet.devices, containers=kubelet
        )
        self.publisher.follow_ledger(self.books)
        self.books.bus.subscribe(HoldsChanged, lambda _: self._changed())
        self.books.bus.subscribe(OfferChanged, lambda _: self._changed())
        self.states = StatesWatch(self.books)
        self.books.pending_release.off = ""
        self.keeper = self.books.keeper
        parts = DraParts(self.settings, edges, self.books, self.events, is_alive=lambda: True)
        self.second = _Second(self.settings.dra.driver_name, parts, self.books)
        self.publisher.open_dra(self.second)
        self.second.meet(loop, cluster, self._applied)
        self.claims = parts.claims
        self._dra = DraPlugin(ClaimCalls(self.claims, SilentDriver(), clocks=SystemClocks(monotonic=loop.time)), "v1")

    # The kubelet's calls

    def plugin_servicer(self, resource: str) -> Any:
        return self.door._resources[resource].servicer

    @property
    def dra_servicer(self) -> Any:
        return self._dra

    # Life

    def start(self) -> None:
        """As the process does it: the plugin door is served at once, claims once they are recovered."""
        self.books.begin(relieves=False)
        self.kubelet.devices.connect(self, self.books.kubelet_changed)
        for work in (self.publisher.run(), self.books.run(), *self.second.parts()):
            self.loop.create_task(work, name="agent").add_done_callback(self._ended)
        self.publisher.submit(hardware.SNAPSHOT)

    def _ended(self, part: asyncio.Task[None]) -> None:
        """A part that ends takes the process with it; in the model, the test."""
        if self.alive and not part.cancelled():
            self.loop.faults.append({"message": "a part of the process has ended", "exception": part.exception()})

    def die(self, others: set[asyncio.Task[Any]]) -> None:
        """Killed: every task that is none of the others' ends, and nobody is told of anything any more."""
        self.alive = False
        self.kubelet.devices.disconnect()
        for task in asyncio.all_tasks(self.loop) - others:
            task.cancel()

    def use(self, rules: tuple[Rule, ...]) -> None:
        """Other rules."""
        self.settings = replace(self.settings, rules=rules)
        self.publisher.use(self.settings)
        self.publisher.submit(hardware.SNAPSHOT)

    def pod_changed(self, pod: ModelPod, gone: bool) -> None:
        """News of the watch on pods."""
        if gone:
            self.second.pods.deleted(pod.seen())
        else:
            self.second.pods.applied(pod.seen())

    def pods_listed(self, pods: list[ModelPod]) -> None:
        """What a watch begins with."""
        self.second.pods.replaced([pod.seen() for pod in pods])

    @property
    def offer(self) -> Offer:
        """What the plugin door shows."""
        return self.publisher.shown[1]

    @property
    def view(self) -> DoorView:
        """What the DRA door shows."""
        return self.second._view

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self.settings.rules

    def doubted(self, resource: str, devices: Sequence[OfferedDevice]) -> Awaitable[None] | None:
        """See ``plugin.admission.Admission``."""
        return self.books.doubted(resource, devices)

    def unlisted(self) -> Awaitable[None] | None:
        """See ``plugin.admission.Admission``."""
        return self.books.unlisted()

    def take(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """See ``plugin.admission.Admission``."""
        self.books.allocate(resource, devices)

    def _changed(self) -> None:
        if self.alive:
            self.publisher.on_holds_changed()

    def _applied(self) -> None:
        served = set(self.door._resources)
        for resource in sorted(self._served - served):
            self.kubelet.devices.unregistered(resource)
        for resource in sorted(served - self._served):
            self.kubelet.devices.registered(resource)
        self._served = served
        self._shown(self)


class _Second(DraService):
    """The DRA door without sockets, and with the model's API server behind it."""

    def meet(self, loop: VirtualLoop, cluster: ModelCluster, applied: Callable[[], None]) -> None:
        self._parts.api._make = lambda: ModelApi(loop, cluster)  # type: ignore[assignment, return-value]
        self._applied = applied
        self._published = PublishedSlices(loop, cluster, self._parts.shown)
        self._parts.slices = self._published  # type: ignore[assignment]
        self._parts.withdrawal._free = self._published.free
        self._parts.doors.features.support = TaintSupport(Taints.KEPT, "the model keeps them")
        self.pods = self._parts.node_claims._pods

    def parts(self) -> Iterable[Coroutine[Any, Any, Any]]:
        """What ``run`` begins, but for what has sockets or threads of its own."""
        return (
            self._recovered(),
            self.pods._answer(),
            self._parts.node_claims._reservations.run(),
            self._parts.withdrawal.run(),
            self._first_slices(),
        )

    def show(self, decided: Decision) -> None:
        super().show(decided)
        self._applied()

    async def _recovered(self) -> None:
        await self._parts.claims.recover()
        await self._parts.claims.run()

    async def _first_slices(self) -> None:
        await self._until_settled()
        await self._published.run()


def _half() -> float:
    return 0.5
