"""The GPUs that nodes publish in ResourceSlices: what a device's number is, and whether it can be used.

HiveD's records have numbers, which change when a GPU falls off the bus. Nodes publish the UUIDs of their GPUs, so a
binding can name both. A GPU's number is its position by PCI address, as ``ostler cells discover`` counts; that holds
only while a node publishes as many GPUs as the configuration says that it has, so otherwise no UUID is given.

The slices are read before the first pod is placed, so that none comes to a bad device. A cluster without slices, or an
API server that refuses them, is not waited for: it costs the UUIDs and the health of single devices.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from kube.bodies import JsonObject, text_at
from kube.json_stream import Fields
from kube.reflector import Reflector
from node.clocks import Clocks
from ostler.cells.discovery import NodeDevices, PublishedSlice, node_devices, read_slice

if TYPE_CHECKING:
    from kube.client import Client

_DEVICE: Fields = dict.fromkeys(("name", "attributes", "taints", "allowMultipleAllocations"), True)
FIELDS: Fields = {
    "metadata": dict.fromkeys(("name", "uid", "resourceVersion"), True),
    "spec": {
        **dict.fromkeys(("driver", "nodeName", "pool"), True),
        # v1beta1 has all but the name one level lower.
        "devices": {**_DEVICE, "basic": _DEVICE},
    },
}
"""The fields that are read of a slice."""
_NONE = NodeDevices()


class PublishedDevices:
    """The slices of all nodes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: dict[str, PublishedSlice] = {}
        self._names: dict[str, set[str]] = {}
        self._nodes: dict[str, NodeDevices] = {}

    def uuids(self, node: str, numbers: Sequence[int], count: int) -> tuple[str, ...]:
        """The UUIDs of these devices in this order; none unless the node publishes ``count`` GPUs."""
        known = [each.uuid for each in self.of_node(node).devices]
        if len(known) != count or len(set(known)) != count or not all(0 <= each < count for each in numbers):
            return ()
        return tuple(known[number] for number in numbers) if all(known) else ()

    def of_node(self, node: str) -> NodeDevices:
        """The devices that a node publishes now."""
        with self._lock:
            return self._nodes.get(node, _NONE)

    def replace(self, bodies: Iterable[JsonObject]) -> frozenset[str]:
        """These are all slices; the nodes whose devices changed."""
        found = {text_at(body, "metadata", "name"): read_slice(body) for body in bodies}
        with self._lock:
            changed = {each.node for name, each in self._slices.items() if found.get(name) != each}
            changed |= {each.node for name, each in found.items() if self._slices.get(name) != each}
            self._slices = found
            self._names = {}
            for name, each in found.items():
                self._names.setdefault(each.node, set()).add(name)
            return self._renewed(changed)

    def put(self, body: JsonObject) -> frozenset[str]:
        """A slice is new or has changed; the nodes whose devices changed."""
        name, made = text_at(body, "metadata", "name"), read_slice(body)
        with self._lock:
            before = self._slices.get(name)
            if before == made:
                return frozenset()
            self._forget(name)
            self._slices[name] = made
            self._names.setdefault(made.node, set()).add(name)
            return self._renewed({made.node} if before is None else {made.node, before.node})

    def remove(self, name: str) -> frozenset[str]:
        """A slice is gone; the nodes whose devices changed."""
        with self._lock:
            before = self._slices.get(name)
            self._forget(name)
            return self._renewed(set() if before is None else {before.node})

    def _forget(self, name: str) -> None:
        before = self._slices.pop(name, None)
        if before is not None:
            names = self._names[before.node]
            names.discard(name)
            if not names:
                del self._names[before.node]

    def _renewed(self, nodes: Iterable[str]) -> frozenset[str]:
        """Put the devices of these nodes together again; those of them that differ from before."""
        changed = set()
        for node in nodes:
            slices = [self._slices[name] for name in sorted(self._names.get(node, ()))]
            made = node_devices(node, slices) if any(each.gpus for each in slices) else _NONE
            if made == self._nodes.get(node, _NONE):
                continue
            changed.add(node)
            if made == _NONE:
                del self._nodes[node]
            else:
                self._nodes[node] = made
        return frozenset(changed)

    def nodes(self) -> Mapping[str, NodeDevices]:
        """All nodes that publish GPUs."""
        with self._lock:
            return dict(self._nodes)


class DevicesFollower(Protocol):
    """Takes the nodes whose published GPUs have changed, and asks ``PublishedDevices`` for them."""

    def devices_changed(self, nodes: Iterable[str]) -> None:
        """These nodes publish other GPUs, or the same ones with other taints."""


class PublishedDevicesWatch:
    """Follows the slices from ``start`` to ``stop``, and calls the followers."""

    def __init__(
        self,
        client: Client,
        devices: PublishedDevices,
        followers: Sequence[DevicesFollower],
        clocks: Clocks,
    ) -> None:
        from driver.resource_api.client import ResourceApi

        self._devices = devices
        self._followers = tuple(followers)
        slices = ResourceApi(client).slices(fields=FIELDS)
        self._reflector = Reflector(slices, self, random=clocks.random, name="slices")
        self._has_begun = False

    def start(self) -> None:
        """Begin; waits for nothing."""
        self._has_begun = True
        self._reflector.start()

    @property
    def is_settled(self) -> bool:
        """Whether the slices are known, or cannot be read for now."""
        return self._reflector.synced.is_set() or self._reflector.status().failures > 0

    def stop(self) -> None:
        """End it."""
        if self._has_begun:
            self._reflector.stop()

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        """See ``kube.reflector.Handler``."""
        self._notify(self._devices.replace(objects))

    def applied(self, body: JsonObject) -> None:
        """See ``kube.reflector.Handler``."""
        self._notify(self._devices.put(body))

    def deleted(self, body: JsonObject) -> None:
        """See ``kube.reflector.Handler``."""
        self._notify(self._devices.remove(text_at(body, "metadata", "name")))

    def bookmark(self, resource_version: str) -> None:
        """Nothing has changed."""

    def _notify(self, nodes: frozenset[str]) -> None:
        if nodes:
            for each in self._followers:
                each.devices_changed(sorted(nodes))
