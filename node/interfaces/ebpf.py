"""BPF programs on an interface that others attached: XDP, tcx, and filters of the clsact or ingress qdisc.

The kernel drops qdiscs, and filters with them, when it moves an interface; XDP and tcx programs travel along. What a
pod attached must not go on running on the node's own traffic, so programs that are not of the node are taken away
before the interface comes back. Programs that hang on a BPF link are taken off the link, which its owner sees.

``bpf(2)`` works in the network namespace of the calling thread.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from node.interfaces.links import InterfaceLink, detach_xdp
from node.netlink import Netlink, NetlinkError

_SYSCALLS = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "s390x": 351, "riscv64": 280, "loongarch64": 280}
_PROGRAM_DETACH, _PROGRAM_BY_ID, _INFO, _QUERY = 9, 13, 15, 16
_LINK_BY_ID, _NEXT_LINK, _LINK_DETACH = 30, 31, 34
_INGRESS, _EGRESS = 46, 47
_AT_MOST = 64
"""Programs of one hook that the kernel keeps (BPF_MPROG_MAX)."""
_LINK_XDP = 6
_ABSENT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOENT, errno.EOPNOTSUPP})
"""Errors of a kernel without tcx or without BPF."""


def xdp_ids(link: InterfaceLink) -> tuple[int, ...]:
    """The ids of the XDP programs on the link."""
    return tuple(sorted(program for _, program in link.xdp))


def detach_xdp_programs(netlink: Netlink, link: InterfaceLink, *, keep: tuple[int, ...] = ()) -> None:
    """Take the link's XDP programs away but those of ``keep`` (ids); raises NetlinkError and OSError.

    Runs in the link's namespace.
    """
    for mode, program in link.xdp:
        if program in keep:
            continue
        try:
            detach_xdp(netlink, link.index, mode)
        except NetlinkError as error:
            if error.number != errno.EBUSY:
                raise
            _detach_xdp_links(link.index, program)


def tcx_ids(index: int) -> tuple[int, ...]:
    """The ids of the tcx programs on the link; empty for a kernel without them. Raises OSError."""
    return tuple(sorted(program for hook in (_INGRESS, _EGRESS) for program, _ in _tcx(index, hook)))


def detach_tcx_programs(index: int, *, keep: tuple[int, ...] = ()) -> None:
    """Take the link's tcx programs away but those of ``keep`` (ids); raises OSError."""
    for hook in (_INGRESS, _EGRESS):
        for program, link in _tcx(index, hook):
            if program in keep:
                continue
            if link:
                _detach_link(link)
            else:
                with _descriptor(_PROGRAM_BY_ID, program) as descriptor:
                    _bpf(_PROGRAM_DETACH, struct.pack("=IIIIIIQ", index, descriptor, hook, 0, 0, 0, 0))


def _tcx(index: int, hook: int) -> list[tuple[int, int]]:
    """Program and BPF link (0 for none), by id, of each program of the hook."""
    programs, links = (ctypes.c_uint32 * _AT_MOST)(), (ctypes.c_uint32 * _AT_MOST)()
    request = struct.pack(
        "=IIIIQIIQQQQ", index, hook, 0, 0, ctypes.addressof(programs), _AT_MOST, 0, 0, ctypes.addressof(links), 0, 0
    )
    try:
        answer = _bpf(_QUERY, request)
    except OSError as error:
        if error.errno in _ABSENT:
            return []
        raise
    count = struct.unpack_from("=I", answer, 24)[0]
    return [(programs[at], links[at]) for at in range(min(count, _AT_MOST))]


def _detach_xdp_links(index: int, program: int) -> None:
    """Take the program off the BPF links that hold it on this link."""
    number = 0
    while True:
        try:
            number = struct.unpack_from("=I", _bpf(_NEXT_LINK, struct.pack("=III", number, 0, 0)), 4)[0]
        except OSError as error:
            if error.errno == errno.ENOENT:
                return
            raise
        # A link that ended since it was listed is no error.
        with suppress(FileNotFoundError), _descriptor(_LINK_BY_ID, number) as descriptor:
            info = ctypes.create_string_buffer(64)
            _bpf(_INFO, struct.pack("=IIQ", descriptor, len(info), ctypes.addressof(info)))
            kind, _, held, _, on = struct.unpack_from("=IIIII", info.raw)
            if (kind, held, on) == (_LINK_XDP, program, index):
                _bpf(_LINK_DETACH, struct.pack("=I", descriptor))


def _detach_link(number: int) -> None:
    with suppress(FileNotFoundError), _descriptor(_LINK_BY_ID, number) as descriptor:
        _bpf(_LINK_DETACH, struct.pack("=I", descriptor))


@contextmanager
def _descriptor(command: int, number: int) -> Iterator[int]:
    """A descriptor of the program or link with this id."""
    descriptor, _ = _call(command, struct.pack("=III", number, 0, 0))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _bpf(command: int, request: bytes) -> bytes:
    return _call(command, request)[1]


def _call(command: int, request: bytes) -> tuple[int, bytes]:
    """What ``bpf(2)`` returns and what it made of the request; raises OSError."""
    number = _SYSCALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    content = ctypes.create_string_buffer(request, len(request))
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.syscall(number, command, content, len(content))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result), content.raw
