"""What one door's offer must know about the other door: one frozen value, made for each decision.

The defaults say that nobody holds anything and everything is known, as on a node with one door.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from node.inventory.model import Device
from node.ledger.holds import Hold, HoldState, excludes, slices_of, wholes_of
from node.rules import Door
from node.sharing import Amounts, SharedDevice, left_of, room_for
from node.values import Value, quick, replace, value

_NONE: frozenset[str] = frozenset()


@quick
@value
class ReplicaState(Value):
    """The facts about one replica of a shared device; all of the device for an empty ``share``.

    ``held``: the hold of the pods that have it, so that the kubelet knows that it is taken. ``by``: what keeps it from
    pods otherwise, which is a share of the device that leaves too little where it is ``crowded``.
    """

    share: str
    held: Hold | None = None
    by: Hold | None = None
    crowded: bool = False


@value
class OfferContext(Value):
    """Who holds devices, and which door may still show them to its scheduler; devices by name.

    ``holds``: by every device that a hold is of or within, in the order of the ledger. ``known``: whether they include
    everything that the plugin door has allocated, as far as the kubelet knew its devices; ``settled``: no earlier
    instance can have allocated anything since. ``at_kubelet``: what the kubelet may count as allocatable, through any
    plugin. ``at_scheduler``: what may still be free in a slice, or named by a claim that is not prepared here.
    ``listed``: what the plugin door lists at the moment, and ``offered`` its healthy devices, without those for claims
    that it lists only because nothing was known. ``contested``: held through the plugin door by a live pod, though
    allocated to a claim of a pod on this node. ``made``: UUIDs of instances that were made for claims and go with them.
    ``unmovable``: why interfaces of NICs cannot move into pods at present, empty if they can.
    """

    holds: Mapping[str, tuple[Hold, ...]] = field(default_factory=dict)
    known: bool = True
    settled: bool = True
    at_kubelet: frozenset[str] = _NONE
    at_scheduler: frozenset[str] = _NONE
    listed: frozenset[str] = _NONE
    offered: frozenset[str] = _NONE
    contested: frozenset[str] = _NONE
    made: frozenset[str] = _NONE
    unmovable: str = ""

    def held(self, device: Device, door: Door) -> Hold | None:
        """The first hold of the device itself through this door, not counting admin access and pending release."""
        own = self.own(device.name)
        return next((hold for hold in own if hold.door is door and not _is_pending(hold)), None)

    def own(self, device: str) -> list[Hold]:
        """The holds of the device itself, without those with admin access."""
        return [hold for hold in self.holds.get(device, ()) if hold.device == device and not hold.admin]

    def obstacle(
        self, device: Device, door: Door, *, counted: bool = False, shared: SharedDevice | None = None
    ) -> Hold | None:
        """The hold that excludes allocating the device through this door, apart from holds of that door itself.

        ``counted``: the door's scheduler knows by itself which devices exclude each other. ``shared``: it allocates
        shares of the device, which shares of the other door do not exclude.
        """
        around = [
            hold
            for hold in self._around(device.name, wholes_of(device), door)
            if hold.door is not door or not (counted or hold.device == device.name)
        ]
        if not around:
            # So it is of most devices, and each change of what is held asks about all of them.
            return None
        wanted = _wanted(device, door, shared)
        return next((hold for hold in around if excludes(hold, wanted)), None)

    def replicas(self, device: Device, shared: SharedDevice) -> tuple[ReplicaState, ...]:
        """The device's replicas, then those that pods have by an earlier rule, which may be all of the device.

        Of the free replicas, the first ones are without an obstacle: as many as fit beside everything that is held. A
        replica that is about to be free does not count as held, because Allocate waits for it.
        """
        wanted = _wanted(device, Door.PLUGIN, shared)
        around = self._around(device.name, wanted.within, Door.PLUGIN)
        own = [hold for hold in around if hold.device == device.name and not hold.admin]
        pending = {hold.share: hold for hold in own if hold.state is HoldState.PENDING_RELEASE}
        pods = {hold.share: hold for hold in own if hold.door is Door.PLUGIN and hold.share not in pending}
        by = next((hold for hold in around if excludes(hold, wanted)), None)
        shares = [hold for hold in own if hold.share]
        lasting = [hold for hold in shares if not (_is_pending(hold) and hold.door is Door.PLUGIN)]
        room = room_for(shared.amounts, left_of(shared.whole, [hold.amounts for hold in lasting]))
        others = sorted(shares, key=lambda hold: (hold.door is Door.PLUGIN, _is_pending(hold)))
        found = []
        for number in dict.fromkeys((*map(str, range(shared.replicas)), *pods)):
            kept = pending.get(number) if number else None
            if number in pods:
                found.append(ReplicaState(number, pods[number]))
            elif by is not None or (kept is not None and kept.door is not Door.PLUGIN):
                found.append(ReplicaState(number, by=kept or by))
            elif room > 0 or not self.known:
                # While it is not known which replicas pods have, it can be any of them; Allocate has the last word.
                room -= 1
                found.append(ReplicaState(number))
            else:
                found.append(ReplicaState(number, by=others[0] if others else None, crowded=True))
        return tuple(found)

    def left(self, device: Device, whole: Amounts) -> Mapping[str, int]:
        """The amounts that the shares of the device leave, by name; empty if somebody has all of it or a part."""
        wanted = replace(_wanted(device, Door.PLUGIN, None), share="*", amounts=whole, whole=whole)
        around = [hold for hold in self._around(device.name, wanted.within, Door.PLUGIN) if not hold.admin]
        if any(excludes(hold, wanted) for hold in around):
            return dict.fromkeys((name for name, _ in whole), 0)
        return left_of(whole, [hold.amounts for hold in around if hold.device == device.name and hold.share])

    def _around(self, device: str, within: tuple[str, ...], door: Door) -> list[Hold]:
        """The holds of a device, of what it is within, and of what shares a whole with it; asked by this door."""
        found = list(self.holds.get(device, ()))
        for place in within:
            found += [hold for hold in self.holds.get(place, ()) if hold.device != device]
        if door is Door.PLUGIN and not self.known:
            # A pod may have it, so that the claim has lost: a reservation must not make it look unhealthy.
            return [hold for hold in found if hold.state is not HoldState.RESERVED]
        return found


def _wanted(device: Device, door: Door, shared: SharedDevice | None) -> Hold:
    """The hold of a new pod or claim: a share that nobody has, or the whole device."""
    whole = Hold(device.name, door, "", 0.0, within=wholes_of(device), slices=slices_of(device))
    return whole if shared is None else replace(whole, share="*", amounts=shared.amounts, whole=shared.whole)


def _is_pending(hold: Hold) -> bool:
    return hold.state is HoldState.PENDING_RELEASE


NOTHING_HELD = OfferContext()
"""Nobody has anything, and everything is known."""


def by_place(holds: Iterable[Hold]) -> Mapping[str, tuple[Hold, ...]]:
    """The holds by every device that they are of or within, for ``OfferContext.holds``."""
    found: dict[str, list[Hold]] = {}
    for hold in holds:
        for place in (hold.device, *hold.within):
            found.setdefault(place, []).append(hold)
    return {place: tuple(those) for place, those in found.items()}
