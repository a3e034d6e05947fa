"""The hardware both plugins are measured on: a recorded node served as on a real one.

NVML is the stub library behind the real binding, so that every scan makes the real calls. /sys, /dev and /proc are
trees made from the record. Device files are made where that is allowed (as root); without them the agent's answers
have fewer device nodes, and the floor's as many as the agent's.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from node.inventory.facts import DeviceFile, NvmlFacts, PciFunction, SysfsFacts
from node.inventory.recorded import read
from sandbox import nodes
from tests.nvml import stub

LOST = 3
"""Index of the GPU that is lost and comes back."""


class Hardware:
    """The shipped node ``name`` below ``root``."""

    def __init__(self, name: str, root: Path) -> None:
        facts = read(nodes.path(name)).facts
        assert facts.nvml is not None
        assert facts.sysfs is not None
        self._nvml: NvmlFacts = facts.nvml
        self._root = root
        self._description = root / "nvml.txt"
        self.library = stub.build(root / "driver")
        self.heal()
        _make_tree(root, facts.sysfs)

    @property
    def environment(self) -> dict[str, str]:
        """What the stub library needs to know."""
        return {stub.VARIABLE: str(self._description)}

    @property
    def flags(self) -> dict[str, str]:
        """Settings that make the agent see this node."""
        return {
            "--nvidia-library": str(self.library),
            "--nvidia-dev-root-mount": str(self._root / "host"),
            "--sys-root": str(self._root / "sys"),
            "--proc-root": str(self._root / "proc"),
        }

    def lose(self) -> None:
        """From now on every call on one GPU fails."""
        stub.write(self._description, stub.describe(self._nvml) + stub.lost(LOST))

    def heal(self) -> None:
        """All GPUs are well."""
        stub.write(self._description, stub.describe(self._nvml))


def _make_tree(root: Path, facts: SysfsFacts) -> None:
    (root / "sys/bus/pci/devices").mkdir(parents=True)
    for function in facts.pci:
        _make_function(root / "sys", function)
    (root / "proc/driver/nvidia").mkdir(parents=True)
    version = root / "proc/driver/nvidia/version"
    version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {facts.nvidia_module_version}\n")
    (root / "host/dev").mkdir(parents=True)
    with contextlib.suppress(PermissionError):
        for file in facts.device_files:
            _make_device(root / "host", file)


def _make_function(sys: Path, function: PciFunction) -> None:
    folder = sys / "devices" / function.path
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "class": function.class_code,
        "vendor": function.vendor,
        "device": function.device,
        "subsystem_vendor": function.subsystem_vendor,
        "subsystem_device": function.subsystem_device,
        "revision": function.revision,
        "numa_node": function.numa_node,
    }
    for name, value in texts.items():
        if value is not None:
            (folder / name).write_text(f"{value}\n")
    if function.driver is not None:
        _link(folder / "driver", sys / "bus/pci/drivers" / function.driver)
    if function.iommu_group is not None:
        _link(folder / "iommu_group", sys / "kernel/iommu_groups" / function.iommu_group)
    for name in function.drm:
        (folder / "drm" / name).mkdir(parents=True)
    _link(sys / "bus/pci/devices" / function.address, folder)


def _link(link: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))


def _make_device(root: Path, file: DeviceFile) -> None:
    path = root / file.path.lstrip("/")
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = stat.S_IFBLK if file.kind == "b" else stat.S_IFCHR
    # No rights for anybody: only that it is there is looked at.
    os.mknod(path, kind, os.makedev(file.major, file.minor))
