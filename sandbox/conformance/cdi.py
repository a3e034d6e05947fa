"""Names and spec files of the Container Device Interface, as a rule judges them."""

from __future__ import annotations

import re
from pathlib import Path

from node.documents import parse_json
from node.yaml_text import parse_yaml

_VENDOR = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")


def cdi_name_fault(name: str) -> str:
    """Say what is wrong with a qualified CDI device name; empty for nothing."""
    kind, equals, device = name.partition("=")
    vendor, slash, class_ = kind.partition("/")
    if not equals or not slash:
        return f"the CDI device {name!r} is not of the form vendor/class=name"
    for what, text, pattern in (("vendor", vendor, _VENDOR), ("class", class_, _CLASS), ("name", device, _NAME)):
        if not pattern.fullmatch(text):
            return f"the CDI device {name!r} has the {what} {text!r}, which no runtime takes"
    return ""


def cdi_file_fault(path: Path, data: bytes) -> str:
    """Say what is wrong with a CDI spec file, to follow its name in a sentence; empty for nothing."""
    if path.suffix not in (".json", ".yaml"):
        return ""
    try:
        document = parse_json(data) if path.suffix == ".json" else parse_yaml(data)
    except ValueError as error:
        return f"cannot be read: {error}"
    if not isinstance(document, dict):
        return "is not an object"
    devices = document.get("devices")
    for field in ("cdiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            return f"has no {field}"
    if not isinstance(devices, list) or not devices:
        return "has no devices"
    for device in devices:
        if not isinstance(device, dict) or not isinstance(device.get("name"), str):
            return "has a device without a name"
        fault = cdi_name_fault(f"{document['kind']}={device['name']}")
        if fault:
            return f"is refused by runtimes: {fault}"
    return ""
