"""The resources that a driver wants to publish, as values, and how its devices are packed into slices.

A driver describes everything it has (``DriverResources``); the controller turns every ``Slice`` into one ResourceSlice.
Devices and counter sets are dicts as in resource.k8s.io/v1, whatever version the cluster serves. Values are frozen, but
the dicts in them are not: the controller takes a copy, so that a caller may go on changing its own.

``pack`` makes a change of one device a change of one slice. Every slice of a pool carries the pool's generation and the
number of its slices, so moving a device, or adding or removing a slice, is a write to every slice. So a device stays in
its slice; one that goes leaves a hole, which the next new device fills; and only slices that run empty at the end are
removed. The limit is 64 from the start, not 128, because a slice can hold no more than that once one of its devices has
taints, counters or a list as attribute. Devices that share counters go into one slice, since they become unhealthy
together. The price: slices may be only partly full, and the order across slices is that in which devices came (within a
slice it is always the given one).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from kube.bodies import JsonObject, text_at
from node.values import Value, replace, value


@value
class Owner(Value):
    """The cluster-scoped object that the slices are deleted with.

    A Node (``api_version`` v1) makes the pools its own: its name becomes their ``nodeName``; its ``uid`` may be left
    empty and is then looked up. Any other owner needs a uid, and owns slices without tying them to a node.
    """

    api_version: str
    kind: str
    name: str
    uid: str = ""

    @property
    def is_node(self) -> bool:
        """Whether it is a Kubernetes Node."""
        return self.api_version == "v1" and self.kind == "Node"


def node_owner(name: str) -> Owner:
    """The Node of that name as owner."""
    return Owner("v1", "Node", name)


@value
class Slice(Value):
    """The content of one ResourceSlice: devices or counter sets (never both), in the order that the scheduler tries.

    ``per_device_node_selection``: every device names its own nodes; None leaves the field out.
    ``partition_type_attribute``, ``skip_node_operations``: fields of Kubernetes 1.37, left out if empty; an older
    server drops them, which is reported as ``DroppedFieldsError``.
    """

    devices: tuple[JsonObject, ...] = ()
    shared_counters: tuple[JsonObject, ...] = ()
    per_device_node_selection: bool | None = None
    partition_type_attribute: str = ""
    skip_node_operations: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its devices, in their order."""
        return tuple([text_at(device, "name") for device in self.devices])


@value
class Pool(Value):
    """Devices that are published together.

    At most one of ``node_selector`` (v1 NodeSelector) and ``all_nodes``, neither if the owner is a Node or every slice
    selects per device. ``generation``: the lowest allowed; the controller raises it as needed. A pool without slices is
    removed from the API; a pool that exists but has nothing has one empty slice.
    """

    slices: tuple[Slice, ...] = ()
    node_selector: JsonObject | None = None
    all_nodes: bool = False
    generation: int = 0


