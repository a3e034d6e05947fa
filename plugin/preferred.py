"""Which devices to prefer: a deterministic choice that never fails, from memory alone.

The kubelet takes the answer as advice and turns an error into a refused pod, so odd requests (a size below the number
of required devices, too few available, unknown ids) get the best possible answer. GPUs and their parts follow the cell
tree (``node.topology.packing``), of equally large cells one near the NICs that the container has already. NICs go near
the GPUs of their container, those that it has or is expected to get; without GPUs they are packed: on one physical
function, else on one NUMA node. Everything that depends on the devices alone is computed when they change; a call maps
ids to leaves of a tree and back.

The choice is among the devices that the kubelet calls available: it knows what pods hold, and has left out devices of
other NUMA nodes already. Devices of claims count as free when cells are compared: the other door takes from the back,
and a cell that it has begun is not the one to continue here.

Shares of devices are chosen as NVIDIA's plugin does, one by one: ``distributed`` or ``packed``, by how many shares of
each device are allocated. A share that the kubelet does not call available counts as allocated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from node.inventory.model import NIC_KINDS, Device
from node.inventory.places import place_of
from node.offer import Cause, OfferedDevice
from node.sharing import SharePreference, Sharing
from node.topology.model import Cell, CellLevel, Place, Topology, proximity
from node.topology.packing import CellTree, nearest


class PlacementMap:
    """Facts for all choices, computed once per topology: places, and the tree of the GPUs' cells."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.topology = topology or Topology()
        self.places = {place.name: place for place in self.topology.places}
        self.addresses = {place.address: place for place in self.topology.places if place.address is not None}
        self.gpus = frozenset(self.topology.root.gpus) if self.topology.root is not None else frozenset[str]()
        self.tree = CellTree(self.topology.root, self.places) if self.topology.root is not None else None

    def gpu_of(self, device: Device) -> str | None:
        """The GPU of the cell tree that the device is or belongs to."""
        return next((name for name in (device.name, device.parent) if name in self.gpus), None)

    def place_of(self, device: Device) -> Place:
        """The place of the device: its own, its physical function's, or that of its own facts."""
        for name in (device.name, device.parent):
            if name in self.places:
                return self.places[name]
        return self.addresses.get(device.text("pfPciAddress")) or place_of(device)


