"""What the offer of one door has to know of the other: one frozen value, made for each decision.

Its defaults say that nobody holds anything and all is known, as on a node with one door.
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

    ``holds``: by every device that a hold is of or within, in the order of the ledger. ``known``: whether everything
    that the plugin door has given out is among them, as far as the kubelet knew its devices; ``settled``: no instance
    before this one can have given out anything since. ``at_kubelet``: what the kubelet may count as allocatable, by any
    plugin. ``at_scheduler``: what may still be free in a slice, or named by a claim that nobody has prepared here.
    ``listed``: what the plugin door lists at the moment, and ``offered`` what of it is healthy, but for what claims may
    get and was left at that door only while nothing was known. ``contested``: held through the plugin door by a live
    pod while a claim of a pod on this node was allocated it.
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
        """The first hold of the device itself through this door; admin access and pending release are none."""
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

    def obstacle(self, device: Device, door: Door) -> Hold | None:
        """What keeps the device from being given out through this door to anybody new, were it not held there."""
        wanted = Hold(device.name, door, "", 0.0, within=wholes_of(device))
        for place in (device.name, *wanted.within):
            for hold in self.holds.get(place, ()):
                if hold.device == device.name and hold.door is door:
                    continue
                if door is Door.PLUGIN and not self.known and hold.state is HoldState.RESERVED:
                    # Perhaps a pod has it, and the claim has lost: a wish must not make it look ill.
                    continue
                if excludes(hold, wanted):
                    return hold
        return None


NOTHING_HELD = OfferContext()
"""Nobody has anything, and everything is known."""


def by_place(holds: Iterable[Hold]) -> Mapping[str, tuple[Hold, ...]]:
    """The holds by every device that they are of or within, for ``OfferContext``."""
    found: dict[str, list[Hold]] = {}
    for hold in holds:
        for place in (hold.device, *hold.within):
            found.setdefault(place, []).append(hold)
    return {place: tuple(those) for place, those in found.items()}
