"""From a snapshot to what the DRA door shows: the offer of that door, placed and in the order of the slices.

Pure, and one decision with ``node.offer``: nothing here adds or hides a device. What differs from the plugin door is
how containers get devices: by CDI, whatever list strategies a rule has, so a device is fit when CDI can describe it.

Of each kind the devices that only this door gives out come first, and those of both doors after them, equal ones from
the back: the plugin door takes its devices from the front.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from driver.claims.edits import by_cdi
from driver.devices.offered import DoorView, DraDevice
from driver.devices.placement import Placement, placement
from node.inventory.model import Host, Snapshot
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.offer import Cause, Offer, OfferedDevice, offer
from node.rules import Door, Doors, Rule, rule_for
from node.values import replace

OF_DOORS = frozenset((Cause.OTHER_DOOR, Cause.OVERLAP, Cause.DRAINING, Cause.HOLDS_UNKNOWN, Cause.MOVING))
"""Causes that come from what is held or may be, and not from the device: it works, but it is not to be had."""


def door_view(snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext = NOTHING_HELD) -> DoorView:
    """What the DRA door shows of the snapshot."""
    rules = tuple(rules)
    return view_of(snapshot, door_offer(snapshot, rules, context), context, rules)


def door_offer(snapshot: Snapshot, rules: Iterable[Rule], context: OfferContext = NOTHING_HELD) -> Offer:
    """The offer behind it, which also tells what is withheld."""
    return offer(snapshot, map(_for_this_door, rules), context, Door.DRA)


def view_of(snapshot: Snapshot, shown: Offer, context: OfferContext, rules: Iterable[Rule]) -> DoorView:
    """The view of that offer, which was made by ``rules``: those of one resource may be for different doors."""
    ours = tuple(map(_for_this_door, rules))
    found = [
        (rule_for(item.device, ours) or resource.rule, item)
        for resource in shown.resources
        for item in resource.devices
    ]
    placed = placement(snapshot, (item.device for _, item in found))
    devices = tuple(
        DraDevice(
            item.device,
            rule,
            item.healthy,
            item.reason,
            item.cause,
            placed.attributes[item.device.name],
            contested=item.device.name in context.contested,
        )
        for rule, item in _sorted(found, placed)
    )
    return DoorView(devices, snapshot.host, snapshot.generation, tuple(_others(shown, ours)))


def _others(shown: Offer, rules: tuple[Rule, ...]) -> Iterator[DraDevice]:
    for each in shown.withheld:
        rule = rule_for(each.device, rules) if each.cause is Cause.OTHER_DOOR else None
        if rule is not None:
            yield DraDevice(each.device, rule, False, each.reason, each.cause)


def without_holds(offered: DraDevice, host: Host) -> DraDevice:
    """The device as this door would show it if nobody held anything, and if its rule were for this door."""
    rule = replace(offered.rule, door=Doors.DRA, uniform=False)
    shown = offer(Snapshot(devices=(offered.device,), host=host), (rule,), NOTHING_HELD, Door.DRA)
    for resource in shown.resources:
        (item,) = resource.devices
        return replace(offered, healthy=item.healthy, reason=item.reason, cause=item.cause, contested=False)
    (kept,) = shown.withheld
    return replace(offered, healthy=False, reason=kept.reason, cause=kept.cause, contested=False)


_Found = tuple[Rule, OfferedDevice]


def _sorted(found: Iterable[_Found], placed: Placement) -> list[_Found]:
    by_name = sorted(found, key=lambda pair: pair[1].device.name)
    alone = [pair for pair in by_name if pair[0].door is not Doors.BOTH]
    both = [pair for pair in reversed(by_name) if pair[0].door is Doors.BOTH]
    alone.sort(key=lambda pair: placed.keys[pair[1].device.name])
    both.sort(key=lambda pair: placed.back[pair[1].device.name])
    return sorted((*alone, *both), key=lambda pair: placed.keys[pair[1].device.name][0])


def _for_this_door(rule: Rule) -> Rule:
    return replace(rule, edits=by_cdi(rule.edits))
