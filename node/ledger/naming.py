"""Finds the devices that an id of the kubelet means, whichever plugin allocated it: others may offer the same hardware.

Known forms, besides ostler's own ids: UUIDs, PCI addresses, device names, NVIDIA's driver numbers (``nvidia0`` and
``nvidia0/gi1`` of GKE's plugin), DRM nodes, and the suffixes that plugins append for shares of a device (``UUID::3``,
``UUID-3``, ``UUID-_-3``, ``card0-3``, ``nvidia0/vgpu1``). The UUID of a GPU that was replaced means the one in its
place, because a pod that had the old one still has the device files. Pure.

Trade-off: an id that can mean several devices means all of them: a device withheld without need is better than one
allocated twice. Ids of no known form (numbers) mean nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from node.inventory.model import NIC_KINDS, Device, DeviceKind, NodeRole, Snapshot
from node.inventory.pci import pci_address
from node.inventory.vendors import vendor_id
from node.ledger.holds import Id, slices_of, wholes_of
from node.sharing import Amounts, SharedDevice, replica_of
from node.values import Value, quick, value

_UUID = r"((?:gpu|mig)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:[^0-9a-f].*)?"
_ADDRESS = r"([0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:[^0-9a-f].*)?"
_DRIVER_NUMBER = r"(nvidia\d+)(?:/gi(\d+))?(?:/.*)?"
_DRM_NODE = r"((?:card|renderd)\d+)(?:-\d+)?"
_ROLES = (NodeRole.DEVICE, NodeRole.RENDER)

Key = TypeVar("Key")
Devices = tuple[Device, ...]


class DeviceIndex:
    """The devices of one snapshot by every form of id; ``former`` as in ``Snapshot``."""

    def __init__(self, devices: Iterable[Device], former: Iterable[tuple[str, str]] = ()) -> None:
        self._exact: dict[str, Devices] = {}
        self._addresses: dict[str, Devices] = {}
        self._nodes: dict[str, Devices] = {}
        self._instances: dict[tuple[str, int], Devices] = {}
        for device in devices:
            self._add(device)
        for uuid, address in former:
            gpus = (device for device in self._addresses.get(address, ()) if device.kind is DeviceKind.GPU)
            for gpu in gpus:
                _append(self._exact, uuid.lower(), gpu)

    def devices_of(self, id_: str, *, ours: bool = False) -> Devices:
        """The devices that the id means, in the snapshot's order; empty if it means none of them.

        ``ours``: the resource is ostler's, so that its id means exactly that device; another plugin's PCI address means
        a whole function with all its ports.
        """
        text = id_.lower()
        exact = self._exact.get(text, ())
        address = pci_address(text)
        if exact and (ours or address is None):
            return exact
        base, replica, _ = text.partition("::")
        if replica:
            return self.devices_of(base, ours=ours)
        if address is not None:
            return tuple(dict.fromkeys(exact + self._addresses.get(address, ())))
        return self._of_known_form(text)

    def _of_known_form(self, text: str) -> Devices:
        if match := re.fullmatch(_UUID, text):
            return self._exact.get(match[1], ())
        if match := re.fullmatch(_ADDRESS, text):
            return self._addresses.get(pci_address(match[1]) or "", ())
        if match := re.fullmatch(_DRIVER_NUMBER, text):
            whole = self._nodes.get(match[1], ())
            parts = self._instances.get((whole[0].name, int(match[2])), ()) if whole and match[2] else ()
            return parts or whole
        if match := re.fullmatch(_DRM_NODE, text):
            return self._nodes.get(match[1], ())
        return ()

    def _add(self, device: Device) -> None:
        for alias in {device.name, device.uuid or device.name, vendor_id(device)}:
            _append(self._exact, alias.lower(), device)
        function = device.kind is DeviceKind.GPU or (device.kind in NIC_KINDS and device.text("sriovFunction") != "sf")
        if device.pci_address is not None and function:
            _append(self._addresses, device.pci_address, device)
        if device.kind is DeviceKind.GPU:
            for node in device.nodes_of(*_ROLES):
                _append(self._nodes, node.path.rpartition("/")[2].lower(), device)
        instance = device.attribute("gpuInstanceID")
        if device.kind is DeviceKind.MIG and device.parent and isinstance(instance, int):
            _append(self._instances, (device.parent, instance), device)


def _append(index: dict[Key, Devices], key: Key, device: Device) -> None:
    index[key] = (*index.get(key, ()), device)


@quick
@value
class IdPlace(Value):
    """A device (by name) that an id means, or the replica ``share`` of it; ``within`` and ``slices`` as in ``Hold``."""

    device: str
    within: tuple[str, ...]
    share: str = ""
    slices: tuple[int, int] | None = None


class HeldIds:
    """The meaning of each held id: found among the devices of the last snapshot, and kept after a device is gone."""

    def __init__(self) -> None:
        self._places: dict[Id, tuple[IdPlace, ...]] = {}
        self._by_device: dict[str, dict[Id, str]] = {}
        """``_places`` by device: every id with the replica that it means, empty for the whole device."""
        self._shared: Mapping[str, SharedDevice] = {}
        self._index = DeviceIndex(())
        self._ours: frozenset[str] = frozenset()

    def place(self, snapshot: Snapshot, ours: frozenset[str], shared: Mapping[str, SharedDevice]) -> None:
        """Find ids among these devices from now on. ``ours``: ostler's resources; ``shared``: the divided devices."""
        self._index = DeviceIndex(snapshot.devices, snapshot.former)
        self._ours = ours
        self._shared = shared

    def match(self, id_: Id) -> None:
        """Find the devices that a held id means now; an id without a device keeps its last meaning."""
        devices = self.meant(id_)
        if devices:
            shares = [self.share_of(id_, device.name) for device in devices]
            self.put(
                id_,
                tuple(
                    IdPlace(device.name, wholes_of(device), share, slices_of(device))
                    for device, share in zip(devices, shares, strict=True)
                ),
            )

    def put(self, id_: Id, places: tuple[IdPlace, ...]) -> None:
        """Note what an id means from now on; nothing once it is not held any more."""
        if places and self._places.get(id_) == places:
            # The later value, which comes again with the next Allocate and then need not be compared.
            self._places[id_] = places
            return
        for place in self._places.pop(id_, ()):
            ids = self._by_device.get(place.device, {})
            ids.pop(id_, None)
            if not ids:
                self._by_device.pop(place.device, None)
        if places:
            self._places[id_] = places
        for place in places:
            self._by_device.setdefault(place.device, {})[id_] = place.share

    def meant(self, id_: Id) -> Devices:
        """The devices of the last snapshot that an id means, held or not."""
        resource, name = id_
        return self._index.devices_of(name, ours=resource in self._ours)

    def share_of(self, id_: Id, device: str) -> str:
        """The replica of a device that an id means; none if the device is not shared as that resource.

        A replica that another resource has is the whole device: how much of it that takes is not known here.
        """
        shared = self._shared.get(device)
        return replica_of(id_[1])[1] if shared is not None and shared.resource == id_[0] else ""

    def amounts(self, device: str, share: str) -> tuple[Amounts, Amounts]:
        """The amounts that a share takes and the device has; one that the rule no longer counts is like the others."""
        shared = self._shared.get(device) if share else None
        return (shared.amounts, shared.whole) if shared is not None else ((), ())

    def of(self, device: str, share: str = "") -> Collection[Id]:
        """Every held id that means the device; with a ``share`` without those of other shares."""
        ids = self._by_device.get(device)
        if not ids:
            return ()
        return tuple(ids) if not share else [id_ for id_, other in ids.items() if not other or share == other]

    def by_device(self) -> Iterable[tuple[str, Mapping[Id, str]]]:
        """Every held device, sorted by name, with its ids and the replica that each of them means."""
        return sorted(self._by_device.items())

    def place_of(self, id_: Id, device: str) -> IdPlace:
        """The meaning of a held id of this device."""
        return next(place for place in self._places[id_] if place.device == device)
