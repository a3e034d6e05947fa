"""Finds the interfaces and RDMA devices of each network function, present or remembered. Pure. What is below a function
in /sys/devices belongs to it, with one exception: in the e-switch mode switchdev, the interfaces that stand for other
functions' ports (representors) are below the physical function; they are no devices. An interface that is remembered
and not visible, while the same driver is bound, is in a pod.

An RDMA device that vanished counts as moved only if its interface vanished too, or if the function has no interface at
all: with the interface still there, its module was unloaded.

The name of a kernel driver decides what it means for a function. Variants of vfio-pci for one vendor's parts carry
``vfio`` in their names (``mlx5_vfio_pci``, ``virtio_vfio_pci``, ``hisi-acc-vfio-pci``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from operator import attrgetter

from node.inventory.facts import NodeFacts, PciFunction, SysfsFacts
from node.inventory.net_facts import NetInterface, RdmaDevice, RdmaPort, SubFunction
from node.inventory.nics.memory import RememberedNic, remembered_interface, remembered_rdma
from node.inventory.pci import ADDRESS, DISPLAY_CLASS, base_class, is_data_direct, is_network
from node.values import Value, value

_UPLINK = re.compile(r"p\d+(?:s\d+)?")
_REPRESENTOR = r"c\d+pf\d+.*|(?:p\d+)?pf\d+(?:vf|sf)\d+"
"""Ports of other functions, those of another controller (DPU) among them; some drivers put the uplink's name before."""
_HOST_REPRESENTOR = r"pf\d+"
_LAST = 1 << 31


@value
class NicPort(Value):
    """A port of a function: its interface, the RDMA devices behind it, and the RDMA port that goes with it.

    ``number`` is the interface's dev_port, 0 if the driver has none. ``in_pod``: its interface or RDMA device is a
    remembered one, because it left the host's network namespace.
    """

    number: int = 0
    interface: NetInterface | None = None
    rdma: tuple[RdmaDevice, ...] = ()
    rdma_port: RdmaPort | None = None
    in_pod: bool = False

    @property
    def visible_interface(self) -> NetInterface | None:
        """The visible interface; None if there is none."""
        return None if self.in_pod else self.interface


@value
class NicPart(Value):
    """A network function, or a subfunction of one, with its ports: one at least, in order of their numbers."""

    function: PciFunction
    subfunction: SubFunction | None = None
    ports: tuple[NicPort, ...] = ()
    firmware: str | None = None

    @property
    def driver(self) -> str | None:
        """The kernel driver that is bound to it."""
        return self.function.driver if self.subfunction is None else self.subfunction.driver

    @property
    def key(self) -> tuple[str, str]:
        """Address and auxiliary device, as in memory."""
        return self.function.address, self.subfunction.name if self.subfunction is not None else ""

    @property
    def switchdev(self) -> bool:
        """Whether an interface of it is the uplink of an e-switch in the mode switchdev."""
        interfaces = (port.interface for port in self.ports)
        return any(each is not None and each.switch_id is not None and _is_uplink(each) for each in interfaces)


def nic_parts(facts: NodeFacts, remembered: Iterable[RememberedNic]) -> list[NicPart]:
    """Every network function and subfunction, by address and auxiliary device."""
    sysfs = facts.sysfs
    if sysfs is None:
        return []
    below = _Below(sysfs)
    memory = {nic.key: nic for nic in remembered}
    links = facts.network.links if facts.network is not None else ()
    firmware = {link.name: link.firmware_version for link in links if link.firmware_version}
    parts = []
    for function in sorted(sysfs.pci, key=attrgetter("address", "path")):
        if is_data_direct(function):
            continue
        whole = NicPart(function)
        if is_network(function) or _may_be_rdma_adapter(function, below, memory.get(whole.key)):
            whole = _completed(whole, function.path, below, memory.get(whole.key), firmware)
            if is_network(function) or any(port.rdma for port in whole.ports):
                parts.append(whole)
        for subfunction in below.subfunctions.get(function.path, ()):
            part = NicPart(function, subfunction)
            parts.append(_completed(part, subfunction.path, below, memory.get(part.key), firmware))
    return parts


