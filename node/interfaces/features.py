"""Offloads of an interface that ``ethtool -K`` switches (linux/ethtool.h), by the ioctl, in the thread's namespace.

The kernel names features in a string set that differs from version to version, so names are looked up there, never
counted. The short names that ``ethtool`` has of old stand for one or several of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct
from array import array
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from node.interfaces.model import InterfaceError
from node.values import Value, value

_SIOCETHTOOL = 0x8946
_REQUEST = struct.Struct("16sP16x")
"""ifreq: the interface's name, then a union of 24 bytes that begins with a pointer here."""
_GSTRINGS, _GSSET_INFO, _GFEATURES, _SFEATURES = 0x1B, 0x37, 0x3A, 0x3B
_SET_FEATURES = 4
_NAME_BYTES, _BLOCK_BITS = 32, 32

_known_names: list[str] = []

SHORT_NAMES = {
    "rx": ("rx-checksum",),
    "tx": (
        "tx-checksum-ipv4",
        "tx-checksum-ip-generic",
        "tx-checksum-ipv6",
        "tx-checksum-fcoe-crc",
        "tx-checksum-sctp",
    ),
    "sg": ("tx-scatter-gather", "tx-scatter-gather-fraglist"),
    "tso": (
        "tx-tcp-segmentation",
        "tx-tcp-ecn-segmentation",
        "tx-tcp-mangleid-segmentation",
        "tx-tcp6-segmentation",
    ),
    "gso": ("tx-generic-segmentation",),
    "gro": ("rx-gro",),
    "lro": ("rx-lro",),
    "rxvlan": ("rx-vlan-hw-parse",),
    "txvlan": ("tx-vlan-hw-insert",),
    "ntuple": ("rx-ntuple-filter",),
    "rxhash": ("rx-hashing",),
}
"""What the names of ``ethtool -K`` stand for; a name for several sets those that the device can change."""


@value
class _Feature(Value):
    """A feature's number in the kernel's set, and whether the device can change it.

    ``on``: it is. ``requested``: it would be if what it depends on were.
    """

    number: int
    changeable: bool
    on: bool
    requested: bool


def all_features(interface: str) -> tuple[tuple[str, bool], ...]:
    """What is requested of every feature that can change, by the kernel's names; raises OSError."""
    return tuple((name, each.requested) for name, each in _features(interface).items() if each.changeable)


def check_features(interface: str, wanted: Sequence[tuple[str, bool]]) -> None:
    """Refuse what ``set_features`` would.

    Raises InterfaceError for a name that the kernel does not know or a feature that the device cannot change, OSError
    if the interface is gone.
    """
    if not wanted:
        return
    _resolved(interface, _features(interface), wanted)


def restore_features(interface: str, before: Iterable[tuple[str, bool]]) -> None:
    """Request again what ``all_features`` said, whoever changed it since; raises OSError."""
    known = _features(interface)
    _request(
        interface,
        known,
        [
            (known[name].number, on)
            for name, on in before
            if name in known and known[name].changeable and known[name].requested is not on
        ],
    )


def set_features(interface: str, wanted: Sequence[tuple[str, bool]]) -> None:
    """Switch the features that differ; raises as ``check_features``, and InterfaceError if the driver refuses one."""
    if not wanted:
        return
    known = _features(interface)
    changed = [(known[name].number, on) for name, on in _resolved(interface, known, wanted) if known[name].on is not on]
    _request(interface, known, changed)
    after = _features(interface)
    refused = [name for name, on in _resolved(interface, after, wanted) if after[name].on is not on]
    if refused:
        on = dict(_resolved(interface, after, wanted))[refused[0]]
        kept, why = (
            ("off", "a feature that it depends on is off") if on else ("on", "a feature that depends on it is on")
        )
        raise InterfaceError(
            f"interface {interface}: the driver keeps feature {refused[0]} {kept}; {why}, or the hardware cannot do "
            "otherwise; leave it out of the claim's features"
        )


def _request(interface: str, known: dict[str, _Feature], changed: Sequence[tuple[int, bool]]) -> None:
    """Request these features, by number, on or off."""
    if not changed:
        return
    blocks = [[0, 0] for _ in range(_blocks(known))]
    for number, on in changed:
        bit = 1 << number % _BLOCK_BITS
        blocks[number // _BLOCK_BITS][0] |= bit
        blocks[number // _BLOCK_BITS][1] |= bit if on else 0
    flat = [word for block in blocks for word in block]
    _ioctl(interface, struct.pack(f"=II{len(flat)}I", _SFEATURES, len(blocks), *flat))


def _resolved(interface: str, known: dict[str, _Feature], wanted: Iterable[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """The kernel's names of the features that are wanted, with what they shall be."""
    found: dict[str, bool] = {}
    for name, on in wanted:
        candidates = [each for each in SHORT_NAMES.get(name, (name,)) if each in known]
        if not candidates:
            similar = get_close_matches(name, [*known, *SHORT_NAMES], n=1)
            raise InterfaceError(
                f"interface {interface}: this kernel knows no ethtool feature {name!r}"
                + (f"; did you mean {similar[0]}?" if similar else "; 'ethtool -k' lists those that it knows")
            )
        changeable = [each for each in candidates if known[each].changeable]
        if not changeable and any(known[each].on is not on for each in candidates):
            raise InterfaceError(
                f"interface {interface}: feature {name} is {'off' if on else 'on'}, and this device cannot change it; "
                "leave it out of the claim's features"
            )
        found |= dict.fromkeys(changeable, on)
    return list(found.items())


def _features(interface: str) -> dict[str, _Feature]:
    """All features of the interface by the kernel's names."""
    names = _names(interface)
    size = -(-len(names) // _BLOCK_BITS)
    answer = _ioctl(interface, struct.pack("=II", _GFEATURES, size) + bytes(size * 16))
    blocks = [struct.unpack_from("=IIII", answer, 8 + at * 16) for at in range(size)]
    found = {}
    for number, name in enumerate(names):
        available, requested, active, never = (
            word >> number % _BLOCK_BITS & 1 for word in blocks[number // _BLOCK_BITS]
        )
        if name:
            changeable = bool(available and not never)
            found[name] = _Feature(number, changeable, on=bool(active), requested=bool(requested))
    return found


def _names(interface: str) -> list[str]:
    """The kernel's names of features, which are the same for every interface: each question waits for its lock."""
    if not _known_names:
        length = struct.unpack_from(
            "=I", _ioctl(interface, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET_FEATURES, 0)), 16
        )[0]
        strings = _ioctl(interface, struct.pack("=III", _GSTRINGS, _SET_FEATURES, length) + bytes(length * _NAME_BYTES))
        found = (strings[12 + at * _NAME_BYTES :][:_NAME_BYTES].split(b"\0", 1)[0] for at in range(length))
        _known_names[:] = [name.decode() for name in found]
    return _known_names


def _blocks(known: dict[str, _Feature]) -> int:
    """Blocks of 32 features that the kernel has."""
    return max(feature.number for feature in known.values()) // _BLOCK_BITS + 1


def _ioctl(interface: str, request: bytes) -> bytes:
    """What the kernel answers; raises OSError."""
    name = interface.encode()
    if len(name) >= 16:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
    content = array("B", request)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
        fcntl.ioctl(handle, _SIOCETHTOOL, _REQUEST.pack(name, content.buffer_info()[0]))
    return content.tobytes()
