"""Names and spec files of the Container Device Interface, as a rule judges them."""

from __future__ import annotations

import re

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def cdi_name_fault(name: str) -> str:
    """What is wrong with a qualified CDI device name; empty for nothing."""
    kind, equals, device = name.partition("=")
    vendor, slash, class_ = kind.partition("/")
    if not equals or not slash:
        return f"the CDI device {name!r} is not of the form vendor/class=name"
    for what, text, pattern in (("vendor", vendor, _VENDOR), ("class", class_, _CLASS), ("name", device, _NAME)):
        if not pattern.fullmatch(text):
            return f"the CDI device {name!r} has the {what} {text!r}, which no runtime takes"
    return ""