@value
class DriverResources(Value):
    """Everything that one driver publishes here, by name of pool; all other pools of the driver are removed."""

    pools: Mapping[str, Pool] = field(default_factory=dict)

    def copy(self, before: DriverResources | None = None) -> DriverResources:
        """A deep copy; parts that equal those of the copy ``before`` are taken from it."""
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
    """Takes a third of the time of ``deepcopy``, which looks for cycles."""
    if isinstance(part, dict):
        return {key: _copied_json(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_copied_json(each) for each in part]
    return part


DEFAULT_LIMIT: Final = 64
"""The part of the spec that belongs to one slice.

Empty lists are left out: if only one of two fields may be set, the server treats an empty list as set.
"""


COUNTER_SETS: Final = 8
"""The most counter sets of a slice (1.36), which has no devices then."""
_APART: Mapping[str, str] = {}


def pack(
    devices: Sequence[JsonObject],
    previous: Sequence[Sequence[str]] = (),
    limit: int = DEFAULT_LIMIT,
    *,
    counters: Sequence[JsonObject] = (),
    groups: Mapping[str, str] = _APART,
) -> tuple[Slice, ...]:
    """Spread devices over slices, at least one; each stays in its slice of ``previous`` as far as there is room.

    ``counters``: counter sets, which have slices of their own before those of the devices. ``groups``: by name of a
    device, its group; new devices of a group go into one slice if they fit into one. Raises ValueError for a limit
    below 1 and for two devices of one name.
    """
    first = [
        Slice(shared_counters=tuple(counters[start : start + COUNTER_SETS]))
        for start in range(0, len(counters), COUNTER_SETS)
    ]
    # Slices of counters look empty in ``previous``, because they have no devices.
    empty = next((number for number, names in enumerate(previous) if names), 0)
    return (*first, *_spread(devices, previous[min(empty, len(first)) :], limit, groups))


def _spread(
    devices: Sequence[JsonObject], previous: Sequence[Sequence[str]], limit: int, groups: Mapping[str, str]
) -> tuple[Slice, ...]:
    names = [text_at(device, "name") for device in devices]
    if limit < 1:
        raise ValueError(f"limit: {limit} devices in a slice; it must be 1 or more")
    if len(set(names)) < len(names):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise ValueError(f"devices: {twice!r} is the name of two devices; names must be unique in a pool")
    kept = _kept(names, previous, limit)
    placed = set().union(*kept)
    _place([name for name in names if name not in placed], kept, limit, groups)
    while len(kept) > 1 and not kept[-1]:
        kept.pop()
    place = {name: number for number, group in enumerate(kept) for name in group}
    slices: list[list[JsonObject]] = [[] for _ in kept]
    for device, name in zip(devices, names, strict=True):
        slices[place[name]].append(device)
    return tuple([Slice(devices=tuple(group)) for group in slices])


def layout(slices: Sequence[Slice]) -> tuple[tuple[str, ...], ...]:
    """The names of the devices of each slice."""
    return tuple([each.names for each in slices])


def _kept(names: Sequence[str], previous: Sequence[Sequence[str]], limit: int) -> list[set[str]]:
    """The slices with the devices that stay in them; a repeated name counts where it comes first."""
    wanted = set(names)
    groups: list[set[str]] = []
    for before in previous:
        group = set([name for name in dict.fromkeys(before) if name in wanted][:limit])
        wanted -= group
        groups.append(group)
    return groups or [set()]


def _place(names: Sequence[str], slices: list[set[str]], limit: int, groups: Mapping[str, str]) -> None:
    """New devices fill the holes from the front, then new slices; a group goes into a hole that takes all of it."""
    homes = {groups[name]: number for number, there in enumerate(slices) for name in there if name in groups}
    first = 0
    gathered: dict[str, list[str]] = {}
    for name in names:
        gathered.setdefault(groups.get(name) or name, []).append(name)
    for group, together in gathered.items():
        if 1 < len(together) <= limit or group in homes:
            number = homes.get(group, 0)
            if group not in homes or len(slices[number]) + len(together) > limit:
                fits = (number for number, there in enumerate(slices) if len(there) + len(together) <= limit)
                number = next(fits, len(slices))
            slices += [set()] if number == len(slices) else []
            slices[number].update(together)
            continue
        for name in together:
            while first < len(slices) and len(slices[first]) >= limit:
                first += 1
            slices += [set()] if first == len(slices) else []
            slices[first].add(name)


Layout = tuple[tuple[str, ...], ...]


@value
class PoolStatus(Value):
    """``wanted`` and ``stored``: names of devices by index of slice. ``error``: the last one, empty once all is well.

    ``in_order``: the stored slices are the wanted ones, as far as the server keeps them. ``dropped``: feature gates
    without which something wanted was not stored ("unknown" if none explains it).
    """

    name: str
    generation: int = 0
    wanted: Layout = ()
    stored: Layout = ()
    in_order: bool = False
    error: str = ""
    dropped: tuple[str, ...] = ()
