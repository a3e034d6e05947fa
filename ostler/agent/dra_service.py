"""The DRA door with everything behind it, wired together: sockets, claims, slices, claim status, one API client.

Loaded only where a rule offers devices through DRA, or where claims are still held from a time when one did. The
kubelet comes first: the client library is not loaded before the sockets are there, and then in threads of its own.

Order at the start: the sockets, then what an earlier process left (calls wait for that), then the slices, once it is
known what the plugin door has given out. Order at the end: the slices' writer, then claims (what was begun is
finished), then, once the instance lock is free, the sockets.

Rules act here as the node and the server let them (``node.door_policy``). The plugin door follows the same rules but
for one thing: while it is not known whether the server keeps taints, a rule for both doors is one for both there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from driver.claims.claim_status import ClaimStatusWriter
from driver.claims.interfaces import ClaimOptions
from driver.claims.service import ClaimService
from driver.devices.view import DoorView, door_offer, view_of
from driver.door.door import DraDoor
from driver.door.registration import DoorOptions, DoorStatus
from driver.node_watch.node_claims import NodeClaims
from driver.node_watch.node_doors import NodeDoorsKeeper
from driver.publishing.publisher import SlicePublisher, controller_maker
from driver.publishing.shown import ShownDevices
from driver.publishing.withdrawal import Withdrawal
from driver.resource_api.async_client import AsyncResourceApi
from node.door_policy.acting import Acting, effective
from node.door_policy.taint_support import Taints
from node.events import EventSink, EventType
from node.inventory.model import Device, Snapshot
from node.ledger.bookkeeping import Bookkeeping
from node.ledger.events import ClaimRefused, HoldsChanged
from node.ledger.ledger import Hold, HoldState, wholes_of
from node.ledger.offer_context import OfferContext
from node.offer import Cause, Offer
from node.opening import boot_id
from node.rules import Door, Doors, Rule
from node.values import replace
from ostler.admin.dra import claims_message, door_message, slices_message, unpublished
from ostler.agent.claims_api import CALLS, NodeCheck, api_maker, node_check
from ostler.agent.edges import Edges
from ostler.agent.eventlog import FromThreads
from ostler.config.settings import Settings
from ostler.metrics.dra import DraFigures, DraMetrics
from protos.agent.v1alpha1 import agent_pb2

log = logging.getLogger("ostler.dra")

FIRST_SLICES = 5.0
"""Most seconds that the first slices wait for what the kubelet and the API server have to say."""
_KEEPS = {Taints.KEPT: True, Taints.DROPPED: False, Taints.UNKNOWN: None}
_NOT_ITS_OWN = (Cause.NO_RULE, Cause.OTHER_DOOR)
"""Why a device is none of this door's: nobody has to be told why it is not published."""


