"""Places the DRA door's devices: their attributes of place, and the order in which schedulers should take them.

Pure. A MIG device or partition is where its GPU is, a virtual function or subfunction where its physical one is;
corrections of a topology file count for both.

Kubernetes takes the first device of the slices that fits, so the order is a policy: GPUs by their cells, then parts of
GPUs, one GPU after the other, then NICs. NICs that belong to no GPU in particular come first, and leave the others to
claims that match a GPU and its NIC; virtual functions follow each other by port. A device that the plugin door offers
as well has its place in a second order, in which equal devices are reversed: that door takes from the front, so the two
meet only when few are left.

**Cells** of two, four, eight, ... GPUs become attributes, so that a claim gets an island by matching one of them.
``cell4`` divides the GPUs of a node into groups of at most four that belong together by the tree of cells: a request
for four GPUs that must agree in ``cell4`` gets such a whole group, or waits. A request for three matches ``cell4``,
too: the least power of two that holds it. Groups nest, every ``cell2`` is within one ``cell4``. If the tree has no cell
of that size, neighbours in it are grouped in their order, but never GPUs of a larger divided cell with those of another
one. So a node with three GPUs on each socket has groups of three in ``cell4`` and none of four, because four GPUs on it
are no island; ``cell8`` holds all six. The order of GPUs comes from the same groups: incomplete groups come first, at
every size, so single GPUs fill these, and whole islands remain for larger requests.

**Switches** become attributes as well. ``pcieRoot`` is too wide to match a GPU and its NIC on machines with several
switches below one root complex. The value of ``switch`` is the address of a bridge: for a GPU and a NIC the innermost
one above both a GPU and a NIC. If a GPU would have no NIC that way, although a switch further in has some, all devices
below the outer bridge share its address, so that every GPU with a NIC within reach of switches has one to match. Any
other device has the outermost bridge above it. A device directly on the root complex, or at an unknown place, has no
value: a match would promise something unknown.

**Rails** number the NICs beside GPUs. A cluster that is built in rails connects the NICs of one number on all nodes to
the same leaf switches, so pods that talk to each other want NICs of one rail. The number follows the order of the GPUs,
which is the same on all nodes of a model. NICs without an RDMA device, and those without a GPU below the same switch
(management, storage), are at no rail. A GPU has the number of the NIC that it pairs with: of two GPUs and two NICs
below one switch, the second ones pair with each other, so a claim that matches ``rail`` gets exactly this pair.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from node.inventory.model import NIC_KINDS, Attribute, Device, DeviceKind, Snapshot
from node.inventory.places import is_whole, place_of
from node.topology.model import Cell, Place, Topology
from node.values import Record, Value, record, remembers, value

Key = tuple[int, int, int]
_KINDS = {DeviceKind.GPU: 0, DeviceKind.MIG: 1, DeviceKind.PARTITION: 1}
_NICS = 2
_PART_NUMBERS = ("placementStart", "partition", "vfIndex", "sfNumber")
"""The attribute that numbers the parts of one device."""
_NOWHERE = 1 << 30
"""The position of devices that the topology lacks (gone, or a virtual function in a virtual machine): last."""


@value
class DevicePlacement(Value):
    """By device name: attributes of place, and sort keys; ``back``: the keys of devices that both doors offer.

    Devices of one key are sorted by name.
    """

    attributes: Mapping[str, tuple[Attribute, ...]]
    keys: Mapping[str, Key]
    back: Mapping[str, Key]


_UNNUMBERED: Mapping[str, int] = {}


def placement(
    snapshot: Snapshot, devices: Iterable[Device], numbers: Mapping[str, int] = _UNNUMBERED
) -> DevicePlacement:
    """The placement of these devices of the snapshot.

    ``numbers``: the position of parts within their device, for parts that have no attribute for it.
    """
    chosen = tuple(devices)
    topology = snapshot.topology
    hosts = _hosts(snapshot, chosen)
    unplaced = (device for device in chosen if device.kind in NIC_KINDS and topology.place(hosts[device.name]) is None)
    places = (*topology.places, *map(place_of, unplaced))
    shared = _shared_placement(topology, _rdma_nics(snapshot))
    cells, order, back_order = shared.cells, shared.order, shared.back
    common = shared.switches if places == topology.places else _switches(places)
    numbered = shared.rails
    attributes: dict[str, tuple[Attribute, ...]] = {}
    keys: dict[str, Key] = {}
    back: dict[str, Key] = {}
    for device in chosen:
        host = hosts[device.name]
        switch = (Attribute("switch", common[host]),) if host in common else ()
        rail = (Attribute("rail", numbered[host]),) if host in numbered else ()
        attributes[device.name] = (*cells.get(device.name, ()), *rail, *switch)
        kind, number = _KINDS.get(device.kind, _NICS), numbers.get(device.name)
        if number is None:
            number = _number(device)
        keys[device.name] = kind, order.get(host, _NOWHERE), number
        back[device.name] = kind, back_order.get(host, _NOWHERE), -number
    return DevicePlacement(attributes, keys, back)


@value
class _SharedPlacement(Value):
    """The parts that placements on one topology share, by the name of the device whose place counts."""

    cells: Mapping[str, tuple[Attribute, ...]]
    order: Mapping[str, int]
    back: Mapping[str, int]
    switches: Mapping[str, str]
    rails: Mapping[str, int]


@remembers
def _shared_placement(topology: Topology, rdma: frozenset[str]) -> _SharedPlacement:
    parts = groups(topology.root) if topology.root is not None else {}
    order, back = _order(topology, gpu_order(parts)), _order(topology, gpu_order(parts, from_back=True), -1)
    common = _switches(topology.places)
    return _SharedPlacement(cell_attributes(parts), order, back, common, rails(topology.places, common, rdma))


def _rdma_nics(snapshot: Snapshot) -> frozenset[str]:
    """The names of the NICs in the topology that have an RDMA device."""
    nics = {place.name for place in snapshot.topology.places if not place.gpu}
    return frozenset(each.name for each in snapshot.devices if each.name in nics and each.text("rdmaDevice"))


def _switches(places: Iterable[Place]) -> Mapping[str, str]:
    return switches(Spot(place.name, place.gpu, place.path) for place in places)


def _hosts(snapshot: Snapshot, devices: Iterable[Device]) -> dict[str, str]:
    """The device whose place each device has, often the device itself."""
    functions = {place.address: place.name for place in snapshot.topology.places if not place.gpu}
    hosts = {}
    for device in devices:
        hosts[device.name] = device.parent or device.name
        if device.kind in NIC_KINDS and not is_whole(device):
            hosts[device.name] = functions.get(device.text("pfPciAddress"), device.name)
    return hosts


def _number(device: Device) -> int:
    """The number of a part among the parts of its device, -1 for a device that is not a part."""
    numbers = (device.attribute(name) for name in _PART_NUMBERS)
    return next((number for number in numbers if isinstance(number, int)), -1)


def _order(topology: Topology, gpus: tuple[str, ...], step: int = 1) -> Mapping[str, int]:
    """Positions by name: the GPUs in their order, and NICs, with equal ones reversed if ``step`` is -1."""
    nics = [place for place in topology.places if not place.gpu]
    return {name: number for number, name in enumerate((*gpus, *_nic_order(topology, gpus, nics[::step])))}


def _nic_order(topology: Topology, gpus: Iterable[str], nics: Iterable[Place]) -> Iterator[str]:
    """NICs in the order in which schedulers should take them: those of the widest cells first, then along the GPUs."""
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


_SIZES = (2, 4, 8)
"""Sizes of groups on every node, so that one claim works on nodes of any size; larger nodes have larger sizes, too."""


@value
class GpuGroup(Value):
    """GPUs by name, in order, and the group's name."""

    label: str
    gpus: tuple[str, ...]


