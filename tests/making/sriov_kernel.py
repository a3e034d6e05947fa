"""A kernel with SR-IOV on a tree of files: writing ``sriov_numvfs`` makes virtual functions, by the kernel's rules."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

from node.inventory.facts import PciFunction, SysfsFacts
from tests.making.nic_facts import interface, nic
from tests.node.sysfs.rendering import link, render

VF_DEVICE = "0x101e"


def physical(number: int = 0, bus: str = "86", *, total: int = 8, made: int = 0, **changes: object) -> PciFunction:
    """A physical function with SR-IOV."""
    return nic(number, bus, sriov_totalvfs=total, sriov_numvfs=made, **_IDS, **changes)


_IDS = {"subsystem_vendor": "0x15b3", "subsystem_device": "0x0023", "revision": "0x00"}


class SriovKernel:
    """An ``AttributeWriter`` on the tree below ``root``, which has these physical functions, each with an interface.

    ``refuse``: the error of the next write to an attribute, by its name. ``room``: functions that the driver makes at
    most. ``late``: virtual functions appear when ``appear`` is called. ``written``: every accepted write.
    """

    def __init__(self, root: Path, *functions: PciFunction, probe: str | None = "1") -> None:
        self.root = root
        self.functions: dict[str, PciFunction] = {}
        self._probe = probe
        self.refuse: dict[str, int] = {}
        self.room: int | None = None
        self.late = False
        self.written: list[tuple[str, str, str]] = []
        render(SysfsFacts(), root)
        for each in functions:
            self.plug(each)

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    def plug(self, function: PciFunction) -> None:
        """Show a physical function, with its interface."""
        port = interface(function, f"ens{len(self.functions)}np0")
        self.functions[function.address] = function
        render(SysfsFacts(pci=(function,), interfaces=(port,)), self.root)
        if self._probe is not None:
            self._put(function.address, "sriov_drivers_autoprobe", self._probe)

    def read(self, address: str, name: str) -> str:
        return (self.sys / "bus/pci/devices" / address / name).read_text().strip()

    def __call__(self, path: Path, text: str) -> None:
        address, name = path.parent.name, path.name
        if name in self.refuse:
            raise self._error(self.refuse.pop(name))
        if not path.exists():
            raise self._error(errno.ENOENT)
        if name == "sriov_numvfs":
            self._enable(address, int(text))
        else:
            self._put(address, name, text)
        self.written.append((address, name, text))

    def _enable(self, address: str, count: int) -> None:
        function, now = self.functions[address], int(self.read(address, "sriov_numvfs"))
        if count > (function.sriov_totalvfs or 0):
            raise self._error(errno.ERANGE)
        if count == now:
            return
        if not (self.sys / "bus/pci/devices" / address / "driver").exists():
            raise self._error(errno.ENOENT)
        if now and count:
            raise self._error(errno.EBUSY)
        made = count if self.room is None else min(count, self.room)
        self._put(address, "sriov_numvfs", str(made))
        if not self.late:
            self.appear(address)

    def appear(self, address: str) -> None:
        """Show the virtual functions that were made, with a driver where the kernel binds it."""
        parent = self.functions[address]
        folder = self.sys / "devices" / parent.path
        probe = self.read(address, "sriov_drivers_autoprobe") if self._has(address, "sriov_drivers_autoprobe") else "1"
        for index in range(int(self.read(address, "sriov_numvfs"))):
            number = int(address.rpartition(".")[2]) + index + 2
            child = nic(
                number, address.split(":")[1], device=VF_DEVICE, sriov_totalvfs=None, iommu_group=str(70 + index)
            )
            child = replace(child, driver="mlx5_core" if probe == "1" else None, path=_beside(parent, child))
            ports = (interface(child, f"{parent.address[5:7]}v{index}"),) if probe == "1" else ()
            render(SysfsFacts(pci=(child,), interfaces=ports), self.root)
            link(self.sys / "devices" / child.path / "physfn", folder)
            link(folder / f"virtfn{index}", self.sys / "devices" / child.path)

    def _has(self, address: str, name: str) -> bool:
        return (self.sys / "bus/pci/devices" / address / name).exists()

    def _put(self, address: str, name: str, text: str) -> None:
        (self.sys / "bus/pci/devices" / address / name).write_text(f"{text}\n")

    @staticmethod
    def _error(code: int) -> OSError:
        return OSError(code, os.strerror(code))


def _beside(parent: PciFunction, child: PciFunction) -> str:
    return f"{parent.path.rpartition('/')[0]}/{child.address}"
