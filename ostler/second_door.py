"""The DRA door with everything behind it, wired together: sockets, claims, slices, claim status, one API client.

Loaded only where a rule offers devices through DRA, or where claims are still held from a time when one did. The
kubelet comes first: the client library is not loaded before the sockets are there, and then in threads of its own.

Order at the start: the sockets, then what an earlier process left (calls wait for that), then the slices, once it is
known what the plugin door has given out. Order at the end: the slices' writer, then claims (what was begun is
finished), then, once the instance lock is free, the sockets.

Rules act here as the node and the server let them (``node.doorway``). The plugin door follows the same rules but for
one thing: while it is not known whether the server keeps taints, a rule for both doors is one for both there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from driver.async_api import AsyncResourceApi
from driver.claim_status import ClaimStatus
from driver.claims.options import ClaimOptions
from driver.claims.service import ClaimService
from driver.devices.offered import DoorView
from driver.devices.view import door_offer, view_of
from driver.door import DraDoor
from driver.doorway.keeper import NodeDoorsKeeper
from driver.holders.service import NodeHolders
from driver.parameters.doubled import pairs
from driver.publishing import SlicePublisher, controller_maker
from driver.registration import DoorOptions, DoorStatus
from driver.shown import ShownDevices
from driver.withdrawal import Withdrawal
from kube.bodies import JsonObject
from node.boot import boot_id
from node.doorway.acting import Acting, effective
from node.doorway.taint_support import Taints
from node.events import EventSink, EventType
from node.holds.standing import Standing
from node.inventory.model import Device, Snapshot
from node.ledger import Hold, HoldState
from node.offer import Cause, Offer
from node.overlap import wholes_of
from node.rules import Door, Doors, Rule
from node.values import replace
from ostler import __version__
from ostler.bookkeeping import Bookkeeping
from ostler.config.settings import Settings
from ostler.dra import ClaimView, DraStatus, SlicesView
from ostler.dra_counters import DraCounters
from ostler.dra_views import claim_views, door_summary, slices_view
from ostler.eventlog import FromThreads
from ostler.figures import DraFigures

if TYPE_CHECKING:
    from driver.api import ResourceApi

log = logging.getLogger("ostler.dra")

CALLS = 32
"""Questions to the API server at once; the slices' writer and its watch have a connection each besides."""
FIRST_SLICES = 5.0
"""Most seconds that the first slices wait for what the kubelet and the API server have to say."""
CONNECT, WHOLE = 3.0, 10.0
"""Seconds to a connection, and for one attempt: two of them fit into what the kubelet gives a call."""

_KEEPS = {Taints.KEPT: True, Taints.DROPPED: False, Taints.UNKNOWN: None}
_NOT_ITS_OWN = (Cause.NO_RULE, Cause.OTHER_DOOR)
"""Why a device is none of this door's: nobody has to be told why it is not published."""


