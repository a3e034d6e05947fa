"""A uevent as a value, and which ones can matter to the inventory. Pure, apart from looking at /sys/module."""

from __future__ import annotations

import os
import re

from node.inventory.sysfs.small_file import inode_of
from node.inventory.vendors import VENDORS
from node.values import Value, value

SUBSYSTEMS = (
    "pci",
    "net",
    "infiniband",
    "infiniband_verbs",
    "infiniband_mad",
    "auxiliary",
    "vdpa",
    "vfio",
    "vfio-dev",
    "uio",
    "drm",
    "misc",
    "module",
    *(subsystem for vendor in VENDORS for subsystem in vendor.subsystems),
)
"""What is listened to; the kernel drops the rest before it reaches the agent where events come from udev."""

_VIRTUAL = "/devices/virtual/"
_MISC = frozenset({"rdma_cm", "tun", "vfio", "vhost-net"})
_MODULE = re.compile(
    "|".join(vendor.modules for vendor in VENDORS) + "|"
    r"mlx[45]_.*|ib_.*|rdma_.*|irdma|bnxt_.*|efa|erdma|ionic.*|qed.*|"  # RDMA and the NICs that have it
    r"ice|iavf|i40e|ixgbe.*|igb.*|igc|e1000e?|ena|gve|mana.*|virtio_net|cxgb4.*|enic|sfc|hns.*|hinic.*|rvu_.*|octeon_.*|"
    r"vfio.*|uio.*|vhost.*|tun"  # user-space drivers
)


@value
class Uevent(Value):
    """One uevent; ``path`` begins with /sys. What could not be read of it is empty, and it counts."""

    action: str
    subsystem: str
    path: str

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition("/")[2]


class Relevance:
    """Says which events are hints to scan; ``sys`` is where /sys is.

    Virtual interfaces are left out: every pod makes some, and what the node uses of them comes by rtnetlink. A module's
    event counts only when the module differs from what was seen of it last, because a driver that cannot be loaded may
    be tried, and fail, with every scan: events of our own making must not lead to scans.
    """

    def __init__(self, sys: str = "/sys") -> None:
        self._modules = f"{sys}/module"
        try:
            names = os.listdir(self._modules)  # noqa: PTH208 - names are all that is needed
        except OSError:
            # A kernel without modules; what is loaded later is new.
            names = []
        self._loaded = {name: inode_of(f"{self._modules}/{name}") for name in names if _MODULE.fullmatch(name)}

    def __call__(self, event: Uevent) -> bool:
        """Whether the event may mean that the inventory has changed."""
        match event.subsystem:
            case "net":
                return _VIRTUAL not in event.path
            case "misc":
                return event.name in _MISC
            case "module":
                return _MODULE.fullmatch(event.name) is not None and self._differs(event.name)
            case _:
                return True

    def _differs(self, module: str) -> bool:
        # A module that was unloaded and loaded again is another directory.
        now = inode_of(f"{self._modules}/{module}")
        before = self._loaded.pop(module, 0)
        if now:
            self._loaded[module] = now
        return now != before
