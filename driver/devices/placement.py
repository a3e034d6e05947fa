"""Where the DRA door's devices are: their attributes of place, and the order in which they should be taken.

Pure. A MIG device or partition is where its GPU is, a virtual function or subfunction where its physical one is; places
that a topology file corrects count for both. Kubernetes takes the first device of the slices that fits, so the order is
a policy: GPUs as ``driver.devices.cells`` says, then parts of GPUs, one GPU after the other, then NICs. Of these, those
that belong to no GPU in particular come first, and leave the others to claims that match a GPU and its NIC; virtual
functions follow each other by port.

A device that the plugin door gives out as well has its place in a second order, in which equals come from the back:
that door takes from the front, so the two meet only when little is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from driver.devices.cells import cell_attributes, gpu_order, groups
from driver.devices.switches import Spot, switches
from node.inventory.model import NIC_KINDS, Attribute, Device, DeviceKind, Snapshot
from node.inventory.places import is_whole, place_of
from node.topology.model import Cell, Place, Topology
from node.values import Value, value

Key = tuple[int, int, int]
_KINDS = {DeviceKind.GPU: 0, DeviceKind.MIG: 1, DeviceKind.PARTITION: 1}
_NICS = 2
_PART_NUMBERS = ("placementStart", "partition", "vfIndex", "sfNumber")
"""What numbers the parts of one device."""
_NOWHERE = 1 << 30
"""The position of devices that the topology does not know (gone, or a virtual function in a virtual machine): last."""


@value
class Placement(Value):
    """By device name: attributes of place, and by what devices are sorted, ``back`` those that both doors give out.

    Devices of one key come by their names.
    """

    attributes: Mapping[str, tuple[Attribute, ...]]
    keys: Mapping[str, Key]
    back: Mapping[str, Key]


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
    order, back_order = _order(topology, gpu_order(parts)), _order(topology, gpu_order(parts, from_back=True), -1)
    attributes: dict[str, tuple[Attribute, ...]] = {}
    keys: dict[str, Key] = {}
    back: dict[str, Key] = {}
    for device in chosen:
        host = hosts[device.name]
        switch = (Attribute("switch", common[host]),) if host in common else ()
        attributes[device.name] = (*cells.get(device.name, ()), *switch)
        kind, number = _KINDS.get(device.kind, _NICS), _number(device)
        keys[device.name] = kind, order.get(host, _NOWHERE), number
        back[device.name] = kind, back_order.get(host, _NOWHERE), -number
    return Placement(attributes, keys, back)


def _hosts(snapshot: Snapshot, devices: Iterable[Device]) -> dict[str, str]:
    """The device in whose place each device is, which is often the device itself."""
    functions = {place.address: place.name for place in snapshot.topology.places if not place.gpu}
    hosts = {}
    for device in devices:
        hosts[device.name] = device.parent or device.name
        if device.kind in NIC_KINDS and not is_whole(device):
            hosts[device.name] = functions.get(device.text("pfPciAddress"), device.name)
    return hosts


def _number(device: Device) -> int:
    """Where a part of a device is among its parts, -1 for what is none."""
    numbers = (device.attribute(name) for name in _PART_NUMBERS)
    return next((number for number in numbers if isinstance(number, int)), -1)


def _order(topology: Topology, gpus: tuple[str, ...], step: int = 1) -> Mapping[str, int]:
    """Positions by name: the GPUs in their order, and NICs, equal ones from the back where ``step`` is -1."""
    nics = [place for place in topology.places if not place.gpu]
    return {name: number for number, name in enumerate((*gpus, *_nic_order(topology, gpus, nics[::step])))}


def _nic_order(topology: Topology, gpus: Iterable[str], nics: Iterable[Place]) -> Iterator[str]:
    """NICs in the order in which they should be taken: those of the widest cells first, then along the GPUs."""
    positions = {name: number for number, name in enumerate(gpus)}
    cells = {nic: cell for cell in _cells(topology.root) for nic in cell.nics}

    def rank(nic: Place) -> tuple[int, int]:
        cell = cells.get(nic.name)
        return (0, 0) if cell is None else (-len(cell.gpus), min(positions[gpu] for gpu in cell.gpus))

    yield from (nic.name for nic in sorted(nics, key=rank))


def _cells(root: Cell | None) -> Iterator[Cell]:
    if root is not None:
        yield root
        for child in root.children:
            yield from _cells(child)