class SecondDoor:
    """Serves claims of this node's devices for as long as ``run`` runs.

    ``alive``: whether the inventory still looks at its devices. ``changed``: told when readiness may have changed.
    ``wanted``: told when both doors are to be shown anew, since what is held or how the rules act is another.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        events: EventSink,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
        random: Callable[[], float],
        alive: Callable[[], bool],
        changed: Callable[[], None],
        books: Bookkeeping,
        wanted: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._random = random
        self._events = events
        self._books = books
        self._devices: tuple[Device, ...] = ()
        self._wholes: dict[str, tuple[str, ...]] = {}
        """What devices are parts of, by name, of those that are."""
        self._named: frozenset[str] = frozenset()
        """UIDs of the claims that pods of this node name."""
        self._contested: frozenset[str] = frozenset()
        self._held_back = ""
        self._began = False
        self._view = DoorView()
        self.offer = Offer()
        """What the door makes of the snapshot that is shown."""
        self.counters = DraCounters(clock, lost=lambda: books.counters.lost(Door.DRA))
        self._api = AsyncResourceApi(self._made_api, threads=CALLS)
        name, kubelet = settings.dra.driver_name, settings.kubelet
        self._status = ClaimStatus(name, self._api, events=events, clock=clock, random=random)
        self._claims = ClaimService(
            ClaimOptions(
                name,
                settings.node_name,
                settings.state_dir,
                settings.cdi.directory,
                kubelet.registry_dir.parent,
            ),
            self._api,
            events=events,
            observer=self.counters,
            boot=boot_id(settings.roots.proc),
            clock=clock,
            monotonic=monotonic,
            random=random,
            ledger=books.ledger,
            known=lambda: books.keeper.known,
            changed=wanted,
        )
        check = self._node_check()
        self._holders = NodeHolders(
            self._api,
            name,
            settings.node_name,
            within=self._within,
            random=random,
            check=check,
            changed=self._holders_changed,
            clock=clock,
            monotonic=monotonic,
        )
        self._doors = NodeDoorsKeeper(
            self._api,
            name,
            settings.node_name,
            settings.state_dir,
            events=events,
            random=random,
            by_node=settings.kubernetes.door_by_node,
            check=check,
            changed=wanted,
        )
        self._sure = asyncio.Event()
        """Set once what is shown would not be another in a moment."""
        self._door = DraDoor(
            DoorOptions(name, settings.node_name, settings.dra.plugins_dir, kubelet.registry_dir),
            self._claims,
            events=events,
            observer=self.counters,
            clock=clock,
            monotonic=monotonic,
            random=random,
            changed=changed,
            alive=alive,
            reporter=self._status,
        )
        self._shown = ShownDevices(settings.state_dir)
        problem = self._shown.load()
        if problem:
            events.emit(EventType.WARNING, "ShownDevicesUnknown", problem)
        loop = asyncio.get_running_loop()
        self._slices = SlicePublisher(
            settings.node_name,
            controller_maker(self._api.made, name, settings.node_name, random, check=check),
            events=FromThreads(events, loop),
            peers=settings.dra.peers,
            monotonic=monotonic,
            random=random,
            shown=self._shown,
            doubted=lambda: _on_loop(loop, self._doors.doubt),
        )
        self._withdrawal = Withdrawal(
            self._shown,
            self._holders.claims_naming,
            free=self._slices.free,
            taken=self._claims.taken,
            events=events,
            changed=wanted,
            monotonic=monotonic,
            random=random,
        )
        books.know(self._holders)
        books.keeper.refused = self._claims.lost
        books.told = self._claims.freed

    @property
    def at_scheduler(self) -> frozenset[str]:
        """Devices that may still be free in a slice, or named by a claim."""
        # A claim that lost may have been allocated by what a scheduler knew before: it has to be told, too.
        return self._shown.among(device.name for device in self._devices) | self._claims.losers().keys()

    @property
    def contested(self) -> frozenset[str]:
        """Devices that a live pod has through the plugin door while a claim waits for them here."""
        return self._claims.contested()

    def acting(self, rules: Iterable[Rule]) -> Acting:
        """The rules as they act through this door."""
        return self._doors.acting(rules)

    def rules_of_plugin_door(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """The rules as they act through the other one."""
        support = self._doors.support
        if support.taints is Taints.UNKNOWN:
            support = replace(support, taints=Taints.KEPT)
        return effective(rules, self._doors.doors, support).rules

    def apply(self, snapshot: Snapshot, rules: Iterable[Rule], standing: Standing) -> None:
        """Offer what the rules say of this snapshot."""
        if snapshot.devices is not self._devices:
            self._devices = snapshot.devices
            self._wholes = {device.name: wholes for device in snapshot.devices if (wholes := wholes_of(device))}
        for device in sorted(standing.contested - self._contested):
            self._books.counters.evicted()
            log.warning("a claim lost its device to a pod, its pod is evicted", extra={"device": device})
        self._contested = standing.contested
        acting = self.acting(rules)
        self._doors.announce(acting)
        self._held_back = "; ".join(each.reason for each in acting.held_back)
        self.offer = door_offer(snapshot, acting.rules, standing)
        self._view = view = view_of(snapshot, self.offer, standing, acting.rules)
        self._claims.apply(view)
        self._door.apply(view)
        self._status.apply(view)
        self._slices.apply(view, keeps_taints=_KEEPS[self._doors.support.taints])
        self._withdrawal.apply((device.name for device in snapshot.devices), view)
        if self._is_sure(rules, standing):
            self._sure.set()

    async def recovered(self) -> None:
        """Return when the devices of claims that an earlier process prepared are in the ledger; ``run`` sees to it."""
        await self._claims.recovered()

    async def run(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Serve until cancelled; the sockets are gone afterwards, unless handed over.

        ``settled``: returns when the kubelet has been served, so that the client library may be loaded.
        """
        self._began = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._door.run(), name="DRA door")
                await self._claims.recover()
                for record in self._claims.records():
                    # Whoever prepared it may have ended before it had written the claim's status.
                    self._status.prepared(record.claim, record.answer)
                group.create_task(self._claims.run(), name="claims")
                await settled()
                group.create_task(self._status.run(), name="claim status")
                group.create_task(self._holders.run(), name="holders")
                group.create_task(self._doors.run(), name="doors of the node")
                group.create_task(self._withdrawal.run(), name="withdrawal")
                await self._until_sure()
                self._slices.start()
        finally:
            # Its thread ends with what it has under way; the loop serves what is left meanwhile.
            await asyncio.to_thread(self._slices.stop)
            await self._claims.close()
            self._api.close()

    def hand_over(self) -> None:
        """Have the end of ``run`` leave the kubelet what a successor can take over; ``leave`` is to follow it."""
        self._door.hand_over()

    async def leave(self, seconds: float) -> bool:
        """Whether a successor has taken over within ``seconds``; no socket is left afterwards."""
        return not self._began or await self._door.leave(seconds)

    def status(self) -> DoorStatus:
        """How the registration stands."""
        return self._door.status()

    def summary(self) -> DraStatus:
        """How the door is, in one line."""
        return door_summary(self._door.status(), self.slices(), self.claims())

    def waiting_for(self) -> tuple[str, ...]:
        """Why the door is not ready."""
        return self._door.waiting_for()

    def slices(self) -> SlicesView:
        """What is published, and what would be."""
        reasons = {offered.device.name: offered.reason for offered in self._view.devices if offered.reason}
        withheld = [each for each in self.offer.withheld if each.cause not in _NOT_ITS_OWN]
        return slices_view(self._settings.dra.driver_name, self._slices.publication(), reasons, withheld)

    def claims(self) -> tuple[ClaimView, ...]:
        """Every claim with a record."""
        return claim_views(self._claims.statuses())

    def figures(self) -> DraFigures:
        """For metrics."""
        return DraFigures(self.counters, self.status().state.value, self.slices(), self.claims())

    def losers(self) -> Mapping[str, tuple[str, ...]]:
        """Claims that cannot have a device because a pod has it, by device."""
        return self._claims.losers()

    def leaving(self) -> Mapping[str, str]:
        """Devices that are being withdrawn from claims, and what is still to come."""
        return self._withdrawal.waiting_for()

    def problems(self) -> tuple[str, ...]:
        """What the API server does not tell about this node's pods and claims, one line each."""
        return self._holders.problems

    def problems_of_doors(self) -> tuple[str, ...]:
        """What the Node says of doors and means nothing, or may be old, one line each."""
        return (*self._doors.problems, *self._doors.failing)

    def held_back(self) -> str:
        """Why rules for both doors act as plugin, empty where none does."""
        return self._held_back

    async def _until_sure(self) -> None:
        """Return when the first slices would not have to be written again in a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SLICES):
                await self._sure.wait()

    def _is_sure(self, rules: Iterable[Rule], standing: Standing) -> bool:
        """Whether nothing in what is shown waits for what is known in a moment."""
        if not standing.known:
            return False
        if any(_is_looked_at(hold) for holds in standing.holds.values() for hold in holds):
            return False
        asks = self._doors.support.taints is Taints.UNKNOWN
        if standing.settled and not asks:
            return True
        return all(rule.door is not Doors.BOTH for rule in self.rules_of_plugin_door(rules))

    def _within(self, device: str) -> tuple[str, ...]:
        return self._wholes.get(device, ())

    def _holders_changed(self) -> None:
        claims = self._holders.reservations()
        before, self._named = self._named, frozenset(claims)
        for uid in sorted(before - self._named):
            self._claims.settled(uid)
        self._books.keeper.reserve(claims)
        self._books.pods_changed()

    def _node_check(self) -> Callable[[JsonObject], None] | None:
        """What proves that the Node is this machine; a recorded node is nobody's."""
        if self._settings.inventory.recorded is not None:
            return None

        def check(node: JsonObject) -> None:
            from kube.node_identity import check_node, read_machine

            check_node(node, self._settings.node_name, read_machine(sys=self._settings.roots.sys))

        return check

    def _made_api(self) -> ResourceApi:
        """In a thread: the client library is loaded here. Raises ``kube.errors.KubeError``."""
        from driver.api import ResourceApi
        from kube.client import Client, Limits
        from ostler.api_server import api_access

        access = api_access(self._settings.kubernetes.kubeconfig, os.environ)
        log.info("the API server is asked for claims", extra={"server": access.server, "by": access.origin})
        client = Client(
            access,
            random=self._random,
            user_agent=f"ostler/{__version__}",
            limits=Limits(connect=CONNECT, whole=WHOLE, attempts=2),
            connections=CALLS + 2,
            pairs=pairs,
        )
        return ResourceApi(client)


def _on_loop(loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):
        # The loop may be closed by now: then nobody wants to know.
        loop.call_soon_threadsafe(tell)


def _is_looked_at(hold: Hold) -> bool:
    """Whether a look for left-over processes is under way that the plugin door does not wait for."""
    return hold.state is HoldState.DRAINING and hold.door is not None
