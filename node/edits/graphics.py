"""GPUs that a container gets by device nodes alone: AMD's and Intel's.

Pure. The nodes are those that their makers' plugins give: for AMD /dev/kfd and the graphics nodes of each GPU or
partition, for Intel the graphics nodes without ``controlD*``. A node that is missing would fail the container, so the
device is not given then.
"""

from __future__ import annotations

from node.inventory.model import Device, DeviceNode, NodeRole


def given_nodes(device: Device) -> tuple[DeviceNode, ...]:
    """The device nodes that a container gets: control nodes, then the GPU's own; only such as the host has."""
    return tuple(node for node in _wanted(device) if node.present)


def lacking(device: Device) -> str:
    """What a container would miss, in words; empty for nothing."""
    wanted = _wanted(device)
    if not any(node.role is NodeRole.DEVICE for node in wanted):
        return "it has no device node"
    missing = [node.path for node in wanted if not node.present]
    return f"its device nodes are missing: {', '.join(missing)}" if missing else ""


def _wanted(device: Device) -> tuple[DeviceNode, ...]:
    own = device.nodes_of(NodeRole.DEVICE)
    # The kernel has not made these for years; where they are, they are no use without rights of a display server.
    graphics = (node for node in own if not node.path.rpartition("/")[2].startswith("controlD"))
    return (*device.nodes_of(NodeRole.CONTROL), *graphics)
