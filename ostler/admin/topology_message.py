"""Topology as a message of the agent's own service, and back: both sides of ``GetTopology``."""

from __future__ import annotations

from collections.abc import Mapping

from node.inventory.model import Device, DeviceKind, Snapshot
from node.topology.model import Cell, CellLevel, Place, Topology
from protos.agent.v1alpha1 import agent_pb2


def topology_message(snapshot: Snapshot) -> agent_pb2.GetTopologyResponse:
    """The message that says the same as the snapshot's topology."""
    topology = snapshot.topology
    devices = {device.name: device for device in snapshot.devices}
    return agent_pb2.GetTopologyResponse(
        generation=snapshot.generation,
        places=[_place_message(place, devices) for place in topology.places],
        root=None if topology.root is None else _cell_message(topology.root),
        overridden=topology.overridden,
    )


def topology_from(message: agent_pb2.GetTopologyResponse) -> Topology:
    """The topology that a message tells of; raises ``ValueError`` for a level of cells that this version lacks."""
    root = _cell(message.root) if message.HasField("root") else None
    return Topology(tuple(_place(place) for place in message.places), root, tuple(message.overridden))


def _place_message(place: Place, devices: Mapping[str, Device]) -> agent_pb2.Place:
    device = devices.get(place.name)
    return agent_pb2.Place(
        name=place.name,
        label=place.label,
        gpu=place.gpu,
        path=place.path,
        pci_address=place.address or "",
        numa_node=place.numa_node,
        links=[agent_pb2.PeerLinks(peer=peer, count=count) for peer, count in place.links],
        switch_links=place.switch_links,
        product="" if device is None else _product(device),
    )


def _product(device: Device) -> str:
    if device.kind is DeviceKind.GPU:
        return device.text("productName")
    return device.text("ifName") or device.text("rdmaDevice")


def _place(message: agent_pb2.Place) -> Place:
    return Place(
        name=message.name,
        label=message.label,
        gpu=message.gpu,
        path=tuple(message.path),
        address=message.pci_address or None,
        numa_node=message.numa_node if message.HasField("numa_node") else None,
        links=tuple((link.peer, link.count) for link in message.links),
        switch_links=message.switch_links,
    )


def _cell_message(cell: Cell) -> agent_pb2.Cell:
    children = [_cell_message(child) for child in cell.children]
    return agent_pb2.Cell(name=cell.name, level=cell.level.value, gpus=cell.gpus, children=children, nics=cell.nics)


def _cell(message: agent_pb2.Cell) -> Cell:
    return Cell(
        name=message.name,
        level=CellLevel(message.level),
        gpus=tuple(message.gpus),
        children=tuple(_cell(child) for child in message.children),
        nics=tuple(message.nics),
    )
