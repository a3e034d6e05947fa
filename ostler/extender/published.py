"""The ids of devices as their nodes publish them: from a node's name and a device's number to its UUID.

HiveD's records have numbers, which change when a GPU falls off the bus. Nodes publish the UUIDs of their GPUs in
ResourceSlices, so a binding can name both. A GPU's number is its position by PCI address, as ``ostler cells discover``
counts; that holds only while a node publishes as many GPUs as the configuration says that it has, so otherwise no UUID
is given. Nothing waits for this: a cluster without slices, or an API server that refuses them, costs the UUIDs alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from kube.bodies import JsonObject, object_at, text_at
from kube.reflector import Reflector

if TYPE_CHECKING:
    from kube.client import Client

_ADDRESS = "resource.kubernetes.io/pciBusID"
_Gpus = tuple[str, dict[str, str]]
"""Of a slice: its node, and UUIDs by PCI address."""


class PublishedDevices:
    """A handler of slices. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slices: dict[str, _Gpus] = {}
        self._nodes: dict[str, set[str]] = {}

    def uuids(self, node: str, numbers: Sequence[int], count: int) -> tuple[str, ...]:
        """The UUIDs of these devices in this order; none unless the node publishes ``count`` GPUs."""
        with self._lock:
            known: dict[str, str] = {}
            for name in self._nodes.get(node, ()):
                known |= self._slices[name][1]
        # Two drivers may publish one GPU, at one address.
        ordered = [known[address] for address in sorted(known)]
        if len(ordered) != count or len(set(ordered)) != count or not all(0 <= each < count for each in numbers):
            return ()
        return tuple(ordered[number] for number in numbers)

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        """See ``kube.reflector.Handler``."""
        with self._lock:
            self._slices, self._nodes = {}, {}
            for body in objects:
                self._put(body)

    def applied(self, body: JsonObject) -> None:
        """See ``kube.reflector.Handler``."""
        with self._lock:
            self._put(body)

    def deleted(self, body: JsonObject) -> None:
        """See ``kube.reflector.Handler``."""
        with self._lock:
            self._remove(text_at(body, "metadata", "name"))

    def bookmark(self, resource_version: str) -> None:
        """Nothing has changed."""

    def _put(self, body: JsonObject) -> None:
        name, node = text_at(body, "metadata", "name"), text_at(body, "spec", "nodeName")
        self._remove(name)
        if gpus := dict(_gpus(body)):
            self._slices[name] = node, gpus
            self._nodes.setdefault(node, set()).add(name)

    def _remove(self, name: str) -> None:
        node, _ = self._slices.pop(name, ("", {}))
        if found := self._nodes.get(node):
            found.discard(name)


class PublishedDevicesWatch:
    """Follows the slices from ``start`` to ``stop``; ``random`` gives numbers in [0, 1)."""

    def __init__(self, client: Client, devices: PublishedDevices, random: Callable[[], float]) -> None:
        from driver.resource_api.client import ResourceApi

        self._reflector = Reflector(ResourceApi(client).slices(), devices, random=random, name="slices")
        self._has_begun = False

    def start(self) -> None:
        """Begin; waits for nothing."""
        self._has_begun = True
        self._reflector.start()

    def stop(self) -> None:
        """End it."""
        if self._has_begun:
            self._reflector.stop()


def _gpus(body: JsonObject) -> Iterator[tuple[str, str]]:
    devices = object_at(body, "spec").get("devices")
    for each in devices if isinstance(devices, list) else ():
        attributes = object_at(each, "attributes")
        address, uuid = text_at(attributes, _ADDRESS, "string"), text_at(attributes, "uuid", "string")
        # Partitions are at the address of their GPU.
        if text_at(attributes, "type", "string") == "gpu" and address and uuid:
            yield address, uuid
