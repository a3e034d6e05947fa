"""RDMA devices in network namespaces (rdma/rdma_netlink.h, the part "nldev"): mode, devices, and moving them.

In the system's mode *shared* every namespace sees every RDMA device, and a container needs its device files alone; a
device can be moved in the mode *exclusive* only. Messages go over a socket of NETLINK_RDMA in the namespace that has
the device.
"""

from __future__ import annotations

import errno

from node.interfaces.links import NUMBER, number, text
from node.netlink import Netlink, NetlinkError, attribute, attributes
from node.values import Value, value

NETLINK_RDMA = 20
_NLDEV = 5 << 10
_GET, _SET, _PORT_GET, _SYSTEM_GET = _NLDEV | 1, _NLDEV | 2, _NLDEV | 5, _NLDEV | 6
_INDEX, _NAME, _LINK_INDEX, _MODE, _NAMESPACE = 1, 2, 50, 66, 68
_EXCLUSIVE = 0
WITHOUT_RDMA = frozenset({errno.EPROTONOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT})
"""Errors of a kernel that has no RDMA, or whose nldev is older than the request."""


@value
class IndexedRdmaDevice(Value):
    """An RDMA device of a namespace; its index stays when it moves or is renamed."""

    index: int
    name: str


def is_exclusive(netlink: Netlink) -> bool:
    """Whether each RDMA device belongs to one network namespace; raises NetlinkError."""
    try:
        answer = netlink.request(_SYSTEM_GET, b"", "the RDMA namespace mode")
    except NetlinkError as error:
        if error.number in WITHOUT_RDMA:
            return False
        raise
    modes = [attributes(payload, 0, "RDMA system").get(_MODE, b"\1") for payload in answer]
    return bool(modes) and modes[0][:1] == bytes([_EXCLUSIVE])


def devices(netlink: Netlink) -> tuple[IndexedRdmaDevice, ...]:
    """The RDMA devices that the socket's namespace sees; raises NetlinkError."""
    found = [attributes(payload, 0, "an RDMA device") for payload in netlink.dump(_GET, b"", "RDMA devices")]
    return tuple(IndexedRdmaDevice(number(each.get(_INDEX, b"")), text(each.get(_NAME, b""))) for each in found)


def device_of(netlink: Netlink, link: int) -> IndexedRdmaDevice | None:
    """The RDMA device with a port whose interface is the link with that index; raises NetlinkError."""
    for device in devices(netlink):
        request = attribute(_INDEX, NUMBER.pack(device.index))
        for payload in netlink.dump(_PORT_GET, request, f"ports of RDMA device {device.name}"):
            if number(attributes(payload, 0, "an RDMA port").get(_LINK_INDEX, b"")) == link:
                return device
    return None


def move_device(netlink: Netlink, device: IndexedRdmaDevice, namespace: int) -> None:
    """Move the device from the socket's namespace to the one that the descriptor names; raises NetlinkError."""
    request = attribute(_INDEX, NUMBER.pack(device.index)) + attribute(_NAMESPACE, NUMBER.pack(namespace))
    netlink.request(_SET, request, f"moving RDMA device {device.name}")
