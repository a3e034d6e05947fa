"""From holds and offers to what people see of them. Pure; nothing is decided here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from node.inventory.model import Device, Snapshot
from node.ledger.ledger import Hold, HoldState
from node.ledger.offer_context import OfferContext
from node.offer import Cause, Offer, OfferedDevice
from node.rules import Door, Rule, rule_for
from node.values import replace
from ostler.admin.holds import DeviceHolds, HoldsReport, HoldsStatus, Withholding

_BY_HOLDS = (Cause.OTHER_DOOR, Cause.OVERLAP, Cause.DRAINING, Cause.HOLDS_UNKNOWN, Cause.MOVING)
_UNTIL: Mapping[HoldState, str] = {
    HoldState.ALLOCATED: "{} ends",
    HoldState.LISTED: "{} ends",
    HoldState.RECORDED: "the kubelet forgets {}",
    HoldState.RESERVED: "claim {} is deallocated",
    HoldState.PREPARED: "the pods of claim {} end",
}
_UNTIL_MOVED: Mapping[Door, str] = {
    Door.PLUGIN: "the API server has it tainted or in no slice, and no claim is allocated it",
    Door.DRA: "the kubelet counts it as allocatable no more",
}


def holds_report(
    snapshot: Snapshot,
    rules: Iterable[Rule],
    context: OfferContext,
    offers: Mapping[Door, Offer],
    *,
    losers: Mapping[str, tuple[str, ...]],
    leaving: Mapping[str, str] = MappingProxyType({}),
    faults: HoldsStatus = HoldsStatus(),  # noqa: B008  # frozen
) -> HoldsReport:
    """Every device that is held or withheld because of a hold.

    ``losers``: by device the claims that could not take it. ``leaving``: by device that is being withdrawn from claims
    what keeps it there at the moment. ``faults``: what is not known; its numbers are not read.
    """
    rules = tuple(rules)
    shown = {door: _shown(offer) for door, offer in offers.items()}
    devices = [
        DeviceHolds(
            device.name,
            None if rule is None else rule.door,
            _holds(device.name, context),
            () if rule is None else tuple(_withheld(device, rule, context, shown, leaving.get(device.name, ""))),
            losers.get(device.name, ()),
        )
        for device in snapshot.devices
        for rule in (rule_for(device, rules),)
    ]
    known = {device.name for device in snapshot.devices}
    # Held, and forgotten by the inventory: gone for long.
    devices.extend(
        DeviceHolds(name, holds=_holds(name, context), losers=losers.get(name, ()))
        for name in context.holds
        if name not in known
    )
    told = tuple(device for device in devices if device.holds or device.withheld or device.losers)
    return HoldsReport(told, _status(told, faults))


def _shown(offer: Offer) -> dict[str, OfferedDevice]:
    return {item.device.name: item for resource in offer.resources for item in resource.devices}


def _holds(name: str, context: OfferContext) -> tuple[Hold, ...]:
    own = [hold for hold in context.holds.get(name, ()) if hold.device == name]
    return tuple(sorted(own, key=lambda hold: hold.admin))


def _withheld(
    device: Device, rule: Rule, context: OfferContext, shown: Mapping[Door, Mapping[str, OfferedDevice]], leaving: str
) -> Iterator[Withholding]:
    for door, items in shown.items():
        item = items.get(device.name)
        if item is not None and rule.door.has(door) and item.cause in _BY_HOLDS:
            yield Withholding(door, item.cause, item.reason, _waits_for(device, item.cause, context, door, leaving))


def _waits_for(device: Device, cause: Cause, context: OfferContext, door: Door, leaving: str) -> str:
    if cause is Cause.HOLDS_UNKNOWN:
        return "what the kubelet has given to containers can be read"
    if cause is Cause.MOVING:
        now = f"; now: {leaving}" if leaving and door is Door.PLUGIN else ""
        return f"{_UNTIL_MOVED[door]}{now}"
    # At the plugin door a hold of the device itself under another id or resource goes before what else is in the way.
    own = context.held(device, door) if cause is Cause.OVERLAP and door is Door.PLUGIN else None
    hold = own or context.obstacle(device, door)
    if hold is None:
        return ""
    if hold.state is HoldState.DRAINING:
        return f"no process is left on it, or 'ostler holds release {hold.device}'"
    return _UNTIL[hold.state].format(hold.holder)


def _status(devices: Iterable[DeviceHolds], faults: HoldsStatus) -> HoldsStatus:
    drain = HoldState.DRAINING
    doors = [
        {drain if hold.state is drain else hold.door for hold in device.holds if not hold.admin} for device in devices
    ]
    return replace(
        faults,
        by_plugin=sum(Door.PLUGIN in held for held in doors),
        by_dra=sum(Door.DRA in held for held in doors),
        draining=sum(drain in held for held in doors),
        moving=sum(any(each.cause is Cause.MOVING for each in device.withheld) for device in devices),
        losers=len({claim for device in devices for claim in device.losers}),
    )
