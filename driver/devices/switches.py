"""The PCIe switch that GPUs and NICs have in common, as an attribute that a claim can match them by.

``pcieRoot`` is too wide for that on machines with several switches below one root complex. The value of ``switch`` is
the address of a bridge: for a GPU and a NIC the innermost one that is above both a GPU and a NIC. Where a GPU would be
left without any NIC that way, although a switch further in has some, all below the outer bridge share its address, so
that every GPU with a NIC within reach of switches has one to match. A device without such company has the outermost
bridge above it. One that sits on the root complex itself, or whose place is unknown, has no value: a match with it
would promise what nobody knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from node.values import Record, Value, record, value


@value
class Spot(Value):
    """A GPU or NIC by name, and what is above it: host bridge and bridges, outermost first, as ``Place`` has it."""

    name: str
    gpu: bool
    path: tuple[str, ...]


@record
class _Bridge(Record):
    """A bridge (or host bridge) with what is directly below it."""

    name: str
    spots: list[Spot] = field(default_factory=list)
    bridges: dict[str, _Bridge] = field(default_factory=dict)


def switches(spots: Iterable[Spot]) -> Mapping[str, str]:
    """The address of the common switch of every device that has one, by the device's name."""
    root = _Bridge("")
    for spot in spots:
        bridge = root
        for name in spot.path:
            bridge = bridge.bridges.setdefault(name, _Bridge(name))
        bridge.spots.append(spot)
    found: dict[str, str] = {}
    for host_bridge in root.bridges.values():
        for bridge in host_bridge.bridges.values():
            settled, alone = _below(bridge)
            found |= settled | {spot.name: bridge.name for spot in alone}
    return found


def _below(bridge: _Bridge) -> tuple[dict[str, str], list[Spot]]:
    """Devices below the bridge that have company of the other kind, with their switch; and those that have none."""
    settled: dict[str, str] = {}
    alone = list(bridge.spots)
    for inner in bridge.bridges.values():
        found, left = _below(inner)
        settled |= found
        alone += left
    gpus = [spot for spot in alone if spot.gpu]
    if gpus and len(gpus) < len(alone):
        return settled | {spot.name: bridge.name for spot in alone}, []
    if gpus and settled:
        return dict.fromkeys((*settled, *(spot.name for spot in gpus)), bridge.name), []
    return settled, alone
