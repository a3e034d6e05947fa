"""How near the devices of a pod are to each other, out of what the agent says about them. Pure."""

from __future__ import annotations

from node.inventory.places import bridges_above
from node.topology.distance import proximity
from node.topology.model import Place
from protos.agent.v1alpha1 import agent_pb2


class DeviceDistances:
    """Distances between devices by the ids that they are offered under.

    The agent's topology has the last word, since an override file may have moved a device; virtual functions, which it
    leaves out, are where their path says.
    """

    def __init__(self, devices: agent_pb2.ListDevicesResponse, topology: agent_pb2.GetTopologyResponse) -> None:
        self._devices = {device.offered_id: device for device in devices.devices if device.offered_id}
        self._places = {place.name: place for place in topology.places}

    def between(self, first: str, second: str) -> str:
        """Their proximity class as ``nvidia-smi topo`` writes it; raises KeyError for an id that is not offered."""
        return proximity(self._place(self._devices[first]), self._place(self._devices[second])).value

    def _place(self, device: agent_pb2.Device) -> Place:
        # A partition is where its GPU is.
        known = self._places.get(device.name) or self._places.get(device.parent)
        if known is not None:
            numa_node = known.numa_node if known.HasField("numa_node") else None
            return Place(device.name, "", known.gpu, tuple(known.path), known.pci_address or None, numa_node)
        numa_node = device.numa_node if device.HasField("numa_node") else None
        path = bridges_above(device.location, device.pci_address)
        return Place(device.name, "", False, path, device.pci_address or None, numa_node)
