"""Holds for people: the ledger, and what the doors derive from it, as messages.

The status says in words what is wrong, and is empty if all is well: see ``HoldsStatus`` in
``protos/agent/v1alpha1/agent.proto``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from node.inventory.model import Device, Snapshot
from node.ledger.holds import Hold, HoldState
from node.ledger.offer_context import OfferContext
from node.offer import Cause, Offer, OfferedDevice
from node.rules import Door, Rule, rule_for
from ostler.admin.messages import amounts_message, shared_device
from ostler.agent.publisher import Publisher
from ostler.metrics.gauges import HoldsFigures
from protos.agent.v1alpha1 import agent_pb2

if TYPE_CHECKING:
    from node.ledger.bookkeeping import Bookkeeping
    from ostler.agent.dra_service import DraService

PENDING_RELEASE = HoldState.PENDING_RELEASE.value
_BY_HOLDS = (Cause.OTHER_DOOR, Cause.OVERLAP, Cause.PENDING_RELEASE, Cause.HOLDS_UNKNOWN, Cause.MOVING)
_UNTIL: Mapping[HoldState, str] = {
    HoldState.ALLOCATED: "{} ends",
    HoldState.LISTED: "{} ends",
    HoldState.RECORDED: "the kubelet forgets {}",
    HoldState.RESERVED: "claim {} is deallocated",
    HoldState.PREPARED: "the pods of claim {} end",
}
_UNTIL_MOVED: Mapping[Door, str] = {
    Door.PLUGIN: "the API server has it tainted or in no slice, and no claim is allocated it",
    Door.DRA: "the kubelet no longer counts it as allocatable",
}


class NotReleasable(Exception):
    """The device is not pending release: only its holder can release it, by ending."""

    def __init__(self, device: str, holder: Hold | None) -> None:
        if holder is None:
            super().__init__(f"device {device} is not held, so there is nothing to release")
        else:
            end = "end the claim's pods" if holder.door is Door.DRA else "delete the pod"
            super().__init__(
                f"device {device} is {holder.words}; only a device that is pending release can be released: {end} to "
                "get it back"
            )


class HoldsView:
    """Answers one question of people about holds, from the DRA door if there is one and the configuration's rules."""

    def __init__(
        self,
        books: Bookkeeping,
        publisher: Publisher,
        dra: DraService | None,
        rules: tuple[Rule, ...],
    ) -> None:
        self._books = books
        self._publisher = publisher
        self._dra = dra
        self._rules = rules

    @property
    def context(self) -> OfferContext:
        """The context from which the shown offers were made."""
        return self._publisher.context

    def report(self) -> agent_pb2.ListHoldsResponse:
        """Who holds which device, what is withheld because of that, and what is not known."""
        dra = self._dra
        snapshot, offer = self._publisher.shown
        context, kubelet = self._publisher.context, self._books.unknown_because()
        containers = self._books.releases.off
        if dra is None:
            # Without claims the agent does not ask an API server for them, and no door waits for leftover processes.
            faults = agent_pb2.HoldsStatus(kubelet=kubelet, containers=containers)
            return holds_report(snapshot, self._rules, context, {Door.PLUGIN: offer}, losers={}, faults=faults)
        faults = agent_pb2.HoldsStatus(
            kubelet=kubelet,
            api_server="; ".join(dra.problems()),
            both=dra.held_back(),
            doors="; ".join(dra.problems_of_doors()),
            processes=self._books.pending_release.off,
            containers=containers,
        )
        return holds_report(
            snapshot,
            dra.rules_of_plugin_door(self._rules),
            context,
            {Door.PLUGIN: offer, Door.DRA: dra.offer},
            losers=dra.losers(),
            leaving=dra.leaving(),
            places=dra.interfaces(),
            faults=faults,
        )

    async def release(self, device: str) -> tuple[str, ...]:
        """Release a device that is pending release (name or UUID); returns what was released, one line each.

        Raises ``UnknownDevice`` and ``NotReleasable``.
        """
        found = self._publisher.shown[0].find(device)
        left, pods = self._books.pending_release.left(found.name), self._books.tenants.named(found.name)
        if not self._books.keeper.release(found.name):
            raise NotReleasable(found.name, self._books.ledger.by_device().get(found.name))
        processes = ", ".join(str(process) for process in left) or "none was found yet"
        containers = f"; containers still run of {pods}" if pods else ""
        return (f"{found.name} is free; processes on it: {processes}{containers}",)

    def figures(self) -> HoldsFigures:
        """The values for metrics."""
        return HoldsFigures(self.report(), self._books.pending())


