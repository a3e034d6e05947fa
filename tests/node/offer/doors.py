"""A GPU in two parts and another one, who may have them, and what either door shows of them."""

from __future__ import annotations

from node.eligibility import offer
from node.inventory.model import Device, DeviceKind
from node.ledger.holds import Hold, HoldState, pending_owner, plugin_owner, wholes_of
from node.ledger.offer_context import OfferContext, by_place
from node.offer import Cause, Offer, OfferedDevice
from node.rules import Door, Doors, Rule, Selector
from node.values import replace
from tests.making.offered_devices import gpu, mig, snapshot

GPU = "nvidia.com/gpu"
ONE = gpu(1)
PART = mig(1, 0)
SIBLING = mig(1, 4)
OTHER = gpu(2)
ALL = (ONE, PART, SIBLING, OTHER)

Shown = tuple[bool, Cause | None] | None
"""Whether it is allocated, and why not; None where the door does not show it."""
GIVEN: Shown = (True, None)


def rule(door: Doors, *kinds: DeviceKind, name: str = GPU) -> Rule:
    return Rule(name, Selector(kinds=kinds or (DeviceKind.GPU, DeviceKind.MIG)), door)


def pod(device: Device, state: HoldState = HoldState.LISTED, resource: str = GPU) -> Hold:
    """What a pod has through the plugin door; DRAINING: what that door may still allocate again."""
    owner = plugin_owner(device.name)
    return Hold(
        device.name, Door.PLUGIN, "team/pod", 1.0, owner, within=wholes_of(device), state=state, resource=resource
    )


def claim(device: Device, uid: str = "uid-1", state: HoldState = HoldState.PREPARED, *, admin: bool = False) -> Hold:
    return Hold(device.name, Door.DRA, "team/claim", 1.0, uid, admin=admin, within=wholes_of(device), state=state)


def draining(device: Device, door: Door | None = None) -> Hold:
    owner = pending_owner(device.name)
    return Hold(device.name, door, "process 41", 1.0, owner, within=wholes_of(device), state=HoldState.PENDING_RELEASE)


def context(*holds: Hold, known: bool = True, **more: object) -> OfferContext:
    named = {key: frozenset(device.name for device in value) for key, value in more.items() if key != "settled"}  # type: ignore[attr-defined]
    return replace(OfferContext(by_place(holds), known, bool(more.get("settled", known))), **named)


def items(found: Offer) -> dict[str, OfferedDevice]:
    return {item.device.name: item for resource in found.resources for item in resource.devices}


def at(door: Door, device: Device, named: Rule, state: OfferContext, *others: Device) -> Shown:
    item = items(offer(snapshot(device, *others), (named,), state, door)).get(device.name)
    return None if item is None else (item.healthy, item.cause)


def both(device: Device, named: Rule, state: OfferContext, *others: Device) -> tuple[Shown, Shown]:
    """At the plugin door, and at the DRA door."""
    return at(Door.PLUGIN, device, named, state, *others), at(Door.DRA, device, named, state, *others)
