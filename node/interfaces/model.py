"""Interfaces of NICs that a pod gets: what it asks for, what the node had before, and what it has now.

Frozen values without behaviour; whoever makes them has checked them. Addresses are CIDR texts (``10.0.0.2/24``),
hardware addresses are ``aa:bb:cc:dd:ee:ff``, networks of routes are CIDR texts with ``0.0.0.0/0`` and ``::/0`` for the
default ones.
"""

from __future__ import annotations

from node.values import Value, value


@value
class Route(Value):
    """A route through the interface. ``gateway`` and ``source``: IP addresses, empty for none.

    ``scope``: empty (the kernel's choice), ``global`` or ``link``. ``table``: 0 is the main table. The rest is what
    routes of the node have: ``metric`` (the kernel's priority), ``protocol`` (who made it, RTPROT_*; 0 for static), and
    ``onlink`` (the gateway needs no route of its own).
    """

    destination: str
    gateway: str = ""
    source: str = ""
    scope: str = ""
    table: int = 0
    metric: int = 0
    protocol: int = 0
    onlink: bool = False


@value
class RoutingRule(Value):
    """A rule of policy routing in the pod: ``source`` and ``destination`` are CIDR texts, empty for all."""

    table: int
    source: str = ""
    destination: str = ""
    priority: int = 0


@value
class Neighbor(Value):
    """A permanent entry of the neighbour table."""

    destination: str
    hardware_address: str


@value
class VfSettings(Value):
    """Settings that a virtual function has at its physical one; None leaves a setting as it is."""

    hardware_address: str = ""
    vlan: int | None = None
    vlan_qos: int | None = None
    trust: bool | None = None
    spoof_check: bool | None = None


@value
class InterfaceSettings(Value):
    """The settings that an interface gets in its pod.

    ``name``: empty keeps that of the node. ``addresses``: None keeps the global ones that it has on the node, and with
    them its routes unless ``routes`` names others. ``mtu``: bytes, 0 keeps it. ``hardware_address``: empty keeps it.
    ``features``: ethtool features, on or off. ``sysctls``: below ``net/ipv4/conf/<name>`` or ``net/ipv6/conf/<name>``,
    as ``("ipv4/arp_ignore", "1")``. ``keep_ebpf``: leave XDP programs and filters that others attached.
    """

    name: str = ""
    addresses: tuple[str, ...] | None = None
    routes: tuple[Route, ...] | None = None
    rules: tuple[RoutingRule, ...] = ()
    neighbors: tuple[Neighbor, ...] = ()
    mtu: int = 0
    hardware_address: str = ""
    vf: VfSettings | None = None
    features: tuple[tuple[str, bool], ...] = ()
    sysctls: tuple[tuple[str, str], ...] = ()
    keep_ebpf: bool = True


@value
class MovableInterface(Value):
    """A device's interface as the inventory knows it, and what the claim wants of it.

    ``device``: the device's name. ``interface``: its name on the node. ``pci_address``: empty for an interface without
    PCI function. ``vf_index``: its number at the interface ``pf_interface``, None unless it is a virtual function.
    ``rdma_device``: its RDMA device, empty for none.
    """

    device: str
    interface: str
    settings: InterfaceSettings
    pci_address: str = ""
    rdma_device: str = ""
    pf_interface: str = ""
    vf_index: int | None = None


@value
class HostSetup(Value):
    """What an interface had on the node before it was moved, to be restored when it is back.

    ``up``: administratively up. ``rules``: those that lead to tables of its routes; they stay on the node, and the pod
    gets copies. ``features``: all that can change, since the pod may change any. ``vf``: settings at its physical
    function that the claim changes. ``alias``: the one that an operator gave it. ``sysctls``: those of its own that
    differ from the namespace's defaults, which the move resets. ``programs``: ids of the XDP and tcx programs on it.
    ``promiscuous``: it was so, or took every multicast. ``alternative_names``, ``switches``, ``tuning``,
    ``broadcast``, ``parent``, ``permanent_address``, ``kind``: as ``InterfaceLink`` has them; None or nothing where
    they are unknown. A pod can change none of the last three.
    """

    interface: str
    index: int
    hardware_address: str
    mtu: int
    up: bool = False
    addresses: tuple[str, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[RoutingRule, ...] = ()
    neighbors: tuple[Neighbor, ...] = ()
    features: tuple[tuple[str, bool], ...] = ()
    vf: VfSettings | None = None
    alias: str = ""
    sysctls: tuple[tuple[str, str], ...] = ()
    programs: tuple[int, ...] = ()
    promiscuous: bool = False
    alternative_names: tuple[str, ...] | None = None
    switches: int | None = None
    tuning: tuple[tuple[int, int], ...] = ()
    broadcast: str = ""
    parent: str = ""
    permanent_address: str = ""
    kind: str | None = None


@value
class AttachedInterface(Value):
    """An interface in a pod, with what it has there. ``rdma_device``: that was moved with it, empty for none."""

    device: str
    name: str
    hardware_address: str
    addresses: tuple[str, ...] = ()
    mtu: int = 0
    rdma_device: str = ""


class InterfaceError(Exception):
    """An interface cannot be moved, set up or taken back; the text names it, what the kernel said, and the fix."""
