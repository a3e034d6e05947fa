"""A device as a ResourceSlice has it.

Pure, and the same bytes for the same device, so that nothing is written where nothing changed. Where a device has more
facts than the API takes, ours that claims choose by come first, then the peers' in their order, then the rest of ours;
``driver.devices.own_facts`` has the order of these.
"""

from __future__ import annotations

from driver.devices.fact import sections
from driver.devices.offered import DraDevice
from driver.devices.own_facts import own_facts
from driver.devices.peer import Peer
from driver.devices.peers import peer_facts
from driver.devices.taints import taints
from kube.bodies import JsonObject


def slice_device(offered: DraDevice, peers: tuple[Peer, ...] = ()) -> JsonObject:
    """The device as resource.k8s.io/v1 has it in a slice."""
    first, rest = own_facts(offered)
    facts = [*first, *(fact for peer in peers for fact in peer_facts(peer, offered)), *rest]
    attributes, capacity = sections(facts)
    device: JsonObject = {"name": offered.device.name, "attributes": attributes}
    if capacity:
        device["capacity"] = capacity
    if tainted := taints(offered):
        device["taints"] = tainted
    return device
