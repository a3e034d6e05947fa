"""Device files of GPUs and NICs, and of what containers get along with them.

Only real device files count: a folder, a link or a plain file that a container runtime left in /dev under such a name
(bind mounts of sources that did not exist) is not one.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from operator import attrgetter
from typing import Protocol

from node.inventory.facts import DeviceFile
from node.inventory.sysfs.files import entries, printable
from node.inventory.vendor import Vendor
from node.inventory.vendors import VENDORS

_SHARED = (
    ("dev", "uio[0-9]+|vhost-net|iommu"),
    ("dev/dri", ".+"),
    ("dev/infiniband", "(?:uverbs|umad|issm)[0-9]+|rdma_cm"),
    ("dev/net", "tun"),
    ("dev/vfio", "vfio|(?:noiommu-)?[0-9]+"),
    ("dev/vfio/devices", "(?:noiommu-)?vfio[0-9]+"),
)


DeviceFolders = tuple[tuple[str, re.Pattern[str]], ...]
"""Folders below the device root, and the names of the files in them that matter."""


def _folders(vendors: Iterable[Vendor]) -> DeviceFolders:
    wanted: dict[str, list[str]] = {}
    for folder, names in (*_SHARED, *(each for vendor in vendors for each in vendor.device_files)):
        wanted.setdefault(folder, []).append(names)
    return tuple((folder, re.compile("|".join(names))) for folder, names in sorted(wanted.items()))


DEVICE_FOLDERS = _folders(VENDORS)
_OF_PARTITIONS = frozenset(vendor.partition_files for vendor in VENDORS if vendor.partition_files)
PARTITION_FOLDERS = tuple(each for each in DEVICE_FOLDERS if each[0] in _OF_PARTITIONS)
"""Those whose files come and go with the partitions of GPUs."""


class StatDevice(Protocol):
    """How device numbers are read."""

    def __call__(self, path: str) -> tuple[str, int, int] | None:
        """Kind (``c`` or ``b``), major and minor number of the device file, None when it is no device file.

        Raises OSError.
        """


def stat_device(path: str) -> tuple[str, int, int] | None:
    """Device numbers by lstat; see StatDevice."""
    found = os.lstat(path)
    if stat.S_ISCHR(found.st_mode):
        kind = "c"
    elif stat.S_ISBLK(found.st_mode):
        kind = "b"
    else:
        return None
    return kind, os.major(found.st_rdev), os.minor(found.st_rdev)


def device_files(
    root: str, stat_device: StatDevice, errors: list[str], folders: DeviceFolders = DEVICE_FOLDERS
) -> tuple[DeviceFile, ...]:
    """Device files below ``root``/dev, by their paths inside the root, sorted; what failed is a line in ``errors``."""
    base = root.rstrip("/")
    found = []
    for folder, names in folders:
        for entry in entries(f"{base}/{folder}", errors, absent_is_fine=folder != "dev"):
            if not names.fullmatch(entry.name):
                continue
            try:
                numbers = stat_device(entry.path)
            except FileNotFoundError:
                continue
            except OSError as error:
                errors.append(f"{printable(entry.path)}: {error.strerror}")
                continue
            if numbers is not None:
                found.append(DeviceFile(printable(f"/{folder}/{entry.name}"), *numbers))
    return tuple(sorted(found, key=attrgetter("path")))
