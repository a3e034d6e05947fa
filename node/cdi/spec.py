"""A CDI spec as a value, checked by the rules of the CDI specification, and its JSON.

Pure. A spec states the lowest version that its content needs, because older runtimes refuse newer ones. What container
runtimes would refuse is refused here first, with the field, the value and the reason, because a runtime that meets a
bad file drops every device in it. No spec is written that is larger than ``LARGEST``, which is what is read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field

from node.edits.model import ContainerEdits, HookEdit, MountEdit, NodeEdit
from node.values import Value, value

LARGEST = 4 << 20
"""Bytes of a spec's file, some times what a claim needs that has as many NVIDIA devices as a claim can.

The folder is in memory (tmpfs), and every runtime reads every file in it.
"""
STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")

_NAME = r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
_DEVICE = r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?"
_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_SURROGATE = "[\ud800-\udfff]"
_SHOWN = 256
"""Characters that a message shows of a text that is wrong."""


class CdiError(Exception):
    """A spec or its file is invalid: ``where``, ``problem`` and ``fix`` in words."""

    def __init__(self, where: str, problem: str, fix: str) -> None:
        super().__init__(f"CDI {where}: {problem}; {fix}")
        self.where = where
        self.problem = problem
        self.fix = fix


@value
class CdiDevice(Value):
    """A device by its name inside the spec's kind, and what a container gets with it."""

    name: str
    edits: ContainerEdits


@value
class Spec(Value):
    """A kind (``vendor/class``), its devices, and what every container with any of them gets once.

    ``version``: the CDI version to state unless the content needs a newer one; empty for the lowest that it needs.
    """

    kind: str
    devices: tuple[CdiDevice, ...]
    edits: ContainerEdits = field(default_factory=ContainerEdits)
    version: str = ""


def minimum_version(spec: Spec) -> str:
    """The lowest CDI version that has everything the spec uses."""
    _, _, class_ = spec.kind.partition("/")
    if "." in class_:
        return "0.6.0"
    nodes = (node for edits in _all_edits(spec) for node in edits.nodes)
    if any(device.name[:1].isdigit() for device in spec.devices) or any(node.path != node.host_path for node in nodes):
        return "0.5.0"
    return "0.3.0"


def validate(spec: Spec) -> None:
    """Raise ``CdiError`` for the first thing that the CDI specification does not allow."""
    _check_kind(spec.kind)
    if not spec.devices:
        raise CdiError(f"{spec.kind}", "a spec has no devices", "write no file for it")
    names: set[str] = set()
    for device in spec.devices:
        where = f"{spec.kind}={device.name}"
        if not re.fullmatch(_DEVICE, device.name):
            raise CdiError(
                where, f"{device.name!r} is not a device name", "use letters, digits and inside also _ - . :"
            )
        if device.name in names:
            raise CdiError(where, "the device is there twice", "name it once")
        names.add(device.name)
        if not (device.edits.nodes or device.edits.mounts or device.edits.env or device.edits.hooks):
            raise CdiError(where, "a device without edits", "give it at least a device node")
        _check_edits(where, device.edits)
    _check_edits(spec.kind, spec.edits)


