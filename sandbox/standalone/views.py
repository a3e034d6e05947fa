"""The answers of ``ostler kubelet``: plain data for programs, and lines for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from node.kubelet.checkpoint import Checkpoint
from sandbox.cluster.cluster import PodOutcome
from sandbox.kubelet.devices import PluginDevice
from sandbox.kubelet.pods import Pod
from sandbox.standalone.pods import Key, name_of

Json = dict[str, Any]

MOST_DEVICES: Final = 64
"""Devices of a resource in the table of all resources."""

_NO_NUMA: Final = -1
_EDITS: Final = {"env": "CDI env", "deviceNodes": "CDI node", "mounts": "CDI mount", "hooks": "CDI hook"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a command; ``problem`` is why it failed, empty if it did not.

    ``is_mistyped``: the command itself is wrong, or its file cannot be read, so that nothing was tried.
    """

    document: Json = field(default_factory=dict)
    lines: Sequence[str] = ()
    problem: str = ""
    is_mistyped: bool = False


def plain(text: str) -> str:
    """The text with escapes for characters that could steer a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], indent: str = "") -> list[str]:
    """Columns as wide as their content."""
    lines = [[plain(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]


def pod_document(key: Key, outcome: PodOutcome, pod: Pod | None, numa: Mapping[str, Json]) -> Json:
    """A pod and what its containers get; ``numa``: container -> resource -> id -> NUMA nodes."""
    document: Json = {"pod": key[1], "namespace": key[0], "phase": outcome.phase}
    if outcome.reason:
        document["reason"] = outcome.reason
    if outcome.message:
        document["message"] = outcome.message
    if outcome.claims:
        document["claims"] = {name: list(devices) for name, devices in outcome.claims.items()}
    kinds = {each.name: each.kind for each in pod.in_start_order()} if pod is not None else {}
    document["containers"] = [
        {
            "name": name,
            "kind": kind,
            "devices": {
                resource: [{"id": id_, "numa": _nodes(nodes)} for id_, nodes in ids.items()]
                for resource, ids in numa.get(name, {}).items()
            },
            **_given(outcome.containers.get(name, {})),
        }
        for name, kind in kinds.items()
    ]
    return document


def pod_lines(document: Json) -> list[str]:
    """The lines of a ``pod_document``."""
    name = name_of((document["namespace"], document["pod"]))
    why = ": ".join(document[key] for key in ("reason", "message") if document.get(key))
    lines = [f"{name}: {document['phase']}" + (f": {plain(why)}" if why else "")]
    for claim, devices in document.get("claims", {}).items():
        lines.append(f"  claim {claim}: {', '.join(devices) or 'no device'}")
    for container in document["containers"]:
        lines += _container_lines(container)
    return lines


def held(document: Json) -> list[str]:
    """The devices of a pod in few words: a line for each container and resource."""
    return [
        f"{container['name']}: {resource} {', '.join(each['id'] for each in devices)}"
        for container in document["containers"]
        for resource, devices in container["devices"].items()
    ]


def resource_document(
    name: str,
    capacity: Mapping[str, int],
    allocatable: Mapping[str, int],
    devices: Sequence[PluginDevice],
    holders: Mapping[str, str],
) -> Json:
    """A resource; ``holders``: device id -> its holder."""
    return {
        "resource": name,
        "capacity": capacity.get(name, 0),
        "allocatable": allocatable.get(name, 0),
        "inUse": len(holders),
        "devices": [
            {
                "id": device.id,
                "health": device.health,
                "numa": _nodes(device.numa),
                **({"heldBy": holders[device.id]} if device.id in holders else {}),
            }
            for device in devices
        ],
    }


def resource_lines(resources: Sequence[Json], most: int | None = MOST_DEVICES) -> list[str]:
    """Resources with their devices, at most ``most`` of each."""
    header = ("RESOURCE", "CAPACITY", "ALLOCATABLE", "IN USE")
    lines = table(header, [[str(each[key]) for key in _RESOURCE] for each in resources])
    for each in resources:
        devices = each["devices"] if most is None else each["devices"][:most]
        if not devices:
            continue
        rows = [
            (device["id"], device["health"], _node_text(device["numa"]), device.get("heldBy", "-"))
            for device in devices
        ]
        lines += ["", each["resource"], *table(("DEVICE", "HEALTH", "NUMA", "HELD BY"), rows, "  ")]
        rest = len(each["devices"]) - len(devices)
        if rest:
            lines.append(f"  ... and {rest} more; 'resources {each['resource']}' lists all")
    return lines


def checkpoint_document(path: str, checkpoint: Checkpoint, pods: Mapping[str, str]) -> Json:
    """A checkpoint whose checksum is right; ``pods``: UID -> name of those that are known."""
    return {
        "checkpoint": path,
        "entries": [
            {
                "podUID": entry.pod_uid,
                **({"pod": pods[entry.pod_uid]} if entry.pod_uid in pods else {}),
                "container": entry.container,
                "resource": entry.resource,
                "devices": [
                    {"id": id_, "numa": None if node == _NO_NUMA else node}
                    for node, ids in sorted((entry.devices or {}).items())
                    for id_ in ids or ()
                ],
            }
            for entry in checkpoint.entries or ()
        ],
        "registered": {resource: list(ids or ()) for resource, ids in sorted((checkpoint.registered or {}).items())},
    }


def checkpoint_lines(document: Json) -> list[str]:
    """The lines of a ``checkpoint_document``."""
    rows = [
        (
            entry.get("pod") or entry["podUID"],
            entry["container"],
            entry["resource"],
            ", ".join(_bucketed(each) for each in entry["devices"]),
        )
        for entry in document["entries"]
    ]
    lines = [f"{document['checkpoint']}: the checksum is right"]
    lines += table(("POD", "CONTAINER", "RESOURCE", "DEVICES (NUMA)"), rows) if rows else ["no container has devices"]
    for resource, ids in document["registered"].items():
        lines.append(f"registered: {resource}, {len(ids)} healthy devices")
    return lines


def _given(seen: Json) -> Json:
    """The things that a container gets, by the names that people know from manifests."""
    return {
        "env": seen.get("envs", {}),
        "mounts": [
            {"hostPath": each["host_path"], "containerPath": each["container_path"], "readOnly": each["read_only"]}
            for each in seen.get("mounts", ())
        ],
        "deviceNodes": [
            {"hostPath": each["host_path"], "containerPath": each["container_path"], "permissions": each["permissions"]}
            for each in seen.get("devices", ())
        ],
        "annotations": seen.get("annotations", {}),
        "cdiDevices": seen.get("cdiDevices", []),
        **({"injected": seen["injected"]} if seen.get("injected") else {}),
        **({"conflicts": list(seen["conflicts"])} if seen.get("conflicts") else {}),
    }


def _container_lines(container: Json) -> list[str]:
    lines = [f"  {container['name']} ({container['kind']})"]
    for resource, devices in container["devices"].items():
        ids = ", ".join(plain(each["id"]) for each in devices)
        nodes = sorted({node for each in devices for node in each["numa"] or ()})
        near = f" (NUMA {', '.join(map(str, nodes))})" if nodes else ""
        lines.append(f"    {resource}  {ids}{near}")
    rows = [("env", f"{name}={value}") for name, value in container["env"].items()]
    rows += [("device node", f"{_path(each)} ({each['permissions']})") for each in container["deviceNodes"]]
    rows += [("mount", f"{_path(each)} ({'ro' if each['readOnly'] else 'rw'})") for each in container["mounts"]]
    rows += [("annotation", f"{name}={value}") for name, value in container["annotations"].items()]
    rows += [("CDI device", name) for name in container["cdiDevices"]]
    for key, what in _EDITS.items():
        rows += [(what, _edit(each)) for each in container.get("injected", {}).get(key, ())]
    rows += [
        ("conflict", f"{each['artefact']} {each['key']}: {each['kept']} stays, {each['dropped']} is dropped")
        for each in container.get("conflicts", ())
    ]
    if not rows and not container["devices"]:
        return [f"{lines[0]}: nothing"]
    return lines + [f"    {what:<12} {plain(text)}" for what, text in rows]


def _path(entry: Json) -> str:
    here, there = entry["hostPath"], entry["containerPath"]
    return there if here == there else f"{here} -> {there}"


def _edit(entry: Any) -> str:
    return str(entry) if not isinstance(entry, dict) else " ".join(f"{key}={value}" for key, value in entry.items())


def _bucketed(device: Json) -> str:
    return f"{device['id']} ({'-' if device['numa'] is None else device['numa']})"


def _nodes(numa: Sequence[int] | None) -> list[int] | None:
    return list(numa) if numa else None


def _node_text(numa: Sequence[int] | None) -> str:
    return ", ".join(map(str, numa)) if numa else "-"


_RESOURCE: Final = ("resource", "capacity", "allocatable", "inUse")
