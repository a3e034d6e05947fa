"""How the link of a NIC's port is, as far as anybody can tell.

Pure. An interface that is administratively down has no carrier to read. For a physical function that means that its
link is down. An idle virtual function waits for its pod in just that state, and its link is its physical function's.
"""

from __future__ import annotations

from node.inventory.net_facts import RdmaPort
from node.inventory.nics.parts import NicPort

_ACTIVE = "active"
_DOWN = frozenset({"down", "lowerlayerdown", "notpresent"})
_ETHERNET, _INFINIBAND = "ethernet", "infiniband"
_LINK_TYPES = {1: _ETHERNET, 32: _INFINIBAND}
_LINK_LAYERS = {"ethernet": _ETHERNET, "infiniband": _INFINIBAND}


def link_up(port: NicPort, physical: NicPort | None) -> bool | None:
    """Whether the link is up, None when nobody can tell.

    ``physical``: the port of the physical function that this virtual one or subfunction goes through.
    """
    interface = port.visible_interface
    if link_type(port, None) == _INFINIBAND or interface is None:
        # An IPoIB interface may be down while the InfiniBand port is in use.
        active = _active(port.rdma_port)
        if active is not None:
            return active
    if interface is not None:
        if interface.carrier is not None:
            return interface.carrier
        if interface.operstate == "up":
            return True
        if physical is None and interface.operstate in _DOWN:
            return False
    if physical is None:
        return _active(port.rdma_port)
    return link_up(physical, None)


def link_type(port: NicPort, physical: NicPort | None) -> str | None:
    """``ethernet`` or ``infiniband``, of the interface, else of the RDMA port, else of the physical function."""
    found = None
    if port.interface is not None and port.interface.link_type is not None:
        found = _LINK_TYPES.get(port.interface.link_type)
    if found is None and port.rdma_port is not None:
        found = _LINK_LAYERS.get((port.rdma_port.link_layer or "").lower())
    return found or (link_type(physical, None) if physical is not None else None)


def port_state(port: RdmaPort | None) -> str | None:
    """``active`` of ``4: ACTIVE``."""
    text = port.state if port is not None else None
    return (text or "").partition(":")[2].strip().lower() or None


def rate_gbps(port: RdmaPort | None) -> int | None:
    """400 of ``400 Gb/sec (4X NDR)``; whole gigabits per second, rounded down."""
    text = port.rate if port is not None else None
    rate, unit, _ = (text or "").partition(" Gb/sec")
    whole = rate.partition(".")[0]
    return int(whole) if unit and whole.isascii() and whole.isdecimal() else None


def _active(port: RdmaPort | None) -> bool | None:
    state = port_state(port)
    return state == _ACTIVE if state is not None else None