class Preference:
    """Chooses among the devices of one resource; ``sharing``: how its rule shares them."""

    def __init__(
        self, devices: Mapping[str, OfferedDevice], placement: PlacementMap, sharing: Sharing | None = None
    ) -> None:
        self._order = {id_: position for position, id_ in enumerate(devices)}
        self._healthy = frozenset(id_ for id_, offered in devices.items() if offered.healthy)
        gpus = {id_: gpu for id_, offered in devices.items() if (gpu := placement.gpu_of(offered.device))}
        self.gpus = {id_: placement.places[gpu] for id_, gpu in gpus.items()}
        """The GPU of every device that is one or a part of one."""
        elsewhere = {id_: placement.place_of(offered.device) for id_, offered in devices.items() if id_ not in gpus}
        only_nics = all(offered.device.kind in NIC_KINDS for offered in devices.values())
        self.nics = elsewhere if only_nics else {}
        """The place of every NIC, virtual functions with their physical one; empty unless all devices are NICs."""
        self._tree = _tree(placement, bool(gpus), elsewhere.values())
        numbers = {name: number for number, name in enumerate(self._tree.leaves)}
        self._leaves = {id_: numbers[gpus[id_] if id_ in gpus else elsewhere[id_].name] for id_ in devices}
        places = placement.places | {place.name: place for place in elsewhere.values()}
        self._places = [places[name] for name in self._tree.leaves]
        self._distances: dict[Place, Sequence[int]] = {}
        self._sharing = sharing
        self._devices = {id_: offered.device_id for id_, offered in devices.items()}
        self._totals = Counter(self._devices.values())
        """How many shares there are of each device, by its id."""
        self._others = [0] * len(self._tree.leaves)
        """How many devices of each leaf the other door has allocated."""
        for id_, offered in devices.items():
            self._others[self._leaves[id_]] += offered.cause is Cause.OTHER_DOOR

    def prefer(
        self, available: Iterable[str], required: Iterable[str], size: int, near: Sequence[Place] = ()
    ) -> list[str]:
        """``size`` ids out of ``available``, those of ``required`` first; fewer if there are not enough.

        ``near``: the places to be near, of GPUs for NICs and of NICs for GPUs. Healthy known devices come before
        others. The order of the request does not matter, because it comes from a set.
        """
        chosen = sorted(set(required), key=self._rank)[: max(size, 0)]
        others = sorted(set(available).difference(chosen), key=self._rank)
        needed = size - len(chosen)
        usable = [id_ for id_ in others if id_ in self._healthy]
        if 0 < needed < len(usable):
            choose = self._best if self._sharing is None else self._best_shares
            return chosen + choose(chosen, usable, needed, near)
        return chosen + others[: max(needed, 0)]

    def _rank(self, id_: str) -> tuple[bool, int, str]:
        return id_ not in self._healthy, self._order.get(id_, len(self._order)), id_

    def _best(self, chosen: Sequence[str], usable: Sequence[str], needed: int, near: Sequence[Place]) -> list[str]:
        """``needed`` of the usable ids, beside those that are chosen already."""
        required = [0] * len(self._tree.leaves)
        for id_ in chosen:
            if id_ in self._leaves:
                required[self._leaves[id_]] += 1
        free = list(required)
        for id_ in usable:
            free[self._leaves[id_]] += 1
        size = sum(required) + needed
        ranks = [self._ranks(place) for place in near]
        if ranks and self.nics:
            picks = nearest(ranks, free, required, size)
        else:
            far = [min(column) for column in zip(*ranks, strict=True)]
            picks = self._tree.choose(free, required, size, far, self._others)
        left = [pick - fixed for pick, fixed in zip(picks, required, strict=True)]
        best: list[str] = []
        for id_ in usable:
            leaf = self._leaves[id_]
            if left[leaf]:
                left[leaf] -= 1
                best.append(id_)
        return best

    def _best_shares(
        self, chosen: Sequence[str], usable: Sequence[str], needed: int, near: Sequence[Place]
    ) -> list[str]:
        """``needed`` of the usable shares, one after the other, each of the device that is best by then.

        First comes a device of which the container has no share, unless the rule allows several; then the one with the
        fewest shares allocated, or the most; then the nearest to the container's NICs and to its other devices.
        """
        sharing = self._sharing or Sharing()
        sign = -1 if sharing.preference is SharePreference.PACKED else 1
        free: dict[str, list[str]] = {}
        for id_ in reversed(usable):
            free.setdefault(self._devices[id_], []).append(id_)
        leaves = {device: self._leaves[ids[0]] for device, ids in free.items()}
        far = {device: min((self._ranks(place)[leaf] for place in near), default=0) for device, leaf in leaves.items()}
        spread = dict.fromkeys(free, 0)
        touched = Counter(self._devices[id_] for id_ in chosen if id_ in self._devices)
        places = [self._places[self._leaves[id_]] for id_ in chosen if id_ in self._leaves]
        best: list[str] = []
        while len(best) < needed:
            for place in places:
                for device, leaf in leaves.items():
                    spread[device] += self._ranks(place)[leaf]

            def order(device: str) -> tuple[int, ...]:
                again = touched[device]
                given = self._totals[device] - len(free[device])
                return (
                    0 if sharing.same_device else again,
                    sign * given,
                    sign * again,
                    far[device],
                    spread[device],
                    self._order[free[device][-1]],
                )

            device = min(free, key=order)
            places = [self._places[leaves[device]]] if not touched[device] else []
            touched[device] += 1
            best.append(free[device].pop())
            if not free[device]:
                del free[device]
        return best

    def _ranks(self, place: Place) -> Sequence[int]:
        """How far every leaf is from there; cached, because there are few places and all of them come again."""
        if place not in self._distances:
            self._distances[place] = [proximity(place, leaf).rank for leaf in self._places]
        return self._distances[place]


def _tree(placement: PlacementMap, gpus: bool, elsewhere: Iterable[Place]) -> CellTree:
    """The tree of a resource: the GPUs' cells if it has any, and devices that are in no cell by NUMA node."""
    by_node: dict[int, dict[str, None]] = {}
    for place in elsewhere:
        by_node.setdefault(-1 if place.numa_node is None else place.numa_node, {})[place.name] = None
    if gpus and not by_node and placement.tree is not None:
        return placement.tree
    parts = [_cell(f"numa-{node}", CellLevel.SOCKET, tuple(names)) for node, names in sorted(by_node.items())]
    if gpus and placement.topology.root is not None:
        parts.insert(0, placement.topology.root)
    everything = tuple(name for part in parts for name in part.gpus)
    return CellTree(Cell("resource", CellLevel.NODE, everything, tuple(parts)), placement.places if gpus else {})


def _cell(name: str, level: CellLevel, members: tuple[str, ...]) -> Cell:
    return Cell(name, level, members, tuple(Cell(member, CellLevel.GPU, (member,)) for member in members))
