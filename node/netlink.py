"""A small netlink client: dumps, requests and notifications over a raw socket, attributes as bytes.

Why not a library: the common one costs 10 MB of resident memory and 100 ms at import on every node; this costs nothing
measurable. What messages mean is in ``node.inventory.network.rtnetlink`` (what the inventory reads) and in
``node.interfaces`` (what moves an interface); here is only how they travel (linux/netlink.h): a header of 16 bytes, a
fixed part that depends on the type, then attributes, everything padded to 4 bytes in the byte order of the machine.

Invariants: a dump is complete or raises; a request is acknowledged by the kernel or raises; what cannot be parsed
raises ``NetlinkError`` and never another error. A pod can make its namespace's tables as long as it likes: what reads
those uses ``stream``, which keeps one message at a time.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Protocol

_HEADER = struct.Struct("=IHHII")
"""Length with this header, type, flags, sequence number, port."""
_ATTRIBUTE = struct.Struct("=HH")
"""Length with this header, type."""
_ERROR = struct.Struct("=i")
_TYPE_BITS = 0x3FFF
"""Without the two bits that mark nested attributes and those in network byte order."""

_REQUEST, _ACKNOWLEDGE, _DUMP, _INTERRUPTED = 0x1, 0x4, 0x300, 0x10
REPLACE, EXCLUSIVE, CREATE = 0x100, 0x200, 0x400
"""Flags of a request that makes something: replace it if it exists, fail if it exists, make it if it does not."""
_NOOP, _FAILED, _DONE, _OVERRUN = 1, 2, 3, 4
_LAST = frozenset({_FAILED, _DONE, _OVERRUN})
_RECEIVE = 1 << 18
"""Bytes per read; the kernel fills at most 32 KiB of it in a dump and sends one message per notification."""
_ANCILLARY = socket.CMSG_SPACE(4)
_ATTEMPTS = 4
"""How often a dump is started again because the tables changed during it."""
_TIMEOUT = 10.0
"""Seconds for one response; the kernel responds at once unless it holds its lock for a reconfiguration."""
_MEMBERSHIP_BITS = 32
_SOL_NETLINK, _ALL_NAMESPACES, _CAP_ACK, _EXT_ACK, _STRICT = 270, 8, 10, 11, 12
"""Socket options: notifications of other namespaces, each with the namespace's number as ancillary data of the same
type; acknowledgements without the request's body, and with the kernel's own words about an error; dumps that heed what
their request asks for (NETLINK_GET_STRICT_CHK, Linux 4.20).
"""
_EXTENDED, _MESSAGE = 0x200, 1
"""NLM_F_ACK_TLVS, and NLMSGERR_ATTR_MSG, the attribute with the kernel's words."""

Attributes = dict[int, bytes]
"""The last attribute of each type, as bytes."""


class NetlinkError(Exception):
    """Netlink refused a request or sent nonsense; the text names the request, ``reason`` is the text without it."""

    def __init__(self, asked: str, reason: str, number: int = 0) -> None:
        super().__init__(f"netlink: {asked}: {reason}")
        self.number = number
        self.reason = reason


class Netlink(Protocol):
    """Dumps and requests over one socket; all methods raise NetlinkError."""

    def dump(self, kind: int, request: bytes, asked: str) -> list[bytes]:
        """The payloads of everything that a request of this kind finds; ``asked`` names it in the error."""

    def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        """As ``dump``, one payload at a time; read it to its end before the next call.

        A table that changes meanwhile is read again: then a payload may come again, and the later one is right.
        """

    def request(self, kind: int, request: bytes, asked: str, *, flags: int = 0) -> list[bytes]:
        """Make a request that the kernel acknowledges; the payloads of its response, mostly none."""


