"""A device whose link or fabric comes and goes is described as it was without it, until that is over.

Pure. Attributes of a NIC's link (up, state, speed) and the clique of a GPU stand in what schedulers read; without this
one that flaps would be written to the API server at each turn, although its health is held steady.
"""

from __future__ import annotations

from collections.abc import Mapping

from node.inventory.model import AttributeValue, Device, sorted_attributes
from node.values import replace

_MOMENTARY = ("linkUp", "operState", "linkSpeedMbps", "rdmaPortState", "rdmaRateGbps")

LinkFacts = Mapping[str, AttributeValue | None]


def link_facts(device: Device) -> LinkFacts:
    """What a scan said of the link."""
    found = {each.name: each.value for each in device.attributes}
    return {name: found.get(name) for name in _MOMENTARY}


def with_link_down(device: Device, down: LinkFacts | None) -> Device:
    """The device with its link down: as a scan found it then, or as one is likely to where none has yet (None)."""
    facts = _guessed(device) if down is None else down
    if link_facts(device) == facts:
        return device
    kept = [(each.name, each.value) for each in device.attributes if each.name not in facts]
    return replace(device, attributes=sorted_attributes([*kept, *facts.items()]))


def without_clique(device: Device) -> Device:
    """The GPU as no part of its clique."""
    if device.attribute("clique") is None:
        return device
    return replace(device, attributes=tuple(each for each in device.attributes if each.name != "clique"))


def _guessed(device: Device) -> LinkFacts:
    facts = link_facts(device)
    if facts["linkUp"] is not True:
        return facts
    state = None if facts["operState"] is None else "down"
    return {**facts, "linkUp": False, "operState": state, "linkSpeedMbps": None}
