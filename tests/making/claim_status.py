"""Claims with NICs, and a view of their devices, for tests of status.devices."""

from __future__ import annotations

import json
from typing import Any, cast

from driver.claims.model import ClaimReference, PreparedDevice
from driver.devices.view import DoorView, DraDevice
from kube.bodies import JsonObject
from node.interfaces.model import AttachedInterface
from node.inventory.model import Device, DeviceKind, sorted_attributes
from node.rules import Rule
from tests.making.dra_door import offered

Shown = dict[str, Any]
"""An object of the API that is looked into."""
DRIVER = "ostler.dev"
CLAIM = ClaimReference("default", "net", "uid-1")
NIC = "nic-0000-86-00-0"


def nic(name: str = NIC, /, **attributes: str | int | bool) -> DraDevice:
    device = Device(
        name=name,
        kind=DeviceKind.NIC,
        vendor="mellanox",
        pci_address="0000:86:00.0",
        attributes=sorted_attributes(attributes.items()),
    )
    return DraDevice(device, Rule("example.com/nic"), True)


def view_of(**attributes: str | int | bool) -> DoorView:
    return DoorView((nic(**attributes),), generation=1)


ATTACHED = AttachedInterface(NIC, "net1", "b8:ce:f6:00:00:01", ("10.0.0.2/24", "2001:db8::2/64"), 9000)
VIEW = DoorView((offered("gpu-0"), nic(ifName="eth2", mac="b8:ce:f6:00:00:01", mtu=9000, linkUp=True)), generation=1)


def prepared(
    device: str = NIC, share: str | None = None, request: str = "nic", *, interface: str = ""
) -> PreparedDevice:
    """``interface``: that is moved into the pod."""
    return PreparedDevice((request,), "node-a", device, (), share, interface)


def stored(*devices: str, uid: str = "uid-1", status: list[JsonObject] | None = None) -> JsonObject:
    """The claim as the API server has it."""
    results = [{"driver": DRIVER, "pool": "node-a", "device": device, "request": "nic"} for device in devices or (NIC,)]
    results.append({"driver": "other.example.com", "pool": "p", "device": "d", "request": "other"})
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": "net", "uid": uid, "resourceVersion": "1"},
        "spec": {},
        "status": {"allocation": {"devices": {"results": results}}, **({"devices": status} if status else {})},
    }
    return cast("JsonObject", json.loads(json.dumps(claim)))
