"""PCI addresses as people write them, and the one spelling that a device has: that of sysfs."""

from __future__ import annotations

import re

FORM = r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
"""What is understood, in lower case: also without a domain, and with the eight digits of it that nvidia-smi writes."""


def parse_address(text: str) -> str | None:
    """The address in sysfs's spelling, ``0000:3b:00.0``; None for what is no address."""
    match = re.fullmatch(FORM, text.strip().lower())
    return None if match is None else f"{int(match[1] or '0', 16):04x}:{match[2]}"


def spelling(text: str) -> str:
    """What to do about a text that is not in sysfs's spelling."""
    address = parse_address(text)
    if address is None:
        return "write it as domain:bus:device.function in lower case, such as 0000:3b:00.0"
    return f"write {address}"
