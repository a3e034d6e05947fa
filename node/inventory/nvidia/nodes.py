"""Device nodes of NVIDIA GPUs and MIG devices.

Pure. Nodes are looked up once per scan and the same values serve every device: a node of 1,000 MIG devices would
otherwise hold thousands of equal ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from node.inventory.facts import DeviceFile, MigFacts, PciFunction, SysfsFacts
from node.inventory.model import DeviceNode, NodeRole

_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_AUXILIARY = re.compile(
    r"/dev/(gdrdrv|nvidia-fs\d*|infiniband/uverbs\d+|infiniband/rdma_cm|nvidia-caps-imex-channels/channel\d+)"
)
_DRM = r"(card|renderD)\d+"
_NUMBER = r"\d+$"


class NvidiaNodes:
    """Finds the nodes of each device; ``shared`` are those of all of them: control nodes, then auxiliary ones."""

    def __init__(self, sysfs: SysfsFacts | None) -> None:
        files = sysfs.device_files if sysfs is not None else ()
        self._files = {file.path: file for file in files}
        self._capabilities = {each.path: each.minor for each in sysfs.nvidia_capabilities} if sysfs is not None else {}
        control = tuple(self._node(path, NodeRole.CONTROL) for path in _CONTROL if path in self._files)
        self.shared = control + tuple(self._node(file.path, NodeRole.AUXILIARY) for file in _auxiliary(files))

    @property
    def listed(self) -> bool:
        """Whether the device folder could be listed, so that a missing node means something."""
        return bool(self._files)

    def of_gpu(self, minor: int | None) -> tuple[DeviceNode, ...]:
        """``/dev/nvidia<minor>``; none without a minor number (WSL)."""
        return () if minor is None else (self._node(f"/dev/nvidia{minor}", NodeRole.DEVICE),)

    def of_display(self, function: PciFunction | None) -> tuple[DeviceNode, ...]:
        """The graphics nodes of the PCI function."""
        names = function.drm if function is not None else ()
        return tuple(self._node(f"/dev/dri/{name}", NodeRole.RENDER) for name in names if re.fullmatch(_DRM, name))

    def of_mig(self, gpu_minor: int | None, mig: MigFacts) -> tuple[DeviceNode, ...]:
        """The capability nodes of GPU instance and compute instance; containers get them even if the host lacks them.

        Paths below /proc/driver/nvidia/capabilities carry the GPU's minor number.
        """
        instance = f"gpu{gpu_minor}/mig/gi{mig.gpu_instance}"
        minors = (
            self._capabilities.get(f"{instance}/access"),
            self._capabilities.get(f"{instance}/ci{mig.compute_instance}/access"),
        )
        return tuple(
            self._node(f"/dev/nvidia-caps/nvidia-cap{minor}", NodeRole.CAPABILITY)
            for minor in minors
            if minor is not None
        )

    def _node(self, path: str, role: NodeRole) -> DeviceNode:
        file = self._files.get(path)
        if file is None:
            return DeviceNode(path, role)
        return DeviceNode(path, role, file.kind, file.major, file.minor)


def _auxiliary(files: Iterable[DeviceFile]) -> list[DeviceFile]:
    """Auxiliary files in order of their stem and number (channel2 before channel10)."""
    found = [file for file in files if _AUXILIARY.fullmatch(file.path)]
    return sorted(found, key=lambda file: (re.sub(_NUMBER, "", file.path), len(file.path), file.path))
