"""What one door's offer must know about the other door: one frozen value, made for each decision.

The defaults say that nobody holds anything and everything is known, as on a node with one door.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from node.inventory.model import Device
from node.ledger.ledger import Hold, HoldState, excludes, wholes_of
from node.rules import Door
from node.values import Value, value

_NONE: frozenset[str] = frozenset()


@value
class OfferContext(Value):
    """Who holds devices, and which door may still show them to its scheduler; devices by name.

    ``holds``: by every device that a hold is of or within, in the order of the ledger. ``known``: whether they include
    everything that the plugin door has given out, as far as the kubelet knew its devices; ``settled``: no earlier
    instance can have given out anything since. ``at_kubelet``: what the kubelet may count as allocatable, through any
    plugin. ``at_scheduler``: what may still be free in a slice, or named by a claim that is not prepared here.
    ``listed``: what the plugin door lists at the moment, and ``offered`` its healthy devices, without those for claims
    that it lists only because nothing was known. ``contested``: held through the plugin door by a live pod, though
    allocated to a claim of a pod on this node.
    """

    holds: Mapping[str, tuple[Hold, ...]] = field(default_factory=dict)
    known: bool = True
    settled: bool = True
    at_kubelet: frozenset[str] = _NONE
    at_scheduler: frozenset[str] = _NONE
    listed: frozenset[str] = _NONE
    offered: frozenset[str] = _NONE
    contested: frozenset[str] = _NONE

    def held(self, device: Device, door: Door) -> Hold | None:
        """The first hold of the device itself through this door, not counting admin access and pending release."""
        return next(
            (
                hold
                for hold in self.holds.get(device.name, ())
                if hold.device == device.name
                and hold.door is door
                and not hold.admin
                and hold.state is not HoldState.PENDING_RELEASE
            ),
            None,
        )

    def obstacle(self, device: Device, door: Door, *, counted: bool = False) -> Hold | None:
        """What keeps the device from being given out through this door to anybody new, were it not held there.

        ``counted``: the door's scheduler knows by itself which devices exclude each other.
        """
        wanted = Hold(device.name, door, "", 0.0, within=wholes_of(device))
        for place in (device.name, *wanted.within):
            for hold in self.holds.get(place, ()):
                if hold.door is door and (counted or hold.device == device.name):
                    continue
                if door is Door.PLUGIN and not self.known and hold.state is HoldState.RESERVED:
                    # A pod may have it, so that the claim has lost: a reservation must not make it look unhealthy.
                    continue
                if excludes(hold, wanted):
                    return hold
        return None


NOTHING_HELD = OfferContext()
"""Nobody has anything, and everything is known."""


def by_place(holds: Iterable[Hold]) -> Mapping[str, tuple[Hold, ...]]:
    """The holds by every device that they are of or within, for ``OfferContext.holds``."""
    found: dict[str, list[Hold]] = {}
    for hold in holds:
        for place in (hold.device, *hold.within):
            found.setdefault(place, []).append(hold)
    return {place: tuple(those) for place, those in found.items()}