def groups(root: Cell) -> dict[int, tuple[GpuGroup, ...]]:
    """The groups of every size, in the order of the tree; the groups of one size hold all GPUs."""
    sizes = list(_SIZES)
    while sizes[-1] < len(root.gpus):
        sizes.append(2 * sizes[-1])
    known: _Known = {}
    return {size: tuple(_groups(root, size, known)) for size in sizes}


def cell_attributes(parts: dict[int, tuple[GpuGroup, ...]]) -> dict[str, tuple[Attribute, ...]]:
    """``cell2``, ``cell4``, ... of every GPU, by its name."""
    found: dict[str, list[Attribute]] = {}
    for size, partition in parts.items():
        for group in partition:
            cell = Attribute(f"cell{size}", group.label)
            for gpu in group.gpus:
                found.setdefault(gpu, []).append(cell)
    return {gpu: tuple(cells) for gpu, cells in found.items()}


def gpu_order(parts: dict[int, tuple[GpuGroup, ...]], *, from_back: bool = False) -> tuple[str, ...]:
    """All GPUs in the order in which schedulers should take them: groups stay together, smaller ones first.

    ``from_back``: equal ones are reversed.
    """
    sign = -1 if from_back else 1
    keys: dict[str, list[int]] = {}
    for size in sorted(parts, reverse=True):
        for number, group in enumerate(parts[size]):
            for position, gpu in enumerate(group.gpus):
                within = sign * position if size == min(parts) else 0
                keys.setdefault(gpu, []).extend((len(group.gpus), sign * number, within))
    return tuple(sorted(keys, key=keys.__getitem__))


