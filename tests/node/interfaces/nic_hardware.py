"""Stand-ins at the hardware's edge: a netlink that plays back bytes, an RDMA subsystem, and a function's settings.

No machine of the tests has RDMA or virtual functions. The bytes are written by hand from the kernel's headers
(linux/if_link.h, rdma/rdma_netlink.h), not by the code under test.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from node.interfaces.move import KernelSockets
from node.interfaces.namespace import NetworkNamespace
from node.netlink import Netlink, NetlinkError, attribute_list


class PlayedNetlink:
    """Answers each request, written as hexadecimal digits, as it is told; keeps what was asked."""

    def __init__(self, answers: dict[tuple[int, str], list[str] | NetlinkError] | None = None) -> None:
        self.answers = answers or {}
        self.asked: list[tuple[int, str]] = []

    def dump(self, kind: int, request: bytes, asked: str) -> list[bytes]:
        self.asked.append((kind, request.hex()))
        found = self.answers.get((kind, request.hex()), [])
        if isinstance(found, NetlinkError):
            raise found
        return [bytes.fromhex(each) for each in found]

    def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        yield from self.dump(kind, request, asked)

    def request(self, kind: int, request: bytes, asked: str, *, flags: int = 0) -> list[bytes]:
        return self.dump(kind, request, asked)


class NicHardware(KernelSockets):
    """``NetlinkSockets`` whose route sockets know virtual function 0 of the link ``v1``, beside all real links.

    ``rdma_devices``: the RDMA devices of each namespace, index and name, by the namespace's inode.
    """

    def __init__(self) -> None:
        self.function: dict[int, bytes] = {
            1: bytes.fromhex("00000000") + bytes(32),
            2: struct.pack("=III", 0, 0, 0),
            4: struct.pack("=II", 0, 1),
            9: struct.pack("=II", 0, 0),
        }
        """By IFLA_VF_*: no hardware address, VLAN 0, spoof check on, no trust."""
        self.function_index = 0
        self.exclusive = True
        self.rdma_refusal = 0
        """Error number that opening a socket of RDMA netlink ends with, 0 for none."""
        self.rdma_devices: dict[int, dict[int, str]] = {}
        self.moves: list[str] = []

    @contextmanager
    def route(self, namespace: NetworkNamespace) -> Iterator[Netlink]:
        with super().route(namespace) as real:
            yield _FunctionNetlink(self, real)

    @contextmanager
    def rdma(self, namespace: NetworkNamespace) -> Iterator[Netlink]:
        if self.rdma_refusal:
            raise NetlinkError("a socket", os.strerror(self.rdma_refusal), self.rdma_refusal)
        yield _RdmaNetlink(self, namespace.inode)


class _FunctionNetlink:
    """Real rtnetlink but for what concerns virtual functions."""

    def __init__(self, hardware: NicHardware, real: Netlink) -> None:
        self._hardware = hardware
        self._real = real

    def dump(self, kind: int, request: bytes, asked: str) -> list[bytes]:
        return self._real.dump(kind, request, asked)

    def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        yield from self._real.stream(kind, request, asked)

    def request(self, kind: int, request: bytes, asked: str, *, flags: int = 0) -> list[bytes]:
        found = dict(attribute_list(request, 16)) if kind in {16, 18} else {}
        if kind == 18 and found.get(29) == struct.pack("=I", 1):
            inner = b"".join(_attribute(each, raw) for each, raw in self._hardware.function.items())
            self._hardware.function_index = struct.unpack_from("=i", request, 4)[0]
            return [request[:16] + _attribute(0x8000 | 22, _attribute(0x8000 | 1, inner))]
        if kind == 16 and 22 in found:
            assert struct.unpack_from("=i", request, 4)[0] == self._hardware.function_index
            [(one, content)] = attribute_list(found[22], 0)
            assert one == 1
            self._hardware.function |= dict(attribute_list(content, 0))
            return []
        return self._real.request(kind, request, asked, flags=flags)


class _RdmaNetlink:
    """RDMA netlink of one namespace."""

    def __init__(self, hardware: NicHardware, inode: int) -> None:
        self._hardware = hardware
        self._inode = inode

    def dump(self, kind: int, request: bytes, asked: str) -> list[bytes]:
        if kind == 0x1405:
            return []
        assert kind == 0x1401
        devices = self._hardware.rdma_devices.get(self._inode, {})
        return [
            _attribute(1, struct.pack("=I", index)) + _attribute(2, name.encode() + b"\0")
            for index, name in devices.items()
        ]

    def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        yield from self.dump(kind, request, asked)

    def request(self, kind: int, request: bytes, asked: str, *, flags: int = 0) -> list[bytes]:
        if kind == 0x1406:
            return [_attribute(66, b"\0" if self._hardware.exclusive else b"\1")]
        assert kind == 0x1402
        found = dict(attribute_list(request, 0))
        index, descriptor = (struct.unpack("=I", found[each])[0] for each in (1, 68))
        name = self._hardware.rdma_devices[self._inode].pop(index)
        self._hardware.rdma_devices.setdefault(os.fstat(descriptor).st_ino, {})[index] = name
        self._hardware.moves.append(name)
        return []


def _attribute(kind: int, content: bytes) -> bytes:
    padding = bytes(-len(content) % 4)
    return struct.pack("=HH", 4 + len(content), kind) + content + padding
