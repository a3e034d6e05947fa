"""Cheap readings of /sys, /proc and /dev for what has no event: a difference means that something changed.

Each is a callable that returns a comparable value and raises nothing for what is missing or broken: unreadable is a
value like any other. A value is empty (false) if there is nothing that can change before hardware comes. Each gets
whether hardware may have come or gone since the last call; some only then read what cannot change otherwise. They run
all the time for as long as the agent lives, so each does the least that shows a change: link counts and times of
modification before names, names before contents. A reading may block (the state of an InfiniBand port is asked of its
firmware), so they belong into a thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from node.inventory.pci import ADDRESS
from node.inventory.sysfs.device_files import DEVICE_FOLDERS
from node.inventory.sysfs.files import KeptFile, Unreadable, inode_of, read_text
from node.inventory.vendors import VENDORS

T = TypeVar("T")

Signature = Callable[[bool], Hashable]
"""Called with whether hardware may have come or gone."""

_HARDWARE_FOLDERS = (
    "bus/pci/devices",
    "bus/auxiliary/devices",
    "class/drm",
    "class/infiniband",
    "class/infiniband_verbs",
    "class/net",
    "class/vfio",
    *(folder for vendor in VENDORS for folder in vendor.class_folders),
)
_NIC_DRIVERS = ("vfio-pci", "mlx5_core", "mlx4_core", "ice", "iavf", "bnxt_en")
_DRIVERS = (*(driver for vendor in VENDORS for driver in vendor.drivers), *_NIC_DRIVERS)


def infiniband_ports(sys: str) -> Signature:
    """State of every InfiniBand port of a physical function; the ports are listed when hardware may have come.

    Ports whose link layer is Ethernet follow their interface, which rtnetlink reports, and ports of virtual functions
    follow the physical one's: those are hundreds on a large node and each reading may be a command to the firmware.
    """
    base = f"{sys}/class/infiniband"
    known: dict[str, tuple[int, tuple[KeptFile, ...]]] = {}
    files: list[KeptFile] = []

    def read(fresh: bool) -> Hashable:
        if fresh:
            seen = _inodes(base)
            for name in known.keys() - seen.keys():
                del known[name]
            files.clear()
            for name, inode in sorted(seen.items()):
                if name not in known or known[name][0] != inode:
                    known[name] = (inode, _infiniband_states(f"{base}/{name}"))
                files.extend(known[name][1])
        return tuple([file.read() for file in files])

    return read


def mig_instances(proc: str) -> Signature:
    """GPU instances of every GPU in MIG mode, and how many compute instances each has.

    A folder's link count grows with each folder in it. As long as those of all known folders are as they were, nothing
    was made or removed, and nothing is listed: 65 calls for eight GPUs with seven instances each. A driver that knows
    MIG makes the folder of capabilities when it is loaded; without it there are no instances.
    """
    base = f"{proc}/driver/nvidia/capabilities"
    known: dict[str, int] = {}
    listings = 0

    def read(_: bool) -> Hashable:
        nonlocal known, listings
        if not known or not _as_before(known, _links):
            folders = [base] + [f"{base}/{name}/mig" for name in _names(base) if name.startswith("gpu")]
            folders += [f"{folder}/{name}" for folder in folders[1:] for name in _names(folder)]
            now = {path: _links(path) for path in folders}
            listings += now != known
            known = now
        return listings if known[base] else 0

    return read


def nvidia_module(sys: str, proc: str) -> Signature:
    """The loaded NVIDIA kernel module, and whether it was reloaded; read when hardware may have come."""
    module: Hashable = ""

    def read(fresh: bool) -> Hashable:
        nonlocal module
        if fresh:
            module = inode_of(f"{sys}/module/nvidia"), _text(f"{proc}/driver/nvidia/version")
        return module

    return read


def compute_partitions(sys: str) -> Signature:
    """Changes of AMD's compute nodes (partitioning makes and removes some): a counter of the kernel driver.

    If there is none, ostler looks for it when hardware may have been added.
    """
    path = f"{sys}/class/kfd/kfd/topology/generation_id"
    counter = KeptFile(path)
    there = False

    def read(fresh: bool) -> Hashable:
        nonlocal there
        if fresh:
            there = os.path.lexists(path)
        return counter.read() if there else b""

    return read


def watched_files(sys: str) -> Signature:
    """Files of bound functions that change without an event (``watched_files`` of a vendor), by their texts.

    Functions are listed when hardware may have come.
    """
    wanted = [(driver, vendor.watched_files) for vendor in VENDORS if vendor.watched_files for driver in vendor.drivers]
    known: dict[str, tuple[int, tuple[KeptFile, ...]]] = {}

    def read(fresh: bool) -> Hashable:
        if fresh:
            found = {
                f"{folder}/{name}": (inode, names)
                for driver, names in wanted
                for folder in (f"{sys}/bus/pci/drivers/{driver}",)
                for name, inode in _inodes(folder).items()
                if ADDRESS.fullmatch(name)
            }
            for path in known.keys() - found.keys():
                del known[path]
            for path, (inode, names) in sorted(found.items()):
                if path not in known or known[path][0] != inode:
                    known[path] = (inode, tuple(KeptFile(f"{path}/{name}") for name in names))
        return tuple([file.read() for _, files in known.values() for file in files])

    return read


def device_folders(dev_root: str) -> tuple[str, ...]:
    """The folders of the device files that devices need; most nodes lack some."""
    return tuple(f"{dev_root}/{folder}" for folder, _ in DEVICE_FOLDERS)


def device_files(dev_root: str) -> Signature:
    """Device files that devices need, by name and inode; listed again after an event, or if a folder was written to."""
    folders = tuple(zip(device_folders(dev_root), (wanted for _, wanted in DEVICE_FOLDERS), strict=True))
    # A missing folder cannot have appeared while nothing was written to the existing ones.
    there: dict[str, tuple[int, int]] = {}
    files: dict[str, frozenset[tuple[str, int]]] = {}
    listings = 0

    def read(fresh: bool) -> Hashable:
        nonlocal there, files, listings
        if fresh or not there or not _as_before(there, _written):
            written, found = {}, {}
            for path, wanted in folders:
                now = _written(path)
                if now is None:
                    continue
                written[path] = now
                items = _inodes(path).items()
                found[path] = frozenset(item for item in items if wanted.fullmatch(item[0]))
            listings += found != files
            there, files = written, found
        return listings

    return read


def hardware(sys: str) -> Signature:
    """Functions, interfaces, RDMA devices and bound drivers by name, in place of uevents."""

    def read(_: bool) -> Hashable:
        folders = tuple(frozenset(_inodes(f"{sys}/{folder}").items()) for folder in _HARDWARE_FOLDERS)
        return folders, tuple(_names(f"{sys}/bus/pci/drivers/{driver}") for driver in _DRIVERS)

    return read


def interfaces(sys: str) -> Signature:
    """State of interfaces that are not virtual, in place of rtnetlink."""

    def read(_: bool) -> Hashable:
        base = f"{sys}/class/net"
        real = sorted(name for name in _names(base) if "/virtual/" not in _target(f"{base}/{name}"))
        states = tuple((name, _text(f"{base}/{name}/operstate"), _text(f"{base}/{name}/mtu")) for name in real)
        return len(states), states  # Never empty: a new interface is reported by nobody else.

    return read


def _as_before(known: Mapping[str, T], look: Callable[[str], T | None]) -> bool:
    """Whether every path reads as before."""
    for path, before in known.items():  # noqa: SIM110 - runs all the time, and a generator costs more
        if look(path) != before:
            return False
    return True


def _infiniband_states(device: str) -> tuple[KeptFile, ...]:
    """The states that are worth reading."""
    if os.path.lexists(f"{device}/device/physfn"):
        return ()
    ports = sorted(_names(f"{device}/ports"))
    infiniband = (port for port in ports if _text(f"{device}/ports/{port}/link_layer") == "InfiniBand")
    return tuple(KeptFile(f"{device}/ports/{port}/state") for port in infiniband)


def _names(folder: str) -> frozenset[str]:
    try:
        return frozenset(os.listdir(folder))  # noqa: PTH208 - runs all the time
    except OSError:
        return frozenset()


def _inodes(folder: str) -> dict[str, int]:
    """Names and inode numbers: a replaced entry has another number."""
    try:
        with os.scandir(folder) as found:
            return {entry.name: entry.inode() for entry in found}
    except OSError:
        return {}


def _text(path: str) -> str:
    try:
        return read_text(path)
    except Unreadable:
        return ""


def _target(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - runs all the time
    except OSError:
        return ""


def _links(path: str) -> int:
    try:
        return os.stat(path).st_nlink  # noqa: PTH116 - runs all the time
    except OSError:
        return 0


def _written(folder: str) -> tuple[int, int] | None:
    try:
        found = os.stat(folder)  # noqa: PTH116 - runs all the time
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
