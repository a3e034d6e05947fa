"""Driver and firmware version of a network interface: the ioctl behind ``ethtool -i`` (linux/ethtool.h).

Answered from the driver's memory, in microseconds, without a right; the netlink family of ethtool does not have it.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array

from node.values import Value, value

_SIOCETHTOOL = 0x8946
_GDRVINFO = 3
_INFO = struct.Struct("=I32s32s32s32s32s12s5I")
"""ethtool_drvinfo: command, driver, its version, firmware's version, bus address, ROM's version, reserved, counts."""
_REQUEST = struct.Struct("16sP16x")
"""ifreq: the interface's name, then a union of 24 bytes that begins with a pointer here."""
_NAME_LIMIT = 15


@value
class DriverInfo(Value):
    """Texts of the driver; None where it tells nothing (some write ``N/A``)."""

    driver: str | None = None
    firmware_version: str | None = None


def driver_info(interface: str) -> DriverInfo:
    """What the driver of an interface says, in the network namespace of this thread.

    Empty for an interface without the call, one that is gone, or one whose name is no UTF-8.
    """
    name = interface.encode()
    if len(name) > _NAME_LIMIT:
        return DriverInfo()
    info = array("B", _INFO.pack(_GDRVINFO, b"", b"", b"", b"", b"", b"", 0, 0, 0, 0, 0))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as handle:
            fcntl.ioctl(handle, _SIOCETHTOOL, _REQUEST.pack(name, info.buffer_info()[0]))
    except OSError:
        # Not told is a fact like any other: a link may be gone since it was listed, a driver may not know the call.
        return DriverInfo()
    _, driver, _, firmware, *_ = _INFO.unpack(info.tobytes())
    return DriverInfo(_told(driver), _told(firmware))


def _told(raw: bytes) -> str | None:
    text = raw.split(b"\0", 1)[0].decode(errors="replace").strip()
    return None if text in {"", "N/A", "n/a", "Unknown"} else text
