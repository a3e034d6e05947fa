"""From a snapshot to what the DRA door shows: the offer of that door, placed and in the order of the slices.

Pure, and one decision with ``node.offer``: nothing here adds or hides a device. What differs from the plugin door is
how containers get devices: by CDI, whatever list strategies a rule has, so a device is fit when CDI can describe it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from driver.claims.edits import by_cdi
from driver.devices.offered import DoorView, DraDevice
from driver.devices.placement import placement
from node.inventory.model import Snapshot
from node.ledger import Hold
from node.offer import Offer, offer
from node.rules import Door, Rule
from node.values import replace


def door_view(snapshot: Snapshot, rules: Iterable[Rule], holds: Mapping[str, Hold]) -> DoorView:
    """What the DRA door shows of the snapshot; ``holds`` by device name, as for ``node.offer.offer``."""
    return view_of(snapshot, door_offer(snapshot, rules, holds))


def door_offer(snapshot: Snapshot, rules: Iterable[Rule], holds: Mapping[str, Hold]) -> Offer:
    """The offer behind it, which also tells what is withheld."""
    return offer(snapshot, map(_for_this_door, rules), holds, Door.DRA)


def view_of(snapshot: Snapshot, shown: Offer) -> DoorView:
    """The view of that offer."""
    found = [(resource.rule, item) for resource in shown.resources for item in resource.devices]
    placed = placement(snapshot, (item.device for _, item in found))
    found.sort(key=lambda pair: placed.keys[pair[1].device.name])
    devices = tuple(
        DraDevice(item.device, rule, item.healthy, item.reason, item.cause, placed.attributes[item.device.name])
        for rule, item in found
    )
    return DoorView(devices, snapshot.host, snapshot.generation)


def _for_this_door(rule: Rule) -> Rule:
    return replace(rule, edits=by_cdi(rule.edits)) if rule.door is Door.DRA else rule
