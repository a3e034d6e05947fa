"""What a driver wants published, as values.

A driver describes everything it has (``DriverResources``); the controller turns every ``Slice`` into one ResourceSlice.
Devices and counter sets are dicts as in resource.k8s.io/v1, whatever version the cluster serves. Values are frozen, the
dicts in them are not: the controller takes a copy, so that a caller may go on changing its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from kube.bodies import JsonObject, text_at
from node.values import Value, replace, value


@value
class Owner(Value):
    """The cluster-scoped object that the slices go away with.

    A Node (``api_version`` v1) makes the pools its own: its name becomes their ``nodeName``, and its ``uid`` may be
    left empty, it is looked up then. Any other owner needs its uid, and owns slices without tying them to a node.
    """

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def is_node(self) -> bool:
        """Whether it is a Kubernetes Node."""
        return self.api_version == "v1" and self.kind == "Node"


def node_owner(name: str, uid: str = "") -> Owner:
    """The Node of that name as owner."""
    return Owner("v1", "Node", name, uid)


@value
class Slice(Value):
    """What becomes one ResourceSlice: devices or counter sets (never both), in the order that the scheduler tries.

    ``per_device_node_selection``: every device names its own nodes; None leaves the field out.
    ``partition_type_attribute``, ``skip_node_operations``: fields of Kubernetes 1.37, left out where empty; an older
    server drops them, which is told as ``DroppedFieldsError``.
    """

    devices: tuple[JsonObject, ...] = ()
    shared_counters: tuple[JsonObject, ...] = ()
    per_device_node_selection: bool | None = None
    partition_type_attribute: str = ""
    skip_node_operations: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of its devices, in their order."""
        return tuple([text_at(device, "name") for device in self.devices])


@value
class Pool(Value):
    """Devices that are published together.

    At most one of ``node_selector`` (v1 NodeSelector) and ``all_nodes``, none where the owner is a Node or every slice
    selects per device. ``generation``: the least one; it rises by itself where it must. A pool without slices is
    removed from the API; one that exists and has nothing has one empty slice.
    """

    slices: tuple[Slice, ...] = ()
    node_selector: JsonObject | None = None
    all_nodes: bool = False
    generation: int = 0


@value
class DriverResources(Value):
    """Everything that one driver publishes here, by name of pool. Pools that are not in it are removed."""

    pools: Mapping[str, Pool] = field(default_factory=dict)

    def copy(self, before: DriverResources | None = None) -> DriverResources:
        """The same, sharing nothing with this one; what equals a copy made ``before`` is taken from that."""
        pools = before.pools if before is not None else {}
        return DriverResources({name: _copied(pool, pools.get(name)) for name, pool in self.pools.items()})


@value
class Stats(Value):
    """Writes that succeeded since the controller was started."""

    creates: int = 0
    updates: int = 0
    deletes: int = 0


def _copied(pool: Pool, before: Pool | None) -> Pool:
    earlier = before.slices if before is not None else ()
    slices = [
        earlier[index] if index < len(earlier) and earlier[index] == each else _copied_slice(each)
        for index, each in enumerate(pool.slices)
    ]
    return replace(pool, slices=tuple(slices), node_selector=_copied_json(pool.node_selector))


def _copied_slice(slice_: Slice) -> Slice:
    return replace(
        slice_,
        devices=tuple([_copied_json(device) for device in slice_.devices]),
        shared_counters=tuple([_copied_json(counters) for counters in slice_.shared_counters]),
    )


def _copied_json(part: Any) -> Any:
    """A third of the time of ``deepcopy``, which looks for cycles."""
    if isinstance(part, dict):
        return {key: _copied_json(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_copied_json(each) for each in part]
    return part