class NetlinkSocket:
    """A socket in the network namespace of the thread that makes it; ``protocol``: NETLINK_ROUTE or another.

    ``groups`` is a bit mask of RTMGRP_* to be notified of (0: none); ``buffer`` asks for that many bytes of receive
    buffer, which the kernel doubles and limits. ``all_namespaces``: be notified by every namespace that has a number in
    this one (needs CAP_NET_BROADCAST). ``strict``: the kernel filters dumps by what the request names, where it is new
    enough; callers filter again. Raises NetlinkError.
    """

    def __init__(
        self,
        groups: int = 0,
        *,
        buffer: int | None = None,
        protocol: int = socket.NETLINK_ROUTE,
        all_namespaces: bool = False,
        strict: bool = False,
    ) -> None:
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
        except OSError as error:
            raise _refused("a socket", error) from error
        try:
            for option in (_CAP_ACK, _EXT_ACK):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            if strict:
                with suppress(OSError):  # An old kernel ignores what a dump's request names.
                    self._socket.setsockopt(_SOL_NETLINK, _STRICT, 1)
            if all_namespaces:
                self._socket.setsockopt(_SOL_NETLINK, _ALL_NAMESPACES, 1)
            if buffer is not None:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
            self._socket.bind((0, groups))
        except OSError as error:
            self._socket.close()
            raise _refused("binding a socket", error) from error
        self._socket.settimeout(0 if groups else _TIMEOUT)
        self._sequence = 0
        self._consistent = True
        """Whether the table that was dumped last did not change meanwhile."""
        self._is_dumping = False
        """Whether the kernel has more of a dump to say, whose reader may have left it after an error."""

    def fileno(self) -> int:
        """The descriptor to wait on."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def dump(self, kind: int, request: bytes, asked: str) -> list[bytes]:
        """The payloads (behind their headers) of everything that a RTM_GET* request with this body finds.

        ``asked`` names it in the error. Raises NetlinkError.
        """
        payloads: list[bytes] = []
        for _ in range(_ATTEMPTS):
            payloads = list(self._dump(kind, request, asked))
            if self._consistent:
                break
        # The tables change all the time: the last read is good enough, because a notification follows each change.
        return payloads

    def stream(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        """See ``Netlink``; raises NetlinkError."""
        for _ in range(_ATTEMPTS):
            yield from self._dump(kind, request, asked)
            if self._consistent:
                return

    def request(self, kind: int, request: bytes, asked: str, *, flags: int = 0) -> list[bytes]:
        """Make a request that the kernel acknowledges; the payloads of its response, mostly none.

        ``asked`` names it in the error, whose text has the kernel's own words where it says more than a number.
        Raises NetlinkError.
        """
        self._finish()
        self._sequence += 1
        flags |= _REQUEST | _ACKNOWLEDGE
        found: list[bytes] = []
        try:
            self._socket.send(_HEADER.pack(_HEADER.size + len(request), kind, flags, self._sequence, 0) + request)
            while True:
                for answer, noted, sequence, payload in _messages(self._socket.recv(_RECEIVE), asked):
                    if sequence != self._sequence or answer == _NOOP:
                        continue
                    if answer == _FAILED:
                        _check(payload, asked, extended=bool(noted & _EXTENDED))
                        return found
                    found.append(payload)
        except OSError as error:
            raise _refused(asked, error) from error

    def notifications(self) -> list[tuple[int, bytes]]:
        """Type and payload of the messages of one read, empty when there are none.

        Raises OSError with ENOBUFS when the kernel had to drop some, and NetlinkError.
        """
        try:
            data = self._socket.recv(_RECEIVE)
        except BlockingIOError:
            return []
        return [(kind, payload) for kind, _, _, payload in _messages(data, "notifications")]

    def numbered_notifications(self) -> list[tuple[int | None, int, bytes]]:
        """As ``notifications``, each with the number of the namespace that it is from, None for the socket's own."""
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_RECEIVE, _ANCILLARY)
        except BlockingIOError:
            return []
        numbers = [_ERROR.unpack_from(raw)[0] for _, kind, raw in ancillary if kind == _ALL_NAMESPACES]
        number = numbers[0] if numbers else None
        return [(number, kind, payload) for kind, _, _, payload in _messages(data, "notifications")]

    def _finish(self) -> None:
        """Read the rest of a dump that its reader left: the kernel makes one at a time for a socket."""
        with suppress(NetlinkError):
            for _ in self._rest("the rest of a dump"):
                pass

    def _dump(self, kind: int, request: bytes, asked: str) -> Iterator[bytes]:
        """One pass over the table; afterwards ``_consistent`` says whether it changed meanwhile."""
        self._finish()
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(request), kind, _REQUEST | _DUMP, self._sequence, 0)
        try:
            self._socket.send(header + request)
        except OSError as error:
            raise _refused(asked, error) from error
        self._consistent = self._is_dumping = True
        yield from self._rest(asked)

    def _rest(self, asked: str) -> Iterator[bytes]:
        """The rest of the kernel's answer to the last dump."""
        while self._is_dumping:
            try:
                data = self._socket.recv(_RECEIVE)
            except OSError as error:
                self._is_dumping = False
                raise _refused(asked, error) from error
            for answer, flags, sequence, payload in _messages(data, asked):
                if sequence != self._sequence or answer == _NOOP:
                    continue
                self._consistent = self._consistent and not flags & _INTERRUPTED
                if answer in _LAST:
                    self._is_dumping = False
                    if answer == _OVERRUN:
                        raise NetlinkError(asked, "the answer was cut off", errno.EOVERFLOW)
                    _check(payload, asked)
                    if answer == _DONE:
                        return
                    self._is_dumping = True
                    continue
                yield payload

    def __enter__(self) -> NetlinkSocket:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def group_mask(*groups: int) -> int:
    """The mask of multicast groups numbered as in RTNLGRP_* (1 to 32)."""
    assert all(0 < group <= _MEMBERSHIP_BITS for group in groups)
    return sum(1 << (group - 1) for group in set(groups))


