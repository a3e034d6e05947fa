"""Devices with device nodes, made by hand: two GPUs, two MIG devices of the first one, and what they share."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.model import Device, DeviceKind, DeviceNode, NodeRole


def node(path: str, role: NodeRole = NodeRole.DEVICE, *, present: bool = True) -> DeviceNode:
    """A device node that the host has, or lacks."""
    return DeviceNode(path, role, "c", 195 if present else None, 0 if present else None)


CONTROL = tuple(
    node(path, NodeRole.CONTROL, present=path != "/dev/nvidia-modeset")
    for path in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
)
"""The control nodes; this host has no nvidia-modeset."""
CHANNELS = tuple(node(f"/dev/nvidia-caps-imex-channels/channel{number}", NodeRole.AUXILIARY) for number in (0, 2))
FEATURES = tuple(
    node(path, NodeRole.AUXILIARY)
    for path in ("/dev/gdrdrv", "/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1")
)
"""Nodes of gdrcopy and mofed; none of gds."""
SHARED = (*CONTROL, *FEATURES, *CHANNELS)


def gpu(number: int, **changes: object) -> Device:
    """The GPU with this index; its minor number is one higher."""
    made = Device(
        name=f"gpu-0000-{number}b-00-0",
        kind=DeviceKind.GPU,
        vendor="nvidia",
        uuid=f"GPU-{number}",
        index=str(number),
        pci_address=f"0000:{number}b:00.0",
        nodes=(
            node(f"/dev/nvidia{number + 1}"),
            node(f"/dev/dri/card{number + 2}", NodeRole.RENDER),
            node(f"/dev/dri/renderD{number + 128}", NodeRole.RENDER),
            *SHARED,
        ),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def mig(number: int, **changes: object) -> Device:
    """A MIG device of GPU 0; its capabilities have the numbers 21 and 22, 31 and 32, ..."""
    capabilities = (f"/dev/nvidia-caps/nvidia-cap{number + 2}{last}" for last in (1, 2))
    made = Device(
        name=f"mig-0000-0b-00-0-{number}-1",
        kind=DeviceKind.MIG,
        vendor="nvidia",
        uuid=f"MIG-{number}",
        index=f"0:{number}",
        pci_address="0000:0b:00.0",
        parent="gpu-0000-0b-00-0",
        nodes=(node("/dev/nvidia1"), *(node(path, NodeRole.CAPABILITY) for path in capabilities), *SHARED),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def lacking(device: Device, *paths: str) -> Device:
    """The device on a host without these device nodes."""
    nodes = (node(each.path, each.role, present=each.present and each.path not in paths) for each in device.nodes)
    return replace(device, nodes=tuple(nodes))


def without(device: Device, *roles: NodeRole) -> Device:
    """The device, of whose nodes those with these roles are not even known."""
    return replace(device, nodes=tuple(each for each in device.nodes if each.role not in roles))
