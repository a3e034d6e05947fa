"""The UUID in a PCI function's vital product data (VPD), which all functions of one NVIDIA NIC share.

A ConnectX-8 with Data Direct is a NIC at the CPU and a second PCI function beside a GPU. Nothing in the tree says that
the two belong together; the kernel and rdma-core match them by this UUID, which is in the field V3.

The kernel reads VPD from the device itself, four bytes at a time, and waits for each. So it is read only on nodes that
have such a function, once for each, and no further than needed. The layout is that of the PCI specification: resources
with a tag and a length, and in the read-only one fields with a name of two letters and a length.
"""

from __future__ import annotations

import os

_LARGE = 0x80
_READ_ONLY = 0x90
_ENDS = (0x78, 0x79)
_STEP, _MOST = 256, 4096
"""Bytes that are read at a time, and at most."""


def vpd_uuid(folder: str) -> str:
    """The UUID of the function in this folder of sysfs; empty if it has none, or its VPD cannot be read."""
    try:
        descriptor = os.open(f"{folder}/vpd", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return ""
    content = b""
    try:
        while len(content) < _MOST:
            step = os.pread(descriptor, _STEP, len(content))
            content += step
            found = uuid_in(content)
            if found or not step:
                return found
    except OSError:
        pass  # A device may end its VPD anywhere.
    finally:
        os.close(descriptor)
    return ""


def uuid_in(content: bytes) -> str:
    """The UUID in the beginning of a VPD; empty if it is not there, or not there yet."""
    position = 0
    while position < len(content) and content[position] not in _ENDS:
        tag = content[position]
        large = bool(tag & _LARGE)
        start = position + (3 if large else 1)
        size = int.from_bytes(content[position + 1 : start], "little") if large else tag & 7
        if tag == _READ_ONLY:
            return _field(content[start : start + size], b"V3")
        position = start + size
    return ""


def _field(resource: bytes, name: bytes) -> str:
    position = 0
    while position + 3 <= len(resource):
        end = position + 3 + resource[position + 2]
        if end > len(resource):
            return ""
        if resource[position : position + 2] == name:
            text = resource[position + 3 : end].strip(b" \0")
            return text.decode("ascii").lower() if text.isalnum() and text.isascii() else ""
        position = end
    return ""