class DraService:
    """Serves claims of this node's devices for as long as ``run`` runs.

    ``alive``: whether the inventory still looks at its devices. ``changed``: told when readiness may have changed.
    ``wanted``: told when both doors are to be shown anew, since what is held or how the rules act is another.
    """

    def __init__(
        self,
        settings: Settings,
        edges: Edges,
        *,
        events: EventSink,
        alive: Callable[[], bool],
        changed: Callable[[], None],
        books: Bookkeeping,
        wanted: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._edges = edges
        self._events = events
        self._books = books
        self._wanted = wanted
        self._devices: tuple[Device, ...] = ()
        self._wholes: dict[str, tuple[str, ...]] = {}
        """What devices are parts of, by name, of those that are."""
        self._named: frozenset[str] = frozenset()
        """UIDs of the claims that pods of this node name."""
        self._contested: frozenset[str] = frozenset()
        self._held_back = ""
        self._began = False
        self._sure = asyncio.Event()
        """Set once what is shown would not be another in a moment."""
        self._view = DoorView()
        self.offer = Offer()
        """What the door makes of the snapshot that is shown."""
        self.metrics = DraMetrics(edges.clock, lost=lambda: books.observer.lost(Door.DRA))
        self._api = AsyncResourceApi(api_maker(settings, edges.random), threads=CALLS)
        self._shown = self._shown_before()
        check = node_check(settings)
        self._status = ClaimStatusWriter(
            settings.dra.driver_name, self._api, events=events, clock=edges.clock, random=edges.random
        )
        self._claims = self._made_claims()
        self._holders = self._made_holders(check)
        self._doors = self._made_doors(check)
        self._door = self._made_door(alive, changed)
        self._slices = self._made_slices(check)
        self._withdrawal = self._made_withdrawal()
        books.know(self._holders)
        books.bus.subscribe(ClaimRefused, lambda refused: self._claims.lost(refused.uid, refused.error))
        books.bus.subscribe(HoldsChanged, lambda _: self._claims.freed())

    def _shown_before(self) -> ShownDevices:
        shown = ShownDevices(self._settings.state_dir)
        problem = shown.load()
        if problem:
            self._events.emit(EventType.WARNING, "ShownDevicesUnknown", problem)
        return shown

    def _made_claims(self) -> ClaimService:
        settings, edges, books = self._settings, self._edges, self._books
        options = ClaimOptions(
            settings.dra.driver_name,
            settings.node_name,
            settings.state_dir,
            settings.cdi.directory,
            settings.kubelet.registry_dir.parent,
            peers=settings.dra.peers,
        )
        return ClaimService(
            options,
            self._api,
            events=self._events,
            observer=self.metrics,
            boot=boot_id(settings.roots.proc),
            clock=edges.clock,
            monotonic=edges.monotonic,
            random=edges.random,
            ledger=books.ledger,
            known=lambda: books.keeper.known,
            changed=self._wanted,
        )

    def _made_holders(self, check: NodeCheck | None) -> NodeClaims:
        edges = self._edges
        return NodeClaims(
            self._api,
            self._settings.dra.driver_name,
            self._settings.node_name,
            within=self._within,
            random=edges.random,
            check=check,
            changed=self._holders_changed,
            clock=edges.clock,
            monotonic=edges.monotonic,
        )

    def _made_doors(self, check: NodeCheck | None) -> NodeDoorsKeeper:
        settings = self._settings
        return NodeDoorsKeeper(
            self._api,
            settings.dra.driver_name,
            settings.node_name,
            settings.state_dir,
            events=self._events,
            random=self._edges.random,
            by_node=settings.kubernetes.door_by_node,
            check=check,
            changed=self._wanted,
        )

    def _made_door(self, alive: Callable[[], bool], changed: Callable[[], None]) -> DraDoor:
        settings, edges = self._settings, self._edges
        return DraDoor(
            DoorOptions(
                settings.dra.driver_name, settings.node_name, settings.dra.plugins_dir, settings.kubelet.registry_dir
            ),
            self._claims,
            events=self._events,
            observer=self.metrics,
            clock=edges.clock,
            monotonic=edges.monotonic,
            random=edges.random,
            changed=changed,
            alive=alive,
            reporter=self._status,
        )

    def _made_slices(self, check: NodeCheck | None) -> SlicePublisher:
        settings, edges, loop = self._settings, self._edges, asyncio.get_running_loop()
        name, node_name = settings.dra.driver_name, settings.node_name
        return SlicePublisher(
            node_name,
            controller_maker(self._api.made, name, node_name, edges.random, check=check),
            events=FromThreads(self._events, loop),
            peers=settings.dra.peers,
            monotonic=edges.monotonic,
            random=edges.random,
            shown=self._shown,
            doubted=lambda: _on_loop(loop, self._doors.doubt),
        )

    def _made_withdrawal(self) -> Withdrawal:
        return Withdrawal(
            self._shown,
            self._holders.claims_naming,
            free=self._slices.free,
            taken=self._claims.taken,
            events=self._events,
            changed=self._wanted,
            monotonic=self._edges.monotonic,
            random=self._edges.random,
        )

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

    def apply(self, snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext) -> None:
        """Offer what the rules say of this snapshot."""
        if snapshot.devices is not self._devices:
            self._devices = snapshot.devices
            self._place({device.name: wholes for device in snapshot.devices if (wholes := wholes_of(device))})
        self._count_evicted(context)
        acting = self.acting(rules)
        self._doors.announce(acting)
        self._held_back = "; ".join(each.reason for each in acting.held_back)
        self.offer = door_offer(snapshot, acting.rules, context)
        self._view = view = view_of(snapshot, self.offer, context, acting.rules)
        self._claims.apply(view)
        self._door.apply(view)
        self._status.apply(view)
        self._slices.apply(view, keeps_taints=_KEEPS[self._doors.support.taints])
        self._withdrawal.apply(snapshot.devices, acting.rules, view)
        if self._is_sure(rules, context):
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

    def summary(self) -> agent_pb2.DraStatus:
        """How the door is, in one line."""
        return door_message(self._door.status(), self.slices(), self.claims())

    def unpublished(self) -> str:
        """Why slices are not as they should be, empty for nothing."""
        return unpublished(self.slices())

    def waiting_for(self) -> tuple[str, ...]:
        """Why the door is not ready."""
        return self._door.waiting_for()

    def slices(self) -> agent_pb2.ListSlicesResponse:
        """What is published, and what would be."""
        reasons = {offered.device.name: offered.reason for offered in self._view.devices if offered.reason}
        withheld = [each for each in self.offer.withheld if each.cause not in _NOT_ITS_OWN]
        return slices_message(self._settings.dra.driver_name, self._slices.publication(), reasons, withheld)

    def claims(self) -> agent_pb2.ListClaimsResponse:
        """Every claim that holds devices or was refused lately."""
        return claims_message(self._claims.statuses())

    def figures(self) -> DraFigures:
        """For metrics."""
        return DraFigures(self.metrics, self.status().state.value, self.slices(), self.claims())

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

    def _is_sure(self, rules: Iterable[Rule], context: OfferContext) -> bool:
        """Whether nothing in what is shown waits for what is known in a moment."""
        if not context.known:
            return False
        if any(_is_looked_at(hold) for holds in context.holds.values() for hold in holds):
            return False
        asks = self._doors.support.taints is Taints.UNKNOWN
        if context.settled and not asks:
            return True
        return all(rule.door is not Doors.BOTH for rule in self.rules_of_plugin_door(rules))

    def _place(self, wholes: dict[str, tuple[str, ...]]) -> None:
        """What devices are part of; claims may have been reserved before their devices were seen."""
        before, self._wholes = self._wholes, wholes
        if wholes != before and self._named:
            self._books.keeper.reserve(self._holders.reservations())

    def _count_evicted(self, context: OfferContext) -> None:
        """Tell of claims whose pods a taint evicts from now on; where taints are dropped none is."""
        if not context.known:
            return
        dropped = self._doors.support.taints is Taints.DROPPED
        contested = frozenset() if dropped else context.contested
        for device in sorted(contested - self._contested):
            self._books.observer.evicted()
            log.warning("a claim lost its device to a pod, its pod is evicted", extra={"device": device})
        self._contested = contested

    def _within(self, device: str) -> tuple[str, ...]:
        return self._wholes.get(device, ())

    def _holders_changed(self) -> None:
        claims = self._holders.reservations()
        before, self._named = self._named, frozenset(claims)
        for uid in sorted(before - self._named):
            self._claims.settled(uid)
        self._books.keeper.reserve(claims)
        self._books.pods_changed()


def _on_loop(loop: asyncio.AbstractEventLoop, tell: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):
        # The loop may be closed by now: then nobody wants to know.
        loop.call_soon_threadsafe(tell)


def _is_looked_at(hold: Hold) -> bool:
    """Whether a look for left-over processes is under way that the plugin door does not wait for."""
    return hold.state is HoldState.DRAINING and hold.door is not None
