"""The DRA door in the agent: runs its parts in their order, shows what they should offer, and reports their state.

Loaded only if a rule offers devices through DRA, or if claims still hold devices from a time when one did.

The start has this order: the sockets, then what an earlier process left (calls wait for that), then the slices, once
the ledger knows what the plugin door has allocated. The end has this order: the slices' writer, then claims (work that
has begun is finished), then, once the instance lock is free, the sockets.

Rules take effect here as far as the Node and the API server allow (``node.door_policy``). The plugin door follows the
same rules, with one exception: until it is known whether the API server keeps taints, the plugin door treats a rule for
both doors as its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from driver.devices.partitions import partitioned, without_partitions
from driver.devices.view import DoorView, door_offer, evicting, view_of
from driver.door.registration import DoorStatus
from driver.node_watch.evictions import to_evict
from driver.node_watch.node_pods import PodsChanged
from driver.node_watch.pods import NodePod
from driver.node_watch.reservations import ReservationsChanged
from node.door_policy import Acting, Taints, effective
from node.inventory.model import Device, Snapshot
from node.ledger.bookkeeping import Bookkeeping
from node.ledger.holds import HoldState
from node.ledger.offer_context import OfferContext
from node.offer import Cause, Offer
from node.partitions import whole_of_partition
from node.rules import Doors, Rule
from node.values import Value, replace, value
from ostler.agent.dra_parts import DraParts
from ostler.agent.loading import KubeletFirst
from ostler.metrics.dra import DraFigures

if TYPE_CHECKING:
    from protos.agent.v1alpha1 import agent_pb2

log = logging.getLogger("ostler.dra")

FIRST_SLICES = 5.0
"""Most seconds that the first slices wait for the answers of the kubelet and the API server."""
_KEEPS = {Taints.KEPT: True, Taints.DROPPED: False, Taints.UNKNOWN: None}
_NOT_ITS_OWN = (Cause.NO_RULE, Cause.OTHER_DOOR)
"""Reasons why a device does not concern this door; its list of slices does not mention the device."""


@value
class Decision(Value):
    """The offer of the door for a snapshot, and its rules; ``acting``: the rules as they act through this door."""

    snapshot: Snapshot
    rules: tuple[Rule, ...]
    context: OfferContext
    acting: Acting
    view: DoorView


_COMPARED = 1000
"""Most pods that are gone through at each news of them, more than a node runs; a user may bind more of them to it."""


class DraService:
    """Serves claims with its ``parts`` while ``run`` runs; ``driver_name``: for people."""

    def __init__(self, driver_name: str, parts: DraParts, books: Bookkeeping) -> None:
        self._driver_name = driver_name
        self._parts = parts
        self._books = books
        self._devices: tuple[Device, ...] = ()
        self._placed: tuple[Device, ...] = ()
        """The judged snapshot, with the partitions of its GPUs."""
        self._placed_rules: tuple[Rule, ...] = ()
        """The rules by which the devices are shared."""
        self._named: frozenset[str] = frozenset()
        """UIDs of the claims that pods of this node name."""
        self._pods: Mapping[str, NodePod] = {}
        """The pods of this node that have not ended, by UID."""
        self._contested: frozenset[str] = frozenset()
        self._held_back = ""
        self._has_begun = False
        self._settled = asyncio.Event()
        """Set once the first offer is stable."""
        self._view = DoorView()
        self.offer = Offer()
        """The door's offer for the snapshot that is shown."""
        books.keeper.know(parts.node_claims)
        books.bus.subscribe(PodsChanged, self._pods_changed)
        books.bus.subscribe(ReservationsChanged, self._reservations_changed)

    @property
    def at_scheduler(self) -> frozenset[str]:
        """Devices that may still be free in a slice, or named by a claim."""
        # The scheduler may have allocated a losing claim from an older view, so its device counts as well.
        names = self._parts.shown.among(device.name for device in self._devices) | self._parts.claims.losers().keys()
        return names | frozenset(filter(None, map(whole_of_partition, names)))

    @property
    def contested(self) -> frozenset[str]:
        """Devices that a live pod has through the plugin door while a claim waits for them here."""
        return self._parts.claims.contested()

    @property
    def made(self) -> frozenset[str]:
        """UUIDs of instances that were made for claims."""
        return self._parts.partitions.uuids()

    @property
    def unmovable(self) -> str:
        """Why interfaces of NICs cannot move into pods at present; empty if they can."""
        return self._parts.interfaces.unmovable

    def acting(self, rules: Iterable[Rule]) -> Acting:
        """The rules in effect at this door."""
        return self._parts.doors.acting(rules)

    def rules_of_plugin_door(self, rules: Iterable[Rule]) -> tuple[Rule, ...]:
        """The rules in effect at the plugin door."""
        support = self._parts.doors.features.support
        if support.taints is Taints.UNKNOWN:
            support = replace(support, taints=Taints.KEPT)
        acting = effective(rules, self._parts.doors.doors, support).rules
        return acting if self._parts.doors.features.counts else without_partitions(acting)

    def decide(self, snapshot: Snapshot, rules: tuple[Rule, ...], context: OfferContext) -> Decision:
        """Decide what the rules offer of this snapshot, and prepare claims from that; call ``show`` afterwards."""
        self._devices = snapshot.devices
        self._parts.interfaces.use(rules)
        acting = self.acting(rules)
        parted = partitioned(snapshot, acting.rules, self._parts.partitions.names())
        if parted.snapshot.devices != self._placed or acting.rules != self._placed_rules:
            self._placed, self._placed_rules = parted.snapshot.devices, acting.rules
            # Claims may have been reserved before their devices were seen.
            moved = self._parts.node_claims.place(self._placed, acting.rules)
            if moved and self._books.keeper.reserve(self._parts.node_claims.reservations()):
                self._books.pods_changed()
        self.offer = door_offer(parted, acting.rules, context)
        self._view = view_of(parted, self.offer, context, acting.rules)
        self._parts.claims.apply(self._view)
        return Decision(snapshot, rules, context, acting, self._view)

    def show(self, decided: Decision) -> None:
        """Offer what was decided last."""
        snapshot, context, acting, view = decided.snapshot, decided.context, decided.acting, decided.view
        self._count_evicted(context)
        self._parts.doors.announce(acting)
        reasons = (*(each.reason for each in acting.held_back), acting.uncounted)
        self._held_back = "; ".join(filter(None, reasons))
        self._parts.door.apply(view)
        self._parts.status.apply(view)
        self._parts.slices.apply(view, keeps_taints=_KEEPS[self._parts.doors.features.support.taints])
        self._parts.withdrawal.apply(snapshot.devices, acting.rules, view)
        self._evict_by_name()
        if self._is_settled(decided.rules, context):
            self._settled.set()

    def read_reservations(self, *, at_once: bool) -> None:
        """Whether the plugin door may have to know what claims need as soon as their pods are bound."""
        self._parts.node_claims.read_at_once(at_once=at_once)

    async def recovered(self) -> None:
        """Return when the ledger has the devices of claims that an earlier process prepared, which ``run`` enters."""
        await self._parts.claims.recovered()

    async def run(self, first: KubeletFirst) -> None:
        """Serve until cancelled; the sockets are gone afterwards, unless handed over.

        ``first``: delays loading the client library until the kubelet has been served.
        """
        self._has_begun = True
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._parts.door.run(), name="DRA door")
                await self._parts.claims.recover()
                group.create_task(self._parts.sharing.run(), name="MPS of claims")
                for record in self._parts.claims.records():
                    # The process that prepared it may have ended before it wrote the claim's status.
                    self._parts.status.prepared(record.claim, record.answer)
                group.create_task(self._parts.interfaces.run(), name="interfaces of claims")
                group.create_task(self._parts.claims.run(), name="claims")
                await first.turn()
                group.create_task(self._parts.status.run(), name="claim status")
                group.create_task(self._parts.node_claims.run(), name="holders")
                group.create_task(self._parts.doors.run(), name="doors of the node")
                group.create_task(self._parts.evictions.run(), name="evictions by name")
                group.create_task(self._parts.withdrawal.run(), name="withdrawal")
                await self._until_settled()
                self._parts.slices.start()
        finally:
            # Its thread ends with the work under way; the loop serves the remaining calls meanwhile.
            await asyncio.to_thread(self._parts.slices.stop)
            await self._parts.claims.close()
            self._parts.api.close()

    def hand_over(self) -> None:
        """Keep the sockets when ``run`` ends, so that a successor can take over; ``leave`` must follow."""
        self._parts.door.hand_over()

    async def leave(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a successor to take over; returns whether it did. No socket is left afterwards."""
        return not self._has_begun or await self._parts.door.leave(seconds)

    def status(self) -> DoorStatus:
        """The state of the registration."""
        return self._parts.door.status()

    def summary(self) -> agent_pb2.DraStatus:
        """The door's status in one line."""
        # Here and below: until somebody asks, an agent needs no messages.
        from ostler.admin.dra import door_message

        nri = self._parts.interfaces.status()
        return door_message(self._parts.door.status(), self.slices(), self.claims(), nri)

    def interfaces(self) -> Mapping[str, agent_pb2.PodInterface]:
        """The places of claims' interfaces that are not on the node, by device."""
        from ostler.admin.dra import interfaces_message

        return interfaces_message(self._parts.interfaces.claims.places())

    def unpublished(self) -> str:
        """Why slices differ from the wanted ones, empty if they do not."""
        return self._parts.slices.problem()

    def waiting_for(self) -> tuple[str, ...]:
        """Why the door is not ready."""
        return self._parts.door.waiting_for()

    def slices(self) -> agent_pb2.ListSlicesResponse:
        """The published devices, beside the wanted ones."""
        from ostler.admin.dra import slices_message

        reasons = {offered.device.name: offered.reason for offered in self._view.devices if offered.reason}
        withheld = [each for each in self.offer.withheld if each.cause not in _NOT_ITS_OWN]
        return slices_message(self._driver_name, self._parts.slices.publication(), reasons, withheld)

    def claims(self) -> agent_pb2.ListClaimsResponse:
        """Every claim that holds devices or was refused lately."""
        from ostler.admin.dra import claims_message

        return claims_message(self._parts.claims.statuses())

    def figures(self) -> DraFigures:
        """The values for metrics."""
        interfaces = self._parts.interfaces
        return DraFigures(
            self._parts.metrics,
            self.status().state.value,
            self.slices(),
            self.claims(),
            {device: bool(place.problem) for device, place in interfaces.claims.places().items()},
            interfaces.is_failing,
        )

    def losers(self) -> Mapping[str, tuple[str, ...]]:
        """By device, claims that cannot have it because a pod has it."""
        return self._parts.claims.losers()

    def leaving(self) -> Mapping[str, str]:
        """Devices that are being withdrawn from claims, and what each still waits for."""
        return self._parts.withdrawal.waiting_for()

    def problems(self) -> tuple[str, ...]:
        """The gaps in the API server's reports about this node's pods and claims, one line each."""
        return (*self._parts.node_claims.problems, *self._parts.evictions.problems)

    def problems_of_doors(self) -> tuple[str, ...]:
        """The Node's settings of doors that have no effect or may be outdated, one line each."""
        return (*self._parts.doors.problems, *self._parts.doors.failing)

    def held_back(self) -> str:
        """Why rules for both doors act as plugin, empty if none does."""
        return self._held_back

    async def _until_settled(self) -> None:
        """Return when the first slices would not have to be rewritten in a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SLICES):
                await self._settled.wait()

    def _is_settled(self, rules: Iterable[Rule], context: OfferContext) -> bool:
        """Whether nothing that is shown depends on answers that are about to come."""
        if not context.known:
            return False
        holds = (hold for those in context.holds.values() for hold in those)
        if any(hold.state is HoldState.PENDING_RELEASE and hold.door is not None for hold in holds):
            # A check for leftover processes is under way.
            return False
        if self._parts.doors.features.asks_for_counters or not self._parts.interfaces.is_decided:
            return False
        asks = self._parts.doors.features.support.taints is Taints.UNKNOWN
        if context.settled and not asks:
            return True
        return all(rule.door is not Doors.BOTH for rule in self.rules_of_plugin_door(rules))

    def _count_evicted(self, context: OfferContext) -> None:
        """Report claims whose pods a taint evicts from now on; a server that drops taints evicts none."""
        if not context.known:
            return
        dropped = self._parts.doors.features.support.taints is Taints.DROPPED
        contested = frozenset() if dropped else context.contested
        for device in sorted(contested - self._contested):
            self._books.observer.evicted()
            log.warning(
                "a claim lost its device to a pod of the plugin door, the claim's pod is evicted",
                extra={"device": device},
            )
        self._contested = contested

    def _evict_by_name(self) -> None:
        """Have the pods evicted that the taints of the current view do not evict by themselves."""
        kept = self._parts.doors.features.support.taints is Taints.KEPT
        devices = evicting(self._view) if kept else frozenset()
        claims = self._parts.node_claims.reservations() if devices else {}
        self._parts.evictions.apply(to_evict(self._parts.node_claims.pods if devices else (), claims, devices))

    def _pods_changed(self, _: PodsChanged) -> None:
        """Follow the pods; what the kubelet allocated changes with a pod that is gone and had some of it."""
        before, self._pods = self._pods, {pod.uid: pod for pod in self._parts.node_claims.pods}
        if self._reserve() or not (only_came(before, self._pods) or self._only_others_changed(before)):
            self._books.pods_changed()

    def _only_others_changed(self, before: Mapping[str, NodePod]) -> bool:
        """Whether the news is of pods that have neither claims nor devices, as most pods of most nodes.

        No pod differs where one that had ended was deleted. A pod that is being deleted counts as changed until it is
        gone. A static pod may come back with what it had before, which the ledger dropped when it was gone.
        """
        now = self._pods
        if len(before) + len(now) > 2 * _COMPARED:
            return False
        changed = [pod for uid, pod in (*before.items(), *now.items()) if before.get(uid) != now.get(uid)]
        if any(pod.claims or pod.static for pod in changed):
            return False
        others = [pod for uid, pod in now.items() if before.get(uid, pod) == pod and not pod.ending]
        uids = {uid for pod in others for uid in (pod.uid, pod.static)}
        return self._books.plugin.are_held_only_by(uids, {str(pod) for pod in others})

    def _reservations_changed(self, _: ReservationsChanged) -> None:
        if self._reserve():
            self._books.pods_changed()

    def _reserve(self) -> bool:
        """Enter what the claims of pods need; returns whether a pod has some of it through the plugin door.

        A reading of the kubelet then shows whether that pod still lives.
        """
        claims = self._parts.node_claims.reservations()
        before, self._named = self._named, frozenset(claims)
        for uid in sorted(before - self._named):
            self._parts.claims.settled(uid)
        is_refused = self._books.keeper.reserve(claims)
        self._evict_by_name()
        return is_refused


def only_came(before: Mapping[str, NodePod], now: Mapping[str, NodePod]) -> bool:
    """Whether the news is that a pod came with claims, and no pod went; both by UID, pods that have not ended.

    Pods without claims come without news, so they explain none, except static pods, which may have had devices before.
    """
    came = any(pod.claims and (uid not in before or before[uid].claims != pod.claims) for uid, pod in now.items())
    is_back = any(pod.static and uid not in before for uid, pod in now.items())
    return came and not is_back and before.keys() <= now.keys()
