"""Scenes for tests: recorded nodes, and one whose texts are hostile."""

from __future__ import annotations

from node.inventory.devices import devices_of
from node.inventory.identity import Identities
from node.inventory.model import Snapshot
from node.inventory.places import places_of
from node.inventory.recordings.source import read
from node.offer import Offer
from node.topology.cells import topology_of
from node.topology.model import Place, PlaceOverride
from ostler.admin.messages import devices_message
from ostler.drawing.scene import Caption, Scene, captions_of
from sandbox.nodes import path

HOSTILE = ("</text><script>alert(1)</script>", "a & b", '" onload="x', "\x1b[31mred\x00", "]]>", "\ud800", "名前" * 9)


def recorded(name: str, overrides: tuple[PlaceOverride, ...] = ()) -> Scene:
    devices = devices_of(read(path(name)).facts, Identities())
    messages = devices_message(Snapshot(1, devices), Offer()).devices
    return Scene(name, topology_of(places_of(devices), overrides), captions_of(messages))


def hostile() -> Scene:
    places = [
        Place(f"nic-{number}", f"NIC{number}", False, ("pci0000:00", text), text, number % 2)
        for number, text in enumerate(HOSTILE)
    ]
    captions = {place.name: Caption(text, text, None, text, text) for place, text in zip(places, HOSTILE, strict=True)}
    return Scene(HOSTILE[0], topology_of(places), captions)
