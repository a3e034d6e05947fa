"""Device nodes of one scan, and the health of GPUs without a management library that follows from them. Pure. A node
that the kernel shows in sysfs and that /dev lacks stays listed without numbers, so that health can name it. Without a
list of device files (an old recording) nodes have only their names, and none counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.health.state import Health, HealthState, Recovery
from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.model import AttributeValue, DeviceNode, NodeRole
from node.inventory.pci import pci_digits, standard_attributes


class DeviceFiles:
    """The device files of one scan, by path; makes each device node once, since many devices may share it."""

    def __init__(self, sysfs: SysfsFacts | None) -> None:
        self._files = {file.path: file for file in sysfs.device_files} if sysfs is not None else {}
        self._made: dict[tuple[str, NodeRole, str | None], DeviceNode] = {}

    @property
    def listed(self) -> bool:
        """Whether the device folder could be listed; if not, a missing node means nothing."""
        return bool(self._files)

    def has(self, path: str) -> bool:
        """Whether there is a device file at the path."""
        return path in self._files

    def node(self, path: str, role: NodeRole, on_host: str | None = None) -> DeviceNode:
        """The device node, with its numbers where the host has it (at ``on_host`` where that is another path)."""
        key = (path, role, on_host)
        found = self._made.get(key)
        if found is None:
            file = self._files.get(on_host or path)
            found = DeviceNode(path, role, on_host=on_host)
            if file is not None:
                found = DeviceNode(path, role, file.kind, file.major, file.minor, on_host)
            self._made[key] = found
        return found

    def health(self, nodes: Iterable[DeviceNode]) -> Health:
        """Unhealthy while one of the nodes is missing."""
        missing = [node.path for node in nodes if not node.present] if self.listed else []
        return unhealthy(f"its device nodes are missing: {', '.join(missing)}") if missing else Health()


class DrmNodes(DeviceFiles):
    """Graphics nodes; ``shared`` are the paths that every container with such a GPU gets besides."""

    def __init__(self, sysfs: SysfsFacts, *shared: str) -> None:
        super().__init__(sysfs)
        self._shared = tuple(self.node(path, NodeRole.CONTROL) for path in shared)

    def of(self, drm: tuple[str, ...]) -> tuple[DeviceNode, ...]:
        """Nodes for these entries of sysfs (``card1``, ``renderD129``), then the shared ones."""
        return (*(self.node(f"/dev/dri/{name}", NodeRole.DEVICE) for name in drm), *self._shared)

    def health(self, nodes: Iterable[DeviceNode]) -> Health:
        """Unhealthy while a node is missing; a GPU without a render node has no driver that works."""
        own = tuple(nodes)
        if not any("/renderD" in node.path for node in own):
            return unhealthy("its device nodes are missing: /dev/dri/renderD*")
        return super().health(own)


def unhealthy(reason: str) -> Health:
    """Unhealthy until a scan finds the cause gone."""
    return Health(HealthState.UNHEALTHY, reason, recovery=Recovery.AUTOMATIC)


def without_driver(function: PciFunction, drivers: tuple[str, ...]) -> Health | None:
    """Unhealthy if none of the drivers that the function needs is bound; None if one is."""
    if function.driver in drivers:
        return None
    found = f"the driver {function.driver} is bound to it" if function.driver else "no driver is bound to it"
    return unhealthy(f"{found}, it needs {' or '.join(drivers)}")


def function_attributes(function: PciFunction) -> list[tuple[str, AttributeValue | None]]:
    """The attributes of a GPU's PCI function."""
    return [
        *standard_attributes(function.address, function),
        ("driver", function.driver),
        ("pciVendor", pci_digits(function.vendor)),
        ("pciDevice", pci_digits(function.device)),
    ]