def holds_report(
    snapshot: Snapshot,
    rules: Iterable[Rule],
    context: OfferContext,
    offers: Mapping[Door, Offer],
    *,
    losers: Mapping[str, tuple[str, ...]],
    leaving: Mapping[str, str] = MappingProxyType({}),
    places: Mapping[str, agent_pb2.PodInterface] = MappingProxyType({}),
    faults: agent_pb2.HoldsStatus | None = None,
) -> agent_pb2.ListHoldsResponse:
    """Every device that is held, or withheld because of a hold. Decides nothing.

    ``losers``: by device, the claims that could not take it. ``leaving``: by device being withdrawn from claims, what
    currently prevents that. ``places``: of interfaces in pods, by device. ``faults``: what is not known; its numbers
    are not read.
    """
    rules = tuple(rules)
    shown = {door: _shown(offer) for door, offer in offers.items()}
    report = agent_pb2.ListHoldsResponse()
    known = set()
    for device in snapshot.devices:
        known.add(device.name)
        rule = rule_for(device, rules)
        message = _device(device.name, context, losers)
        if rule is not None:
            message.doors = rule.door.value
            message.withheld.extend(_withheld(device, rule, context, shown, leaving.get(device.name, "")))
            shared = shared_device(device, rule, context)
            if shared is not None:
                report.shared.append(shared)
        if device.name in places:
            message.interface.CopyFrom(places[device.name])
        if message.holds or message.withheld or message.losers:
            report.devices.append(message)
    # Still held, but gone for so long that the inventory has forgotten it.
    forgotten = [_device(name, context, losers) for name in context.holds if name not in known]
    report.devices.extend(device for device in forgotten if device.holds or device.losers)
    report.status.CopyFrom(_status(report.devices, faults or agent_pb2.HoldsStatus()))
    return report


def _device(name: str, context: OfferContext, losers: Mapping[str, tuple[str, ...]]) -> agent_pb2.DeviceHolds:
    own = [hold for hold in context.holds.get(name, ()) if hold.device == name]
    holds = [_hold(hold) for hold in sorted(own, key=attrgetter("admin"))]
    return agent_pb2.DeviceHolds(device=name, holds=holds, losers=losers.get(name, ()))


def _hold(hold: Hold) -> agent_pb2.Hold:
    return agent_pb2.Hold(
        door="" if hold.door is None else hold.door.value,
        holder=hold.holder,
        owner=hold.owner,
        since=hold.since,
        state=hold.state.value,
        share=hold.share,
        admin=hold.admin,
        amounts=amounts_message(hold.amounts),
    )


def _shown(offer: Offer) -> dict[str, OfferedDevice]:
    return {item.device.name: item for resource in offer.resources for item in resource.distinct}


def _withheld(
    device: Device, rule: Rule, context: OfferContext, shown: Mapping[Door, Mapping[str, OfferedDevice]], leaving: str
) -> Iterator[agent_pb2.Withholding]:
    for door, items in shown.items():
        item = items.get(device.name)
        if item is not None and rule.door.has(door) and item.cause in _BY_HOLDS:
            yield agent_pb2.Withholding(
                door=door.value,
                cause=taint_word(item.cause),
                why=item.reason,
                waits_for=_waits_for(device, item.cause, context, door, leaving),
            )


def _waits_for(device: Device, cause: Cause, context: OfferContext, door: Door, leaving: str) -> str:
    if cause is Cause.HOLDS_UNKNOWN:
        return "what the kubelet has given to containers can be read"
    if cause is Cause.MOVING:
        now = f"; now: {leaving}" if leaving and door is Door.PLUGIN else ""
        return f"{_UNTIL_MOVED[door]}{now}"
    # At the plugin door, a hold of the device itself under another id or resource is named before others.
    own = context.held(device, door) if cause is Cause.OVERLAP and door is Door.PLUGIN else None
    hold = own or context.obstacle(device, door)
    if hold is None:
        return ""
    if hold.state is HoldState.PENDING_RELEASE:
        return f"no process is left on it, or 'ostler holds release {hold.device}'"
    return _UNTIL[hold.state].format(hold.holder)


def _status(devices: Iterable[agent_pb2.DeviceHolds], faults: agent_pb2.HoldsStatus) -> agent_pb2.HoldsStatus:
    """Holds in one line; the numbers count devices, ``losers`` counts claims."""
    status = agent_pb2.HoldsStatus()
    status.CopyFrom(faults)
    claims: set[str] = set()
    for device in devices:
        held = {
            PENDING_RELEASE if hold.state == PENDING_RELEASE else hold.door for hold in device.holds if not hold.admin
        }
        status.by_plugin += Door.PLUGIN in held
        status.by_dra += Door.DRA in held
        status.draining += PENDING_RELEASE in held
        status.moving += any(each.cause == taint_word(Cause.MOVING) for each in device.withheld)
        claims.update(device.losers)
    status.losers = len(claims)
    return status


def taint_word(cause: str) -> str:
    """A cause as it appears in keys of taints."""
    return str(cause).replace("_", "-")
