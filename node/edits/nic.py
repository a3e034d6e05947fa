"""NICs as container edits: variables that name them, and the device nodes of VFIO, UIO, RDMA and vhost-net.

Pure. Variables and nodes are those of the SR-IOV network device plugin, which multus users' programs read; the network
interface itself is moved into the pod by a CNI plugin. Two things differ. Characters that no shell takes in a name
become ``_``: that plugin keeps hyphens, and a program that looks for ``PCIDEVICE_INTEL_COM_SRIOV-NET`` has to look for
``PCIDEVICE_INTEL_COM_SRIOV_NET``. And a NIC that lacks a node is not allocated, while there the container fails or
comes up without it. The device-info files that multus can read are not written: an answer touches no disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from node.edits.options import EditOptions
from node.inventory.model import Device, DeviceNode, NodeRole
from node.inventory.vendors import vendor_id

VFIO = "/dev/vfio/"
VFIO_CONTROL = "/dev/vfio/vfio"
VHOST_NET, TUN = "/dev/vhost-net", "/dev/net/tun"
NEEDED_FOR_RDMA = ("uverbs", "rdma_cm")
"""What RDMA programs cannot do without; ``umad`` and ``issm`` need not exist on Ethernet."""

_FOREIGN = "[^A-Z0-9_]"
_NUMBER = r"\d+$"


def variable(resource: str) -> str:
    """The name of the variable that lists the resource's devices; it matches ``[A-Z_][A-Z0-9_]*``.

    Resources whose names differ in other characters alone (``a.com/x-y``, ``a.com/x_y``) share it: a container should
    not ask for both.
    """
    return f"PCIDEVICE_{re.sub(_FOREIGN, '_', resource.upper())}"


def environment(resource: str, devices: Sequence[tuple[Device, EditOptions]]) -> tuple[tuple[str, str], ...]:
    """The devices' ids joined by commas, in the order of the request, and what is known of each as JSON."""
    name = variable(resource)
    details = {vendor_id(device): _details(device, options) for device, options in devices}
    return (
        (name, ",".join(details)),
        (f"{name}_INFO", json.dumps(details, sort_keys=True, separators=(",", ":"))),
    )


def given_nodes(device: Device, options: EditOptions) -> tuple[DeviceNode, ...]:
    """The device nodes that a container gets: control nodes, then the NIC's own; only such as the host has."""
    return tuple(node for node in _wanted(device, options) if node.present)


def lacking(device: Device, options: EditOptions) -> str:
    """Says what a container would miss; empty for nothing.

    A NIC that is in a pod has shown before that it lacks nothing, and part of it may not be visible from the host. That
    a driver for user space has given it no device node at all is a matter of its health.
    """
    if device.attribute("inPod") is True:
        return ""
    return _lacking_driver_node(device) or _lacking_rdma(device, options) or _lacking_vhost_net(device, options)


def _lacking_driver_node(device: Device) -> str:
    nodes = device.nodes_of(NodeRole.CONTROL, NodeRole.DEVICE)
    missing = [node.on_host or node.path for node in nodes if not node.present]
    return f"its device nodes are missing: {', '.join(missing)}" if missing else ""


def _lacking_rdma(device: Device, options: EditOptions) -> str:
    if not options.rdma:
        return ""
    if not device.nodes_of(NodeRole.RDMA):
        return "its rule gives RDMA, and it has no RDMA device"
    found = {_rdma_file(node) for node in device.nodes_of(NodeRole.RDMA) if node.present}
    missing = [file for file in NEEDED_FOR_RDMA if file not in found]
    return f"its rule gives RDMA, and these RDMA device nodes are missing: {', '.join(missing)}" if missing else ""


def _lacking_vhost_net(device: Device, options: EditOptions) -> str:
    if not options.vhost_net:
        return ""
    found = {node.path for node in device.nodes_of(NodeRole.AUXILIARY) if node.present}
    missing = [path for path in (VHOST_NET, TUN) if path not in found]
    return f"its rule gives vhost-net, and these device nodes are missing: {', '.join(missing)}" if missing else ""


def _wanted(device: Device, options: EditOptions) -> tuple[DeviceNode, ...]:
    nodes = (*device.nodes_of(NodeRole.CONTROL), *device.nodes_of(NodeRole.DEVICE))
    if options.rdma:
        nodes += device.nodes_of(NodeRole.RDMA)
    if options.vhost_net:
        nodes += tuple(node for node in device.nodes_of(NodeRole.AUXILIARY) if node.path in (VHOST_NET, TUN))
    return nodes


def _details(device: Device, options: EditOptions) -> dict[str, dict[str, str]]:
    """The facts of one device in the variable ``..._INFO``, by their provider, as that plugin's users know them."""
    details: dict[str, dict[str, str]] = {"generic": {"deviceID": vendor_id(device)}}
    nodes = given_nodes(device, options)
    for node in nodes:
        if node.role is NodeRole.DEVICE and node.path.startswith(VFIO):
            details["vfio"] = {"mount": VFIO_CONTROL, "dev-mount": node.path}
        elif node.role is NodeRole.DEVICE:
            details["uio"] = {"mount": node.path}
    rdma = {_rdma_file(node): node.path for node in nodes if node.role is NodeRole.RDMA}
    if rdma:
        details["rdma"] = {**rdma, "rdma_dev": device.text("rdmaDevice")}
    if options.vhost_net:
        details["vhost"] = {"net-mount": VHOST_NET, "tun-mount": TUN}
    return details


def _rdma_file(node: DeviceNode) -> str:
    """The kind of an RDMA device node: ``uverbs`` of /dev/infiniband/uverbs0."""
    return re.sub(_NUMBER, "", node.path.rpartition("/")[2])
