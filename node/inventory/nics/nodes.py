"""Device nodes of NICs: of user-space drivers, of RDMA devices, and those that guests' networking needs.

Pure. Nodes are looked up once per scan, and the same values serve every device.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.inventory.facts import PciFunction, SysfsFacts
from node.inventory.model import DeviceNode, NodeRole
from node.inventory.net_facts import RdmaDevice
from node.inventory.nics.drivers import uses_uio, uses_vfio

_AUXILIARY = ("/dev/vhost-net", "/dev/net/tun")
_WITHOUT_IOMMU = "vfio-noiommu"


class NicNodes:
    """Finds the nodes of each NIC; ``shared`` are given to any of them where an option asks for it."""

    def __init__(self, sysfs: SysfsFacts | None) -> None:
        self._files = {file.path: file for file in sysfs.device_files} if sysfs is not None else {}
        self._made: dict[tuple[str, NodeRole, str | None], DeviceNode] = {}
        self.shared = tuple(self._node(path, NodeRole.AUXILIARY) for path in _AUXILIARY if path in self._files)

    @property
    def listed(self) -> bool:
        """Whether the device folder could be listed, so that a missing node means something."""
        return bool(self._files)

    def of_user_driver(self, function: PciFunction) -> tuple[DeviceNode, ...]:
        """The nodes through which a program drives the function itself; none with a kernel driver.

        A container sees /dev/vfio/<group> whether the host has an IOMMU or not; without one the host's node has
        another name (vfio's Documentation: ``noiommu-<group>``).
        """
        group = function.iommu_group
        if uses_vfio(function.driver) and group is not None:
            on_host = f"/dev/vfio/noiommu-{group}" if function.iommu_group_name == _WITHOUT_IOMMU else None
            own = self._node(f"/dev/vfio/{group}", NodeRole.DEVICE, on_host)
            return (own, self._node("/dev/vfio/vfio", NodeRole.CONTROL))
        if uses_uio(function.driver) and function.uio is not None:
            return (self._node(f"/dev/{function.uio}", NodeRole.DEVICE),)
        return ()

    def of_rdma(self, devices: Iterable[RdmaDevice]) -> tuple[DeviceNode, ...]:
        """The character devices of RDMA devices in order of their names, and the connection manager's."""
        names = sorted({file.name: file for each in devices for file in each.files}.items())
        own = [self._rdma_node(name, file.major, file.minor) for name, file in names]
        return (*own, self._node("/dev/infiniband/rdma_cm", NodeRole.RDMA)) if own else ()

    def _rdma_node(self, name: str, major: int, minor: int) -> DeviceNode:
        path = f"/dev/infiniband/{name}"
        if self.listed:
            return self._node(path, NodeRole.RDMA)
        # Nobody looked into /dev: sysfs knows the numbers.
        return DeviceNode(path, NodeRole.RDMA, "c", major, minor)

    def _node(self, path: str, role: NodeRole, on_host: str | None = None) -> DeviceNode:
        key = (path, role, on_host)
        found = self._made.get(key)
        if found is None:
            file = self._files.get(on_host or path)
            found = DeviceNode(path, role, on_host=on_host)
            if file is not None:
                found = DeviceNode(path, role, file.kind, file.major, file.minor, on_host)
            self._made[key] = found
        return found
