"""Devices made by hand: NVIDIA's with their nodes, NICs by the driver that has them, and GPUs of other vendors."""

from __future__ import annotations

from dataclasses import replace

from node.inventory.model import (
    AttributeValue,
    Device,
    DeviceKind,
    DeviceNode,
    NodeRole,
    sorted_attributes,
)


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


VHOST_NODES = (node("/dev/vhost-net", NodeRole.AUXILIARY), node("/dev/net/tun", NodeRole.AUXILIARY))
RDMA_CM = node("/dev/infiniband/rdma_cm", NodeRole.RDMA)


def nic(number: int, *nodes: DeviceNode, **attributes: AttributeValue) -> Device:
    """A function with these device nodes besides those of vhost-net; ``number`` is its PCI bus and device."""
    return Device(
        name=f"nic-0000-{number:02x}-00-0",
        kind=DeviceKind.NIC,
        vendor="mellanox",
        pci_address=f"0000:{number:02x}:00.0",
        attributes=sorted_attributes(attributes.items()),
        nodes=(*nodes, *VHOST_NODES),
    )


def vfio(number: int, *, group: str = "", present: bool = True) -> Device:
    """A function that vfio-pci has, in a group of its own number; ``group`` is the group's name on the host."""
    own = DeviceNode(
        f"/dev/vfio/{number}",
        NodeRole.DEVICE,
        "c",
        243 if present else None,
        0 if present else None,
        on_host=f"/dev/vfio/{group}" if group else None,
    )
    return nic(number, own, node("/dev/vfio/vfio", NodeRole.CONTROL), driver="vfio-pci")


def uio(number: int) -> Device:
    """A function that igb_uio has."""
    return nic(number, node(f"/dev/uio{number}"), driver="igb_uio")


def rdma(number: int, *names: str, **attributes: AttributeValue) -> Device:
    """A function with an RDMA device of its own number and all its nodes, or those named ``names`` and rdma_cm."""
    files = [f"{name}{number}" for name in names or ("uverbs", "umad", "issm")]
    nodes = [node(f"/dev/infiniband/{file}", NodeRole.RDMA) for file in files]
    return nic(number, *nodes, RDMA_CM, rdma=True, rdmaDevice=f"mlx5_{number}", **attributes)


def subfunction(number: int) -> Device:
    """A subfunction of the function 0000:86:00.0."""
    made = nic(0x86, sriovFunction="sf", auxDevice=f"mlx5_core.sf.{number}", sfNumber=number)
    return replace(made, name=f"{made.name}-sf{number}")


def further_port(number: int, port: int) -> Device:
    """A second interface of a function."""
    made = nic(number, port=port)
    return replace(made, name=f"{made.name}-p{port}")


def amd(number: int) -> Device:
    """An AMD GPU: card and render node of its own number."""
    return Device(
        name=f"gpu-0000-{number:02x}-00-0",
        kind=DeviceKind.GPU,
        vendor="amd",
        pci_address=f"0000:{number:02x}:00.0",
        nodes=(
            node("/dev/kfd", NodeRole.CONTROL),
            node(f"/dev/dri/card{number}"),
            node(f"/dev/dri/renderD{number + 128}"),
        ),
    )


def partition(number: int) -> Device:
    """A further partition of the AMD GPU 1, without a card of its own."""
    return Device(
        name=f"partition-0000-01-00-0-{number}",
        kind=DeviceKind.PARTITION,
        vendor="amd",
        pci_address="0000:01:00.0",
        parent="gpu-0000-01-00-0",
        attributes=sorted_attributes([("platformDevice", f"amdgpu_xcp_{number}")]),
        nodes=(node("/dev/kfd", NodeRole.CONTROL), node(f"/dev/dri/renderD{number + 128}")),
    )


def intel(number: int) -> Device:
    """An Intel GPU on a kernel that still has control nodes."""
    return Device(
        name=f"gpu-0000-{number:02x}-00-0",
        kind=DeviceKind.GPU,
        vendor="intel",
        pci_address=f"0000:{number:02x}:00.0",
        nodes=tuple(node(f"/dev/dri/{name}") for name in (f"card{number}", "controlD64", f"renderD{number + 128}")),
    )


def gaudi(number: int, module: int | None = None) -> Device:
    """A Gaudi card with device nodes of its own number; ``module``: where it sits on the board."""
    return Device(
        name=f"gpu-0000-{number:02x}-00-0",
        kind=DeviceKind.GPU,
        vendor="habana",
        index=str(number),
        pci_address=f"0000:{number:02x}:00.0",
        attributes=sorted_attributes([("moduleID", module)]),
        nodes=(node(f"/dev/accel/accel{number}"), node(f"/dev/accel/accel_controlD{number}")),
    )
