"""Finds the devices that an id of the kubelet means, whichever plugin gave it out: others may offer the same hardware.

Known forms, besides ostler's own ids: UUIDs, PCI addresses, device names, NVIDIA's driver numbers (``nvidia0`` and
``nvidia0/gi1`` of GKE's plugin), DRM nodes, and the suffixes that plugins append for shares of a device (``UUID::3``,
``UUID-3``, ``UUID-_-3``, ``card0-3``, ``nvidia0/vgpu1``). The UUID of a GPU that was replaced means the one in its
place, because a pod that had the old one still has the device files. Pure.

Trade-off: an id that can mean several devices means all of them: a device withheld without need is better than one
given out twice. Ids of no known form (numbers) mean nothing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.inventory.model import NIC_KINDS, Device, DeviceKind, NodeRole
from node.inventory.pci import pci_address
from node.inventory.vendors import vendor_id

_UUID = r"((?:gpu|mig)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?:[^0-9a-f].*)?"
_ADDRESS = r"([0-9a-f]{1,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:[^0-9a-f].*)?"
_DRIVER_NUMBER = r"(nvidia\d+)(?:/gi(\d+))?(?:/.*)?"
_DRM_NODE = r"((?:card|renderd)\d+)(?:-\d+)?"
_ROLES = (NodeRole.DEVICE, NodeRole.RENDER)

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
            self._instances[device.parent, instance] = (
                *self._instances.get((device.parent, instance), ()),
                device,
            )


def _append(index: dict[str, Devices], key: str, device: Device) -> None:
    index[key] = (*index.get(key, ()), device)
