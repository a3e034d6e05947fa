"""Real directory trees in the form of /sys, /dev and /proc."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from node.inventory.facts import SysfsFacts
from node.inventory.source import Source
from node.inventory.sysfs.source import SysfsSource

H100 = {
    "class": "0x030200",
    "vendor": "0x10de",
    "device": "0x2330",
    "subsystem_vendor": "0x10de",
    "subsystem_device": "0x16c1",
    "revision": "0xa1",
    "numa_node": "0",
}
MELLANOX = {
    "class": "0x020000",
    "vendor": "0x15b3",
    "device": "0x1021",
    "subsystem_vendor": "0x15b3",
    "subsystem_device": "0x0041",
    "revision": "0x00",
    "numa_node": "0",
}
NET = {
    "ifindex": "4",
    "type": "1",
    "address": "02:fc:00:00:00:01",
    "mtu": "9000",
    "operstate": "up",
    "carrier": "1",
    "carrier_changes": "2",
    "speed": "400000",
    "dev_port": "0",
    "phys_port_name": "p0",
    "phys_switch_id": "c2a8880003e4a0",
}
INFINIBAND = {
    "node_type": "1: CA",
    "node_guid": "a088:c203:00e4:0ba9",
    "sys_image_guid": "a088:c203:00e4:0ba8",
    "fw_ver": "28.39.1002",
    "board_id": "MT_0000000838",
    "hca_type": "MT4129",
}
PORT = {
    "state": "4: ACTIVE",
    "phys_state": "5: LinkUp",
    "link_layer": "InfiniBand",
    "rate": "400 Gb/sec (4X NDR)",
    "pkeys/0": "0x7fff",
}
BRIDGE = {"class": "0x060400", "vendor": "0x1000", "device": "0xc030"}


@dataclass
class SysfsTree:
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

    def source(self) -> SysfsSource:
        return SysfsSource(self.sys, self.root / "host", self.proc, self._numbers)

    def read(self) -> SysfsFacts:
        return again(self.source())

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
        write(folder, attributes)
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

    def net(self, path: str, attributes: dict[str, str] = NET) -> Path:
        """An interface at ``pci0000:15/.../net/ens1np0`` below /sys/devices, with its link in the class folder."""
        folder = self.sys / "devices" / path
        folder.mkdir(parents=True)
        write(folder, attributes)
        self._link(self.sys / "class/net" / folder.name, folder)
        return folder

    def infiniband(
        self, path: str, attributes: dict[str, str] = INFINIBAND, *, ports: dict[int, dict[str, str]] | None = None
    ) -> Path:
        """An RDMA device at ``pci0000:15/.../infiniband/mlx5_0``, with one port if nothing else is said."""
        folder = self.sys / "devices" / path
        folder.mkdir(parents=True)
        write(folder, attributes)
        for number, texts in ({1: PORT} if ports is None else ports).items():
            write(folder / "ports" / str(number), texts)
        self._link(self.sys / "class/infiniband" / folder.name, folder)
        return folder

    def rdma_file(self, device: Path, name: str, numbers: str) -> Path:
        """A character device of an RDMA device's folder, such as uverbs0 with ``231:192``."""
        kind = "infiniband_verbs" if name.startswith("uverbs") else "infiniband_mad"
        folder = device.parent.parent / kind / name
        write(folder, {"ibdev": device.name, "dev": numbers})
        self._link(self.sys / "class" / kind / name, folder)
        return folder

    def subfunction(self, path: str, sfnum: str | None = None, driver: str | None = None) -> Path:
        """A device of the auxiliary bus at ``pci0000:15/.../mlx5_core.sf.2``."""
        folder = self.sys / "devices" / path
        write(folder, {} if sfnum is None else {"sfnum": sfnum})
        if driver is not None:
            self._link(folder / "driver", self.sys / "bus/auxiliary/drivers" / driver)
        self._link(self.sys / "bus/auxiliary/devices" / folder.name, folder)
        return folder

    def virtual_function(self, parent: Path, folder: Path, index: int) -> None:
        """Make a function the virtual function of another with an index."""
        self._link(folder / "physfn", parent)
        self._link(parent / f"virtfn{index}", folder)

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
        link.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(target, link.parent))


def again(source: Source) -> SysfsFacts:
    """What a source reads now."""
    facts = source.read().sysfs
    assert facts is not None
    return facts


def write(folder: Path, attributes: dict[str, str]) -> None:
    """Attributes in a folder, each with the newline that the kernel ends it with."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in attributes.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")


def read_during(change: Callable[[], None], source: Source) -> SysfsFacts:
    """What the source reads while another thread makes a change."""
    thread = threading.Thread(target=change)
    thread.start()
    facts = again(source)
    thread.join()
    return facts
