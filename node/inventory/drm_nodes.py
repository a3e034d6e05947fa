"""Graphics device nodes of GPUs that are given to containers by them (AMD, Intel).

Pure. A node that the kernel shows in sysfs and that /dev lacks stays listed without numbers, so that health can name
it. Without a list of device files (an old recording) nodes are taken as present in name only and judged well.
"""

from __future__ import annotations

from node.health.state import Health, HealthState, Recovery
from node.inventory.facts import SysfsFacts
from node.inventory.model import DeviceNode, NodeRole


class DrmNodes:
    """Nodes out of ``sysfs``; ``shared`` are the paths that every container with such a GPU gets besides."""

    def __init__(self, sysfs: SysfsFacts, *shared: str) -> None:
        self._files = {file.path: file for file in sysfs.device_files}
        self._shared = tuple(self._node(path, NodeRole.CONTROL) for path in shared)

    def of(self, drm: tuple[str, ...]) -> tuple[DeviceNode, ...]:
        """Nodes for these entries of sysfs (``card1``, ``renderD129``), then the shared ones."""
        return (*(self._node(f"/dev/dri/{name}", NodeRole.DEVICE) for name in drm), *self._shared)

    def health(self, nodes: tuple[DeviceNode, ...]) -> Health:
        """Unhealthy while a node is missing; a GPU without a render node has no driver that works."""
        missing = [node.path for node in nodes if not node.present] if self._files else []
        if not any("/renderD" in node.path for node in nodes):
            missing = ["/dev/dri/renderD*"]
        if not missing:
            return Health()
        reason = f"its device nodes are missing: {', '.join(missing)}"
        return Health(HealthState.UNHEALTHY, reason, recovery=Recovery.AUTOMATIC)

    def _node(self, path: str, role: NodeRole) -> DeviceNode:
        file = self._files.get(path)
        return DeviceNode(path, role) if file is None else DeviceNode(path, role, file.kind, file.major, file.minor)
