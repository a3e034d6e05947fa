"""Network interfaces of hardware, from /sys/class/net.

The folder shows one network namespace: an interface that a pod took away is not there. Virtual interfaces (bridges,
veth, tunnels) are left out by their place in the tree, without being read.

Drivers may decline to answer; that is None. Asking for the speed can cost a firmware command under the network
configuration's lock, so an interface that is up is asked again only when its link has changed since (carrier_changes).
A speed that is set on a virtual NIC without a change of the link is therefore seen after the next such change only.
"""

from __future__ import annotations

from node.inventory.net_facts import NetInterface
from node.inventory.sysfs.files import ANSWERED, DRIVERS, Stamp, SysfsFolder, entries, printable, stamp
from node.values import replace

_MASTERS = "bonding_masters"
"""A file of the bonding driver in the class folder, no interface."""

_Known = tuple[Stamp, str | None, NetInterface | None]
"""An entry's stamp, its carrier_changes, and the interface, None for a virtual one."""


class NetInterfaces:
    """Reads the interfaces below ``sys`` and remembers what cannot change."""

    def __init__(self, sys: str) -> None:
        self._folder = f"{sys}/class/net"
        self._known: dict[str, _Known] = {}

    def read(self, errors: list[str]) -> tuple[NetInterface, ...]:
        """The interfaces by name."""
        known: dict[str, _Known] = {}
        interfaces = []
        for entry in entries(self._folder, errors, absent_is_fine=True):
            mark = stamp(entry)
            if mark is None or entry.name == _MASTERS:
                continue
            before = self._known.get(entry.name)
            if before is not None and before[0] != mark:
                before = None
            folder = SysfsFolder(entry.path, [])
            now = _read_one(folder, entry.name, mark, before)
            interface = None if now is None else now[2]
            if now is not None and interface is None:
                known[entry.name] = now
                continue
            if (interface is None or interface.operstate is None) and folder.gone:
                continue
            errors += folder.errors
            if now is not None and interface is not None:
                interfaces.append(interface)
                if not folder.errors:
                    known[entry.name] = now
        self._known = known
        return tuple(interfaces)

    def forget(self) -> None:
        """Forget what was seen."""
        self._known = {}


def _read_one(folder: SysfsFolder, name: str, mark: Stamp, before: _Known | None) -> _Known | None:
    """None for what is no interface."""
    if before is not None:
        _, changes, interface = before
        return before if interface is None else _update(folder, mark, changes, interface)
    path = folder.tree_path(name)
    if not path:
        return None
    if path.startswith("virtual/"):
        return mark, None, None
    identified = NetInterface(
        name=printable(name),
        path=path,
        ifindex=folder.number("ifindex", ANSWERED),
        link_type=folder.number("type", ANSWERED),
        dev_port=folder.number("dev_port", DRIVERS),
    )
    return _update(folder, mark, None, identified)


def _update(folder: SysfsFolder, mark: Stamp, changes: str | None, interface: NetInterface) -> _Known:
    """The interface with its current variable facts; the same value if nothing changed."""
    address = folder.text("address", ANSWERED)
    mtu = folder.number("mtu", ANSWERED)
    flag = folder.number("carrier", DRIVERS)
    carrier = None if flag is None else flag != 0
    speed, changes = _speed(folder, carrier, changes, interface)
    port_name = folder.text("phys_port_name", DRIVERS) or None
    switch_id = folder.text("phys_switch_id", DRIVERS) or None
    # Last, since every interface has it: whoever can be asked for it was there all the time.
    operstate = folder.text("operstate", ANSWERED)
    now = (address, mtu, operstate, carrier, speed, port_name, switch_id)
    if now != _changing(interface):
        interface = replace(
            interface,
            address=address,
            mtu=mtu,
            operstate=operstate,
            carrier=carrier,
            speed_mbps=speed,
            port_name=port_name,
            switch_id=switch_id,
        )
    return mark, changes, interface


def _speed(
    folder: SysfsFolder, carrier: bool | None, before: str | None, interface: NetInterface
) -> tuple[int | None, str | None]:
    """The speed in Mbit/s, and the count of link changes that it is of."""
    if carrier is False:
        # Some drivers then show the last or the highest speed of the link.
        return None, None
    changes = folder.text("carrier_changes", DRIVERS)
    if changes is not None and changes == before:
        return interface.speed_mbps, changes
    speed = folder.number("speed", DRIVERS)
    return None if speed is None or speed < 0 else speed, changes


def _changing(interface: NetInterface) -> tuple[object, ...]:
    """The fields that ``_update`` reads, in its order."""
    return (
        interface.address,
        interface.mtu,
        interface.operstate,
        interface.carrier,
        interface.speed_mbps,
        interface.port_name,
        interface.switch_id,
    )
