"""The nodes that pods are placed on, and what is in use of each.

What is in use is kept pool by pool, and a number is raised with every change of a pool: whoever asks about a node sees
only its own pools, and knows whether an earlier answer still holds.

Nodes of a template differ in their names alone. So the allocator is asked about the template's own node, each time
with the devices that are in use on the node in question, and only what is allocated gets that node's names. A thousand
such nodes cost the memory of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kube.bodies import Json, JsonObject, object_at, text_at
from scheduling.allocator.allocated import AllocatedState, allocation_results, device_of
from scheduling.allocator.pools import gather_pools, node_identity
from scheduling.allocator.reading import FatalError, Object
from scheduling.allocator.slices import DeviceID, PoolID, SharedDeviceID
from scheduling.explain.cluster import Cluster
from scheduling.explain.screening import devices_for
from scheduling.explain.state import name_of, objects_at
from scheduling.fit.room import NodeRoom

_HOSTNAME = "kubernetes.io/hostname"


@dataclass(slots=True)
class PoolUse:
    """What claims hold of one pool; ``version`` rises with every change."""

    devices: set[DeviceID] = field(default_factory=set)
    shared: set[SharedDeviceID] = field(default_factory=set)
    capacity: dict[DeviceID, dict[str, int]] = field(default_factory=dict)
    version: int = 0

    def add(self, claim: Object, pool: PoolID) -> bool:
        """Enter what an allocated claim holds of this pool; whether less is left of it afterwards."""
        takes = False
        for result in allocation_results(claim):
            device = device_of(result)
            if result.boolean("adminAccess") or PoolID(device.driver, device.pool) != pool:
                continue
            share = result.string("shareID")
            if not share:
                self.devices.add(device)
                takes = True
                continue
            # The first share takes the device's counters, and keeps it from being given whole.
            takes = takes or device not in self.capacity
            consumed = self.capacity.setdefault(device, {})
            self.shared.add(SharedDeviceID(device, share))
            for name, amount in result.quantities("consumedCapacity").items():
                consumed[name] = consumed.get(name, 0) + amount.nanos
                takes = takes or amount.nanos > 0
        self.version += 1
        return takes


class Uses:
    """The pools of one cluster."""

    def __init__(self, claims: Iterable[Object] = ()) -> None:
        """``claims``: those that are allocated. Raises ``FatalError`` for one of another shape."""
        self._pools: dict[PoolID, PoolUse] = {}
        for claim in claims:
            self.add(claim)

    def add(self, claim: Object) -> bool:
        """Enter an allocated claim; whether less is left of any pool."""
        pools = {PoolID(each.driver, each.pool) for each in map(device_of, allocation_results(claim))}
        takes = [self.of(pool).add(claim, pool) for pool in sorted(pools)]
        return any(takes)

    def of(self, pool: PoolID) -> PoolUse:
        """The use of one pool."""
        return self._pools.setdefault(pool, PoolUse())


class NodePlace:
    """One node: its pools, what is in use of them, and its room.

    ``asked``: the node that the allocator is asked about, which for a node of a template is the template's.
    ``is_local``: whether its pools are its own, so that nothing that happens on other nodes changes it.
    """

    def __init__(self, number: int, node: JsonObject, asked: JsonObject, cluster: Cluster, uses: Uses) -> None:
        """``number``: its place in the order in which nodes are tried."""
        self.number = number
        self.node = node
        self.name = name_of(node)
        self.asked = asked
        self.cluster = cluster
        self.room = NodeRoom(node)
        self.pods = 0
        """Pods that were placed here."""
        name, labels = node_identity(asked)
        slices = [each for each in cluster.index.for_node(name) if each.selects(name, labels)]
        self._pools = sorted({each.pool for each in slices})
        shared = [pool for pool in self._pools if any(one.nodes.name != name for one in cluster.index.of_pool(pool))]
        self._uses = uses
        self._shared = [uses.of(pool) for pool in shared]
        self.is_local = not shared
        self._mine = [uses.of(pool) for pool in self._pools]
        self._known: tuple[tuple[int, ...], AllocatedState] | None = None
        self._before = self.allocated.anyhow
        """Devices that were in use before anything was placed."""

    @property
    def is_of_template(self) -> bool:
        """Whether it is named otherwise than the node that the allocator is asked about."""
        return self.asked is not self.node

    @property
    def version(self) -> tuple[int, ...]:
        """Of its pools."""
        return tuple([each.version for each in self._mine])

    @property
    def shared_version(self) -> tuple[int, ...]:
        """Of the pools that other nodes have a part in."""
        return tuple([each.version for each in self._shared])

    @property
    def allocated(self) -> AllocatedState:
        """What is in use of its pools."""
        version = self.version
        if self._known is None or self._known[0] != version:
            self._known = (version, _together(self._mine))
        return self._known[1]

    def take(self, claim: Object) -> bool:
        """Enter a claim that is allocated here, in the names of ``asked``; whether less is left of its pools."""
        return self._uses.add(claim)

    def devices(self, given: Iterable[JsonObject]) -> tuple[int, int]:
        """How many devices are there, and how many of them are in use; ``given``: the allocations of placed claims.

        Those that are used in part count, and those that are only looked at do not.
        """
        name, labels = node_identity(self.asked)
        try:
            found = devices_for(name, labels, gather_pools(self.asked, self.cluster.index, self.cluster.features))
        except FatalError:
            return 0, 0
        mine, asked = self.name, name_of(self.asked)
        # Of pools that other nodes have a part in, everything that is in use anywhere.
        used = set(self._before if self.is_local else self.allocated.anyhow)
        for allocation in given:
            for result in objects_at(allocation, "devices", "results"):
                if result.get("adminAccess") is not True:
                    driver, pool, device = (text_at(result, part) for part in ("driver", "pool", "device"))
                    used.add(DeviceID(driver, asked if self.is_of_template and pool == mine else pool, device))
        return len(found), sum(device.id in used for device in found)

    def named(self, allocation: JsonObject) -> JsonObject:
        """An allocation that was made for ``asked`` in the names of this node."""
        if not self.is_of_template:
            return allocation
        old, new = name_of(self.asked), self.name
        devices = object_at(allocation, "devices")
        results = [
            {**each, "pool": new} if each.get("pool") == old else each for each in objects_at(devices, "results")
        ]
        made: JsonObject = {**allocation, "devices": {**devices, **({"results": list(results)} if results else {})}}
        if "nodeSelector" in allocation:
            made["nodeSelector"] = _selecting(allocation["nodeSelector"], old, new)
        return made


def _together(uses: Sequence[PoolUse]) -> AllocatedState:
    if len(uses) == 1:
        only = uses[0]
        return AllocatedState(frozenset(only.devices), frozenset(only.shared), _copied(only.capacity))
    capacity: dict[DeviceID, Mapping[str, int]] = {}
    for each in uses:
        capacity |= _copied(each.capacity)
    return AllocatedState(
        frozenset().union(*(each.devices for each in uses)),
        frozenset().union(*(each.shared for each in uses)),
        capacity,
    )


def _copied(capacity: Mapping[DeviceID, Mapping[str, int]]) -> dict[DeviceID, Mapping[str, int]]:
    return {device: dict(amounts) for device, amounts in capacity.items()}


def _selecting(selector: Json, old: str, new: str) -> Json:
    """A node selector that has another name among its values."""
    if isinstance(selector, dict):
        return {key: _selecting(value, old, new) for key, value in selector.items()}
    if isinstance(selector, list):
        return [_selecting(each, old, new) for each in selector]
    return new if selector == old else selector


def node_of(template: JsonObject, name: str) -> JsonObject:
    """The template's node under another name."""
    metadata = {key: value for key, value in object_at(template, "metadata").items() if key != "uid"}
    labels = object_at(metadata, "labels")
    if _HOSTNAME in labels:
        metadata["labels"] = {**labels, _HOSTNAME: name}
    return {**template, "metadata": {**metadata, "name": name}}


def slice_for(body: JsonObject, old: str, new: str) -> JsonObject:
    """A slice of the template for the node of another name; its devices are the very same objects."""
    pool = {**object_at(body, "spec", "pool"), "name": new}
    spec = {**object_at(body, "spec"), "nodeName": new, "pool": pool}
    name = f"{name_of(body).removesuffix(f'-{old}')}-{new}"
    return {**body, "metadata": {**object_at(body, "metadata"), "name": name}, "spec": spec}
