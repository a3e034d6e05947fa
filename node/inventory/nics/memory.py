"""What was last seen of a NIC's interfaces and RDMA devices, for the time they are in a pod.

A NIC is its PCI function and bound driver; an interface or RDMA device that moved into a pod's network namespace is not
visible to the agent, and neither is it after the agent's restart. Rules select by what it was and pods hold it, so it
is remembered as long as the same driver is bound. Pure: reading and writing is ``node.inventory.identity``'s.

What says how the link is at this moment is not remembered, because nobody can tell it of an interface in a pod. Speeds
are remembered in memory, and are no reason to write to the disk.
"""

from __future__ import annotations

from collections.abc import Iterable

from node.files import JsonValue
from node.inventory.net_facts import NetInterface, RdmaDevice, RdmaPort
from node.inventory.value_record import from_data, to_data
from node.values import Value, replace, value


@value
class RememberedNic(Value):
    """A function by its PCI address (``auxiliary``: its subfunction's device, else empty) and what it had last.

    ``driver`` is what was bound to it; what is remembered counts only while the same one is. ``firmware``: version as
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
    """What is kept of an interface."""
    return replace(interface, ifindex=None, operstate=None, carrier=None)


def remembered_rdma(device: RdmaDevice) -> RdmaDevice:
    """What is kept of an RDMA device."""
    return replace(device, ports=tuple([replace(port, state=None, physical_state=None) for port in device.ports]))


def lasting(nics: Iterable[RememberedNic]) -> tuple[RememberedNic, ...]:
    """What of this memory is worth a write to the disk: all but speeds, which change when links come and go."""
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
    """The memory out of JSON data, by address, one entry per function; what has not the right form is left out."""
    found: dict[tuple[str, str], RememberedNic] = {}
    for item in data if isinstance(data, list) else ():
        try:
            nic = from_data(RememberedNic, item)
        except ValueError:
            continue  # The record's hash was right: another version wrote this, and the next scan writes it anew.
        found[nic.key] = nic
    return tuple(found[key] for key in sorted(found))


def _without_rates(ports: Iterable[RdmaPort]) -> tuple[RdmaPort, ...]:
    return tuple([replace(port, rate=None) for port in ports])