def attributes(payload: bytes, start: int, asked: str = "a message") -> Attributes:
    """The attributes from offset ``start`` on; raises NetlinkError where one runs past the end."""
    return dict(attribute_list(payload, start, asked))


def attribute_list(payload: bytes, start: int, asked: str = "a message") -> list[tuple[int, bytes]]:
    """Type and content of each attribute from offset ``start`` on, in order, for types that are repeated.

    Raises NetlinkError where one runs past the end.
    """
    end, found = len(payload), []
    # A node where pods come and go reports dozens of links a second, with thirty attributes each.
    unpack, head = _ATTRIBUTE.unpack_from, _ATTRIBUTE.size
    while start + head <= end:
        length, kind = unpack(payload, start)
        if length < head or start + length > end:
            raise NetlinkError(asked, f"an attribute of {length} bytes at offset {start} of {end}", errno.EBADMSG)
        found.append((kind & _TYPE_BITS, payload[start + head : start + length]))
        # ``_padded`` without its call.
        start += (length + 3) & ~3
    return found


def attribute(kind: int, content: bytes) -> bytes:
    """One attribute in wire format."""
    length = _ATTRIBUTE.size + len(content)
    return _ATTRIBUTE.pack(length, kind) + content + bytes(_padded(length) - length)


def _messages(data: bytes, asked: str) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, sequence number and payload of every message in ``data``."""
    start, end = 0, len(data)
    while start + _HEADER.size <= end:
        length, kind, flags, sequence, _ = _HEADER.unpack_from(data, start)
        if length < _HEADER.size or start + length > end:
            raise NetlinkError(asked, f"a message of {length} bytes at offset {start} of {end}", errno.EBADMSG)
        yield kind, flags, sequence, data[start + _HEADER.size : start + length]
        start += _padded(length)


def _check(payload: bytes, asked: str, *, extended: bool = False) -> None:
    """Raise the error of an error message or of the end of a dump; 0 is no error.

    ``extended``: the kernel's words follow the request's header.
    """
    number = -_ERROR.unpack_from(payload)[0] if len(payload) >= _ERROR.size else 0
    if not number:
        return
    reason = os.strerror(number)
    if extended:
        words = attributes(payload, _ERROR.size + _HEADER.size, asked).get(_MESSAGE, b"")
        text = words.split(b"\0", 1)[0].decode(errors="replace").strip().rstrip(".")
        reason = f"{reason} ({text})" if text else reason
    raise NetlinkError(asked, reason, number)


def _refused(asked: str, error: OSError) -> NetlinkError:
    return NetlinkError(asked, error.strerror or str(error), error.errno or 0)


def _padded(length: int) -> int:
    return (length + 3) & ~3
