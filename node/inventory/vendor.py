"""What ostler knows about one GPU vendor, as one value.

Every vendor has a folder beside this file with a ``vendor.py`` that holds its value, and ``vendors.py`` lists them. The
rest of the code uses the value and names no vendor, so a new vendor is a folder and a line in that list. Values hold
facts and pure functions; what talks to hardware for longer than a read of sysfs (NVML) is loaded elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from node.inventory.facts import NodeFacts, SysfsFacts
from node.inventory.model import Device, DeviceKind
from node.values import Value, value

if TYPE_CHECKING:
    from node.inventory.identity import Identities

Environment = tuple[tuple[str, str], ...]


class Family(StrEnum):
    """How containers get devices."""

    NVIDIA = "nvidia"
    """By the variables, mounts and CDI specs that NVIDIA's container runtime knows."""
    NIC = "nic"
    NODES = "nodes"
    """By device nodes, and by the variables that the vendor names."""


@value
class VendorResource(Value):
    """A resource that the vendor's own device plugin offers, and its devices; ``drivers`` empty: with any driver."""

    name: str
    kinds: tuple[DeviceKind, ...] = (DeviceKind.GPU,)
    drivers: tuple[str, ...] = ()

    @property
    def domain(self) -> str:
        """What is before the slash, with the slash: ``amd.com/``."""
        domain, slash, _ = self.name.partition("/")
        return domain + slash


@value
class DriverCheck(Value):
    """How ``ostler doctor`` judges the vendor's driver.

    ``control``: a device file without which no GPU works, and ``without_control``: why, and what to do. ``node``: how
    the name of the device node begins that every GPU must have, and ``node_name`` what it is called.
    """

    node: str
    node_name: str
    control: str = ""
    without_control: tuple[str, str] = ("", "")


def _same(sysfs: SysfsFacts, *_: object) -> SysfsFacts:
    return sysfs


def _pci_address(device: Device) -> str | None:
    return device.pci_address


def _no_variables(_: Sequence[Device]) -> Environment:
    return ()


@value
class Vendor(Value):
    """One GPU vendor.

    - ``name``: as devices, rules and attributes have it; ``title``: as people write it.
    - ``pci_vendor``: in sysfs' form; ``drivers``: kernel drivers under which its GPUs compute.
    - ``devices``: makes its devices of raw facts; pure, and never raises.
    - ``resources``: what its own plugin offers: the default rules. ``dra_driver``: name of its own DRA driver.
    - ``id_of``: the id that its own plugin gives a device; None if that has none, and the name is used.
    - ``family``, ``cdi_class``, ``environment``: how containers get its devices: the class of our CDI specs, and
      variables for all of a container's devices of this vendor.
    - ``source``: name of the source that reports its devices; while it waits, nothing is known of them.
    - ``read_sysfs``: completes facts by what only its drivers show, from /sys and /proc; a failure is a line in the
      list. ``without_absent``: facts without what belongs to PCI functions that are not among these addresses.
    - ``device_files``: folders below the root and the names of device files in them that matter. ``partition_files``:
      the folder of them whose files come and go with partitions made for claims, empty for none.
    - ``modules``: kernel modules whose coming and going matters, as a regular expression; ``subsystems``: of uevents;
      ``class_folders``: below /sys, whose entries are its devices. ``watched_files``: files of a bound PCI function
      that change without any event, and mean that devices must be read again.
    - ``link``: what direct links between its GPUs are called, and the two letters for them in a matrix.
    - ``check``: how the doctor judges the driver; None where it has checks of its own, or none.
    """

    name: str
    title: str
    pci_vendor: str
    drivers: tuple[str, ...]
    devices: Callable[[NodeFacts, Identities], Iterable[Device]]
    resources: tuple[VendorResource, ...]
    dra_driver: str
    cdi_class: str
    id_of: Callable[[Device], str | None] = _pci_address
    family: Family = Family.NODES
    environment: Callable[[Sequence[Device]], Environment] = _no_variables
    source: str = "sysfs"
    read_sysfs: Callable[[SysfsFacts, str, str, list[str]], SysfsFacts] = _same
    without_absent: Callable[[SysfsFacts, frozenset[str]], SysfsFacts] = _same
    device_files: tuple[tuple[str, str], ...] = ()
    partition_files: str = ""
    modules: str = ""
    subsystems: tuple[str, ...] = ()
    class_folders: tuple[str, ...] = ()
    watched_files: tuple[str, ...] = ()
    link: tuple[str, str] | None = None
    check: DriverCheck | None = None

    @property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """Kinds that its devices are of."""
        return tuple(dict.fromkeys(kind for resource in self.resources for kind in resource.kinds))