_Known = dict[tuple[str, tuple[str, ...], int], list[GpuGroup]]
"""Groups by cell (name and GPUs) and size: the halves of one size are the groups of the one below."""


def _groups(cell: Cell, size: int, known: _Known) -> list[GpuGroup]:
    key = cell.name, cell.gpus, size
    found = known.get(key)
    if found is None:
        found = known[key] = list(_divided(cell, size, known))
    return found


def _divided(cell: Cell, size: int, known: _Known) -> Iterator[GpuGroup]:
    if len(cell.gpus) <= size:
        yield GpuGroup(cell.name, cell.gpus)
        return
    run: list[GpuGroup] = []
    merged = 0
    for item in (*_items(cell, size, known), None):
        if isinstance(item, GpuGroup) and sum(len(each.gpus) for each in run) + len(item.gpus) <= size:
            run.append(item)
            continue
        if run:
            yield _merged(run, f"{cell.name}.{merged}")
            merged += 1
        run = [item] if isinstance(item, GpuGroup) else []
        if isinstance(item, Cell):
            yield from _groups(item, size, known)


def _items(cell: Cell, size: int, known: _Known) -> Iterator[GpuGroup | Cell]:
    """The building blocks of groups of this size: groups of half the size, and larger children.

    A child larger than ``size`` is a cell that is divided by itself.
    """
    halves = {half.gpus[0]: half for half in _groups(cell, size // 2, known)} if size > 1 else {}
    for child in cell.children or _singles(cell):
        if len(child.gpus) > size:
            yield child
        elif len(child.gpus) > size // 2:
            yield GpuGroup(child.name, child.gpus)
        elif child.gpus[0] in halves:
            # The half that begins with this child; a half that began earlier is already in the list.
            yield halves[child.gpus[0]]


def _singles(cell: Cell) -> tuple[Cell, ...]:
    """The items of a cell of several GPUs that has no parts."""
    return tuple(Cell(gpu, cell.level, (gpu,)) for gpu in cell.gpus)


def _merged(run: Sequence[GpuGroup], label: str) -> GpuGroup:
    if len(run) == 1:
        return run[0]
    return GpuGroup(label, tuple(gpu for group in run for gpu in group.gpus))


@value
class Spot(Value):
    """A GPU or NIC by name, with its host bridge and bridges, outermost first, as in ``Place``."""

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
    """Devices below the bridge beside a device of the other kind, with their switch; and the remaining devices."""
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


def rails(places: Iterable[Place], switches: Mapping[str, str], rdma: frozenset[str]) -> Mapping[str, int]:
    """The rails of NICs and GPUs, by name; ``switches``: the switch that each device has in common with others.
    ``rdma``: the NICs with an RDMA device.

    A group of GPUs that has lost a NIC leaves the numbers of others alone: every group has as many as the largest one.
    """
    groups: dict[str, tuple[list[str], list[str]]] = {}
    for place in places:
        switch = switches.get(place.name)
        if switch is not None and (place.gpu or place.name in rdma):
            gpus, nics = groups.setdefault(switch, ([], []))
            (gpus if place.gpu else nics).append(place.name)
    # Places are in the order of their labels, so groups without GPUs are left out, and the others are in that of these.
    with_gpus = [(gpus, nics) for gpus, nics in groups.values() if gpus]
    widest = max((len(nics) for _, nics in with_gpus), default=0)
    found: dict[str, int] = {}
    for number, (gpus, nics) in enumerate(with_gpus):
        found |= {nic: number * widest + position for position, nic in enumerate(nics)}
        for position, gpu in enumerate(gpus if nics else ()):
            found[gpu] = number * widest + position * len(nics) // len(gpus)
    return found
