"""Real directory trees in the form of /sys, /dev and /proc."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from node.inventory.facts import SysfsFacts
from node.inventory.source import Source
from node.inventory.sysfs import SysfsSource

H100 = {
    "class": "0x030200",
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
    "revision": "0xa1",
    "numa_node": "0",
}
BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}


@dataclass
class Tree:
    """A machine under ``root``; device files are plain files with their numbers in ``devices``, by path."""

    root: Path
    devices: dict[str, tuple[str, int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("sys/bus/pci/devices", "sys/devices", "host/dev", "proc/driver"):
            (self.root / folder).mkdir(parents=True, exist_ok=True)

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    def source(self) -> Source:
        return SysfsSource(self.sys, self.root / "host", self.proc, self._numbers)

    def read(self) -> SysfsFacts:
        facts = self.source().read().sysfs
        assert facts is not None
        return facts

    def pci(
        self,
        path: str,
        attributes: dict[str, str] = H100,
        *,
        driver: str | None = None,
        iommu_group: str | None = None,
        drm: tuple[str, ...] = (),
    ) -> Path:
        """A function at ``pci0000:15/.../0000:1b:00.0`` below /sys/devices, with its link in the bus folder."""
        folder = self.sys / "devices" / path
        folder.mkdir(parents=True)
        for name, text in attributes.items():
            (folder / name).write_text(f"{text}\n")
        if driver is not None:
            self._link(folder / "driver", self.sys / "bus/pci/drivers" / driver)
        if iommu_group is not None:
            self._link(folder / "iommu_group", self.sys / "kernel/iommu_groups" / iommu_group)
        for name in drm:
            (folder / "drm" / name).mkdir(parents=True)
        self._link(self.bus_link(folder.name), folder)
        return folder

    def unplug(self, folder: Path) -> None:
        """As the kernel does it: the link in the bus folder goes first."""
        self.bus_link(folder.name).unlink()
        shutil.rmtree(folder)

    def bus_link(self, address: str) -> Path:
        return self.sys / "bus/pci/devices" / address

    def device(self, path: str, major: int, minor: int, kind: str = "c") -> None:
        file = self.root / "host" / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        self.devices[str(file)] = (kind, major, minor)

    def capability(self, path: str, text: str) -> Path:
        file = self.proc / "driver/nvidia/capabilities" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def _numbers(self, path: str) -> tuple[str, int, int] | None:
        os.lstat(path)
        return self.devices.get(path)

    def _link(self, link: Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))
