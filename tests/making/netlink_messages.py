"""Netlink messages as the kernel would send them."""

from __future__ import annotations

import socket
import struct

from node.netlink import attribute


def link(
    index: int,
    name: str = "eth0",
    *,
    kind: str = "",
    flags: int = 0x1,
    mtu: int = 1500,
    operstate: int = 6,
    carrier: bool = True,
    master: int = 0,
    lower: int = 0,
    namespace: int | None = None,
    family: int = 0,
    statistics: bytes = b"",
) -> bytes:
    parts = [struct.pack("=BxHiII", family, 1, index, flags, 0)]
    if name:
        parts.append(attribute(3, name.encode() + b"\0"))
    parts += [attribute(4, struct.pack("=I", mtu)), attribute(16, bytes([operstate])), attribute(33, bytes([carrier]))]
    if master:
        parts.append(attribute(10, struct.pack("=I", master)))
    if lower:
        parts.append(attribute(5, struct.pack("=I", lower)))
    if namespace is not None:
        parts.append(attribute(37, struct.pack("=i", namespace)))
    if kind:
        # The bit for nested attributes, as new kernels set it.
        parts.append(attribute(18 | 0x8000, attribute(1, kind.encode() + b"\0")))
    if statistics:
        parts.append(attribute(23, statistics))
    return b"".join(parts)


def address(index: int, text: str, prefix: int = 24, *, scope: int = 0) -> bytes:
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    raw = socket.inet_pton(family, text)
    return struct.pack("=BBBBI", family, prefix, 0, scope, index) + attribute(1, raw) + attribute(2, raw)


def route(
    *hops: int, family: int = socket.AF_INET, length: int = 0, kind: int = 1, metric: int = 0, flags: int = 0
) -> bytes:
    parts = [struct.pack("=BBBBBBBBI", family, length, 0, 0, 254, 3, 0, kind, flags)]
    if metric:
        parts.append(attribute(6, struct.pack("=I", metric)))
    if len(hops) == 1:
        parts.append(attribute(4, struct.pack("=I", hops[0])))
    elif hops:
        gateway = attribute(5, b"\x0a\0\0\x01")
        hop = [struct.pack("=HBBi", 8 + len(gateway), 0, 0, index) + gateway for index in hops]
        parts.append(attribute(9, b"".join(hop)))
    return b"".join(parts)