def nics_to_remember(remembered: tuple[RememberedNic, ...], facts: NodeFacts) -> tuple[RememberedNic, ...]:
    """The memory after this scan; entries that stay the same are the very same objects.

    Forgotten: functions that are not on the bus any more, have another driver, or none. While sysfs cannot be read
    without errors, a function that is not listed may just not have been read.
    """
    sysfs = facts.sysfs
    if sysfs is None:
        return remembered
    old = {nic.key: nic for nic in remembered}
    parts = {part.key: part for part in nic_parts(facts, remembered)}
    listed = {function.address for function in sysfs.pci}
    kept = {key: nic for key, nic in old.items() if sysfs.errors and nic.address not in listed}
    for key, part in parts.items():
        made = _memory_of(part)
        if made is not None:
            known = old.get(key)
            kept[key] = known if known == made and known is not None else made
    return tuple(kept[key] for key in sorted(kept))


class _Below:
    """What is below each function and subfunction, found once by path."""

    def __init__(self, sysfs: SysfsFacts) -> None:
        # A function whose place in the tree is unknown has no path, and owns nothing.
        owners = {function.path for function in sysfs.pci if function.path}
        self.accelerators = frozenset(each.address for each in sysfs.accelerators)
        self.subfunctions: dict[str, list[SubFunction]] = defaultdict(list)
        for each in sorted(sysfs.subfunctions, key=attrgetter("name", "path")):
            owner = _owner(each.path, owners)
            if owner is not None:
                self.subfunctions[owner].append(each)
        owners |= {each.path for found in self.subfunctions.values() for each in found}
        self.interfaces: dict[str, list[NetInterface]] = defaultdict(list)
        for interface in sysfs.interfaces:
            owner = _owner(interface.path, owners)
            if owner is not None:
                self.interfaces[owner].append(interface)
        self.rdma: dict[str, list[RdmaDevice]] = defaultdict(list)
        for device in sysfs.rdma:
            owner = _owner(device.path, owners)
            if owner is not None:
                self.rdma[owner].append(device)


def _owner(path: str, owners: set[str]) -> str | None:
    """The nearest owner above a path, not beyond the nearest PCI function."""
    above = path
    while above:
        above, _, last = above.rpartition("/")
        if ADDRESS.fullmatch(last):
            return None
        if above in owners:
            return above
    return None


def _may_be_rdma_adapter(function: PciFunction, below: _Below, memory: RememberedNic | None) -> bool:
    """Whether a function of another class than network's has an RDMA device, or had one that may be in a pod.

    The RDMA device of an accelerator is the accelerator's own way to its peers, and is allocated with it.
    """
    if (base_class(function) or 0) >> 8 == DISPLAY_CLASS or function.address in below.accelerators:
        return False
    return function.path in below.rdma or (memory is not None and bool(memory.rdma))


def _completed(
    part: NicPart, path: str, below: _Below, memory: RememberedNic | None, firmware: Mapping[str, str]
) -> NicPart:
    if memory is not None and (memory.driver != part.driver or not serves_network(part.driver)):
        memory = None
    visible = _own(below.interfaces.get(path, ()))
    gone = _gone(memory, visible)
    rdma: Iterable[RdmaDevice] = below.rdma.get(path, ())
    rdma_gone = not rdma and memory is not None and bool(memory.rdma) and (bool(gone) or not visible)
    if rdma_gone and memory is not None:
        rdma = memory.rdma
    rdma = tuple(sorted(rdma, key=lambda each: (len(each.name), each.name, each.path)))
    interfaces = {**visible, **gone}
    alone = len(interfaces) < 2
    ports = [_port(number, interfaces[number], number in gone, rdma, alone=alone) for number in sorted(interfaces)]
    if not ports:
        ports = [_port(0, None, rdma_gone, rdma, alone=True)]
    version = next((firmware[each.name] for each in visible.values() if firmware.get(each.name)), None)
    version = version or (memory.firmware if memory is not None else None)
    return NicPart(part.function, part.subfunction, tuple(ports), version)


