"""Raw facts about network interfaces, RDMA devices and the node's own use of them.

Like all raw facts they are the content of a recorded node's file: names, numbers and texts as the kernel writes them,
without conclusions. Interfaces and RDMA devices belong to the PCI function (or auxiliary device) whose path theirs
begins with; a sysfs shows only those of the network namespace it was mounted in.
"""

from __future__ import annotations

from node.values import Value, value


@value
class NetInterface(Value):
    """An interface of hardware, as /sys/class/net shows it; virtual ones (bridges, veth) are not listed.

    ``path`` is the path below /sys/devices (``pci0000:15/.../0000:1a:00.0/net/ens1np0``); for virtio a device stands
    between. ``link_type`` is the ARP hardware type: 1 Ethernet, 32 InfiniBand. ``speed_mbps`` is None when the driver
    does not report it (link down). ``port_name`` and ``switch_id`` are phys_port_name and phys_switch_id (``pf0vf3``).
    """

    name: str
    path: str
    ifindex: int | None = None
    link_type: int | None = None
    address: str | None = None
    mtu: int | None = None
    operstate: str | None = None
    carrier: bool | None = None
    speed_mbps: int | None = None
    dev_port: int | None = None
    port_name: str | None = None
    switch_id: str | None = None


@value
class RdmaPort(Value):
    """A port of an RDMA device: ``state``, ``physical_state`` and ``rate`` are sysfs' own texts.

    ``4: ACTIVE``, ``5: LinkUp``, ``400 Gb/sec (4X NDR)``; ``link_layer`` is ``InfiniBand`` or ``Ethernet``;
    ``interface`` names the network interface of the port's first GID; ``pkey`` is the partition key with index 0.
    """

    port: int
    state: str | None = None
    physical_state: str | None = None
    link_layer: str | None = None
    rate: str | None = None
    interface: str | None = None
    pkey: str | None = None


@value
class RdmaFile(Value):
    """A character device of an RDMA device: ``uverbs0``, ``umad0`` or ``issm0`` in /dev/infiniband, and its numbers."""

    name: str
    major: int
    minor: int


@value
class RdmaDevice(Value):
    """An RDMA device, as /sys/class/infiniband shows it.

    ``path`` is the path below /sys/devices (``pci0000:15/.../0000:1a:00.0/infiniband/mlx5_0``).
    """

    name: str
    path: str
    node_type: str | None = None
    node_guid: str | None = None
    system_guid: str | None = None
    firmware_version: str | None = None
    board_id: str | None = None
    hca_type: str | None = None
    ports: tuple[RdmaPort, ...] = ()
    files: tuple[RdmaFile, ...] = ()


@value
class SubFunction(Value):
    """A subfunction of a PCI function on the auxiliary bus: ``mlx5_core.sf.2`` with its number ``sfnum``."""

    name: str
    path: str
    sfnum: int | None = None
    driver: str | None = None


@value
class HostLink(Value):
    """A link of the host's network namespace, as rtnetlink shows it.

    ``kind``: ``bond``, ``bridge``, ``vlan``, ...; empty for hardware. ``master``: name of the bond or bridge that it is
    in. ``lower``: name of the link that it stands on (a vlan's). ``driver_version`` and ``firmware_version`` as ethtool
    shows them; ``permanent_address`` is burnt in.
    """

    name: str
    kind: str = ""
    up: bool = False
    master: str | None = None
    lower: str | None = None
    permanent_address: str | None = None
    driver: str | None = None
    firmware_version: str | None = None


@value
class HostAddress(Value):
    """An address in use on the host: ``10.0.0.7/24`` on ``eth0``; link-local and loopback ones are not listed."""

    interface: str
    address: str


@value
class HostRoute(Value):
    """A default route of the host, of any routing table; ``family`` is 4 or 6."""

    interface: str
    family: int
    metric: int = 0


@value
class NetworkFacts(Value):
    """What the node itself uses its network interfaces for.

    Loopback and the kinds ``veth``, ``netkit``, ``dummy`` and ``ifb`` are not listed, and neither are their addresses
    and routes: they never stand on hardware. ``errors``: tables that could not be read; their last content counts.
    ``unread``: why a table was never read at all, and so something that is not listed may be in use.
    """

    links: tuple[HostLink, ...] = ()
    addresses: tuple[HostAddress, ...] = ()
    default_routes: tuple[HostRoute, ...] = ()
    errors: tuple[str, ...] = ()
    unread: str | None = None
