"""Where the DRA door's devices are: their attributes of place, and the order in which they should be taken.

Pure. A MIG device or partition is where its GPU is, a virtual function or subfunction where its physical one is; places
that a topology file corrects count for both. Kubernetes takes the first device of the slices that fits, so the order is
a policy: GPUs as ``driver.devices.cells`` says, then parts of GPUs, one GPU after the other, then NICs. Of these, those
that belong to no GPU in particular come first, and leave the others to claims that match a GPU and its NIC; virtual
functions follow each other by port.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from driver.devices.cells import cell_attributes, gpu_order, groups
from driver.devices.switches import Spot, switches
from node.inventory.model import NIC_KINDS, Attribute, Device, DeviceKind, Snapshot
from node.inventory.places import is_whole, place_of
from node.topology.model import Cell, Place, Topology
from node.values import Value, value

Key = tuple[int, int, int, str]
_KINDS = {DeviceKind.GPU: 0, DeviceKind.MIG: 1, DeviceKind.PARTITION: 1}
_NICS = 2
_PART_NUMBERS = ("placementStart", "partition", "vfIndex", "sfNumber")
"""What numbers the parts of one device."""
_NOWHERE = 1 << 30
"""The position of devices that the topology does not know (gone, or a virtual function in a virtual machine): last."""


@value
class Placement(Value):
    """Attributes of place by device name, and by what devices are sorted."""

    attributes: Mapping[str, tuple[Attribute, ...]]
    keys: Mapping[str, Key]


def placement(snapshot: Snapshot, devices: Iterable[Device]) -> Placement:
    """The placement of these devices of the snapshot."""
    chosen = tuple(devices)
    topology = snapshot.topology
    hosts = _hosts(snapshot, chosen)
    strangers = (device for device in chosen if device.kind in NIC_KINDS and topology.place(hosts[device.name]) is None)
    places = (*topology.places, *map(place_of, strangers))
    common = switches(Spot(place.name, place.gpu, place.path) for place in places)
    parts = groups(topology.root) if topology.root is not None else {}
    cells = cell_attributes(parts)
    gpus = gpu_order(parts)
    order = {name: number for number, name in enumerate((*gpus, *_nic_order(topology, gpus)))}
    attributes: dict[str, tuple[Attribute, ...]] = {}
    keys: dict[str, Key] = {}
    for device in chosen:
        host = hosts[device.name]
        switch = (Attribute("switch", common[host]),) if host in common else ()
        attributes[device.name] = (*cells.get(device.name, ()), *switch)
        keys[device.name] = _key(device, order.get(host, _NOWHERE))
    return Placement(attributes, keys)


def _hosts(snapshot: Snapshot, devices: Iterable[Device]) -> dict[str, str]:
    """The device in whose place each device is, which is often the device itself."""
    functions = {place.address: place.name for place in snapshot.topology.places if not place.gpu}
    hosts = {}
    for device in devices:
        hosts[device.name] = device.parent or device.name
        if device.kind in NIC_KINDS and not is_whole(device):
            hosts[device.name] = functions.get(device.text("pfPciAddress"), device.name)
    return hosts


def _key(device: Device, position: int) -> Key:
    numbers = (device.attribute(name) for name in _PART_NUMBERS)
    number = next((number for number in numbers if isinstance(number, int)), -1)
    return _KINDS.get(device.kind, _NICS), position, number, device.name


def _nic_order(topology: Topology, gpus: Iterable[str]) -> Iterator[str]:
    """NICs in the order in which they should be taken: those of the widest cells first, then along the GPUs."""
    positions = {name: number for number, name in enumerate(gpus)}
    cells = {nic: cell for cell in _cells(topology.root) for nic in cell.nics}

    def rank(nic: Place) -> tuple[int, int]:
        cell = cells.get(nic.name)
        return (0, 0) if cell is None else (-len(cell.gpus), min(positions[gpu] for gpu in cell.gpus))

    yield from (nic.name for nic in sorted((place for place in topology.places if not place.gpu), key=rank))


def _cells(root: Cell | None) -> Iterator[Cell]:
    if root is not None:
        yield root
        for child in root.children:
            yield from _cells(child)
