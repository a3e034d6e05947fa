"""The printed form of Go values that the kubelet makes its checksums from, and the checksum: FNV-1a of 32 bits.

Strings stand raw and unquoted, lists and maps in brackets, a nil list or map as ``<nil>``; maps are sorted by their
keys. The printed forms of whole structs are written out where the structs are read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

NIL = "<nil>"


def listed(items: Iterable[str] | None) -> str:
    """A slice of printed items; None for a nil one."""
    return NIL if items is None else f"[{' '.join(items)}]"


def mapped(pairs: Iterable[tuple[str, str]] | None) -> str:
    """A map of printed keys and values, in this order; None for a nil one."""
    return NIL if pairs is None else "map" + listed(f"{key}:{item}" for key, item in pairs)


def fnv32(text: str) -> int:
    """FNV-1a, 32 bit, of the text's bytes."""
    value = 0x811C9DC5
    for byte in as_bytes(text):
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def as_bytes(text: str) -> bytes:
    """A string's bytes, by which Go sorts and hashes it."""
    return text.encode("utf-8", "replace")
