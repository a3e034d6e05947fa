"""The last facts of a NIC's interfaces and RDMA devices, for the time while they are in a pod.

A NIC is its PCI function and bound driver. An interface or RDMA device that moved into a pod's network namespace is
invisible to the agent, also after the agent's restart. Rules select by it and pods hold it, so it is remembered while
the same driver is bound. Pure: ``node.inventory.identity`` reads and writes the file.

The state of the link is not remembered, because nobody can read it for an interface in a pod. Speeds are remembered
only in memory; a new speed is no reason to write to the disk.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.files import JsonValue
from node.inventory.net_facts import NetInterface, RdmaDevice, RdmaPort
from node.value_data import from_data, to_data
from node.values import Value, replace, value


@value
class RememberedNic(Value):
    """A function by its PCI address (``auxiliary``: its subfunction's device, else empty) and what it had last.
    ``driver`` is the driver bound at that time; the memory counts only while it is bound. ``firmware``: version as
    ethtool shows it.
    """

    address: str
    driver: str
    auxiliary: str = ""
    interfaces: tuple[NetInterface, ...] = ()
    rdma: tuple[RdmaDevice, ...] = ()
    firmware: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Address and auxiliary device."""
        return self.address, self.auxiliary


def remembered_interface(interface: NetInterface) -> NetInterface:
    """The interface without what is not remembered."""
    return replace(interface, ifindex=None, operstate=None, carrier=None)


def remembered_rdma(device: RdmaDevice) -> RdmaDevice:
    """The RDMA device without what is not remembered."""
    return replace(device, ports=tuple([replace(port, state=None, physical_state=None) for port in device.ports]))


def lasting(nics: Iterable[RememberedNic]) -> tuple[RememberedNic, ...]:
    """The part whose changes are worth a write to the disk: all but speeds, which change with the link."""
    return tuple(
        replace(
            nic,
            interfaces=tuple([replace(each, speed_mbps=None) for each in nic.interfaces]),
            rdma=tuple([replace(each, ports=_without_rates(each.ports)) for each in nic.rdma]),
        )
        for nic in nics
    )


def nics_to_data(nics: Iterable[RememberedNic]) -> JsonValue:
    """The memory as JSON data."""
    return [to_data(nic) for nic in nics]


def nics_from_data(data: JsonValue) -> tuple[RememberedNic, ...]:
    """The memory from JSON data, by address, one entry per function; malformed entries are left out."""
    found: dict[tuple[str, str], RememberedNic] = {}
    for item in data if isinstance(data, list) else ():
        try:
            nic = from_data(RememberedNic, item)
        except ValueError:
            continue  # The record's hash was right: another version wrote this, and the next scan writes it again.
        found[nic.key] = nic
    return tuple(found[key] for key in sorted(found))


def _without_rates(ports: Iterable[RdmaPort]) -> tuple[RdmaPort, ...]:
    return tuple([replace(port, rate=None) for port in ports])