def _gone(memory: RememberedNic | None, visible: dict[int, NetInterface]) -> dict[int, NetInterface]:
    """Remembered interfaces that are not visible, neither at their port nor under their name, by their port."""
    names = {each.name for each in visible.values()}
    found = memory.interfaces if memory is not None else ()
    return {
        each.dev_port or 0: each for each in found if (each.dev_port or 0) not in visible and each.name not in names
    }


def _own(interfaces: Iterable[NetInterface]) -> dict[int, NetInterface]:
    """A function's own interfaces by the number of their port; of several at one port the oldest."""
    found = list(interfaces)
    uplink = any(_is_uplink(each) for each in found)
    own: dict[int, NetInterface] = {}
    for each in sorted(found, key=lambda each: (_LAST if each.ifindex is None else each.ifindex, each.name, each.path)):
        if not _is_representor(each, uplink):
            own.setdefault(each.dev_port or 0, each)
    return own


def _is_uplink(interface: NetInterface) -> bool:
    return _UPLINK.fullmatch(interface.port_name or "") is not None


def _is_representor(interface: NetInterface, uplink: bool) -> bool:
    """``uplink``: the function has an uplink; then a port named ``pf0`` stands for the host that a DPU is in."""
    name = interface.port_name
    if interface.switch_id is None or name is None:
        return False
    if "pf" not in name:
        # Most nodes have none, and need not compile the expressions.
        return False
    return bool(re.fullmatch(_REPRESENTOR, name) or (uplink and re.fullmatch(_HOST_REPRESENTOR, name)))


def _port(
    number: int, interface: NetInterface | None, in_pod: bool, devices: tuple[RdmaDevice, ...], *, alone: bool
) -> NicPort:
    """The port with its RDMA devices: those that name its interface; for a port ``alone`` the others as well."""
    name = interface.name if interface is not None else None
    named = [each for each in devices if any(one.interface == name for one in each.ports)] if name is not None else []
    if alone:
        mine = (*named, *(each for each in devices if each not in named))
    else:
        mine = tuple(named or (each for each in devices if any(port.port == number + 1 for port in each.ports)))
    ports = mine[0].ports if mine else ()
    # A dual-port adapter counts its RDMA ports from 1 and its interfaces' dev_port from 0.
    chosen = next((each for each in ports if name is not None and each.interface == name), None)
    chosen = chosen or next((each for each in ports if each.port == number + 1), ports[0] if ports else None)
    return NicPort(number, interface, mine, chosen, in_pod)


def _memory_of(part: NicPart) -> RememberedNic | None:
    interfaces = tuple([remembered_interface(port.interface) for port in part.ports if port.interface is not None])
    rdma: dict[str, RdmaDevice] = {each.path: each for port in part.ports for each in port.rdma}
    driver = part.driver
    if driver is None or not serves_network(driver) or not (interfaces or rdma):
        return None
    address, auxiliary = part.key
    kept = tuple([remembered_rdma(rdma[path]) for path in sorted(rdma)])
    return RememberedNic(address, driver, auxiliary, interfaces, kept, part.firmware)


_UIO = frozenset({"uio_pci_generic", "igb_uio"})
_KEEPERS = frozenset({"pci-stub", "pciback", "xen-pciback"})


def uses_vfio(driver: str | None) -> bool:
    """Whether programs drive the function through /dev/vfio."""
    return driver is not None and "vfio" in driver


def uses_uio(driver: str | None) -> bool:
    """Whether programs drive the function through /dev/uioN."""
    return driver in _UIO


def keeps_away(driver: str | None) -> bool:
    """Whether the driver only reserves the function: for a guest of the hypervisor, or until somebody takes it."""
    return driver in _KEEPERS


def serves_network(driver: str | None) -> bool:
    """Whether it is a driver of the kernel's own network or RDMA stack."""
    return driver is not None and not (uses_vfio(driver) or uses_uio(driver) or keeps_away(driver))