def encode(spec: Spec) -> bytes:
    """The spec as JSON, the same bytes for the same spec; validates it first.

    Raises ``CdiError``, also for what would be larger than ``LARGEST``.
    """
    _check_size(spec, sum(len(text) for edits in _all_edits(spec) for text in _texts(edits)))
    validate(spec)
    document: dict[str, object] = {"cdiVersion": max(minimum_version(spec), spec.version), "kind": spec.kind}
    document["devices"] = [{"name": device.name, "containerEdits": _edits(device.edits)} for device in spec.devices]
    if _edits(spec.edits):
        document["containerEdits"] = _edits(spec.edits)
    data = (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()
    _check_size(spec, len(data))
    return data


def _all_edits(spec: Spec) -> Iterator[ContainerEdits]:
    yield spec.edits
    for device in spec.devices:
        yield device.edits


def _check_size(spec: Spec, size: int) -> None:
    """``size``: bytes of the file, or fewer."""
    if size > LARGEST:
        raise CdiError(
            f"spec of {spec.kind}",
            f"the file of its {len(spec.devices)} devices has at least {size} bytes; the limit is {LARGEST}",
            "name fewer devices in it",
        )


def _check_kind(kind: str) -> None:
    vendor, separator, class_ = kind.partition("/")
    if not separator or not re.fullmatch(_NAME, vendor) or not re.fullmatch(_NAME, class_):
        raise CdiError(f"kind {kind!r}", "is not vendor/class", "start both with a letter, end with a letter or digit")
    if len(vendor) > 253 or not all(re.fullmatch(_LABEL, label) for label in vendor.split(".")):
        raise CdiError(f"kind {kind!r}", "the vendor is not a DNS subdomain", "use lower-case letters, digits, - and .")
    if len(class_) > 63:
        raise CdiError(f"kind {kind!r}", "the class has more than 63 characters", "shorten it")


def _check_edits(where: str, edits: ContainerEdits) -> None:
    for name, _ in edits.env:
        if not name or "=" in name:
            raise CdiError(where, f"{name!r} is not a variable name", "use a name without =")
    for node in edits.nodes:
        _check_path(where, "device node", node.path)
        _check_path(where, "device node", node.host_path)
        if not set(node.permissions) <= set("rwm"):
            raise CdiError(where, f"permissions {node.permissions!r} of {node.path}", "use letters out of rwm")
    for mount in edits.mounts:
        _check_path(where, "mount", mount.host_path)
        _check_path(where, "mount", mount.container_path)
    for hook in edits.hooks:
        _check_path(where, "hook", hook.path)
        if hook.stage not in STAGES:
            raise CdiError(where, f"hook stage {hook.stage!r} is unknown", f"use one of {', '.join(STAGES)}")
    if edits.annotations or edits.cdi_devices:
        raise CdiError(where, "container annotations and CDI names are not CDI edits", "keep them in the answer")
    for text in _texts(edits):
        _check_text(where, text)


def _check_path(where: str, what: str, path: str) -> None:
    if not path.startswith("/"):
        raise CdiError(where, f"the path {path!r} of a {what} is not absolute", "start it with /")


def _texts(edits: ContainerEdits) -> Iterator[str]:
    """Every text that the vocabulary of its field leaves free."""
    for pair in edits.env:
        yield from pair
    for node in edits.nodes:
        yield from (node.path, node.host_path)
    for mount in edits.mounts:
        yield from (mount.host_path, mount.container_path, *mount.options)
    for hook in edits.hooks:
        yield from (hook.path, *hook.arguments)


def _check_text(where: str, text: str) -> None:
    # A NUL ends a text for the kernel; a file name that is not UTF-8 cannot be written in JSON.
    if "\0" in text or re.search(_SURROGATE, text):
        raise CdiError(
            where, f"{text[:_SHOWN]!r} contains a NUL or bytes that are not UTF-8", "rename the file or variable"
        )


def _edits(edits: ContainerEdits) -> dict[str, object]:
    document: dict[str, object] = {}
    if edits.env:
        document["env"] = [f"{name}={value}" for name, value in edits.env]
    if edits.nodes:
        document["deviceNodes"] = [_node(node) for node in edits.nodes]
    if edits.mounts:
        document["mounts"] = [_mount(mount) for mount in edits.mounts]
    if edits.hooks:
        document["hooks"] = [_hook(hook) for hook in edits.hooks]
    return document


def _node(node: NodeEdit) -> dict[str, object]:
    document: dict[str, object] = {"path": node.path}
    # Type and numbers are left to the runtime, which looks at the host's node when the container is made: numbers
    # written here could be another device's by then. Where the host has no node, they are all that there is.
    if node.numbers is not None:
        major, minor = node.numbers
        document |= {"type": "c", "major": major, "minor": minor}
    elif node.host_path != node.path:
        document["hostPath"] = node.host_path
    if node.permissions:
        document["permissions"] = node.permissions
    return document


def _mount(mount: MountEdit) -> dict[str, object]:
    document: dict[str, object] = {"hostPath": mount.host_path, "containerPath": mount.container_path}
    if mount.options:
        document["options"] = list(mount.options)
    return document


def _hook(hook: HookEdit) -> dict[str, object]:
    document: dict[str, object] = {"hookName": hook.stage, "path": hook.path}
    if hook.arguments:
        document["args"] = list(hook.arguments)
    return document
