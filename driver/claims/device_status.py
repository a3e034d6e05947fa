"""The entries of ``ResourceClaim.status.devices``, and how they come into a claim. Pure.

An entry's key is driver, pool, device and share id. Its ``data`` holds facts of the host that no attribute of a slice
promises: they are as they were when the device was prepared.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from copy import deepcopy

from driver.claims.model import PreparedDevice
from driver.devices.offered import DoorView
from driver.parameters.kinds import API_VERSION
from kube.bodies import Json, JsonObject, object_at, one_line, text_at
from node.inventory.model import NIC_KINDS, Device, Version

FACTS = (
    "driver",
    "eswitchMode",
    "firmwareVersion",
    "ifName",
    "linkType",
    "linkUp",
    "mtu",
    "pciAddress",
    "pfName",
    "pfPciAddress",
    "rdmaDevice",
    "sriovFunction",
    "vfIndex",
)
"""Attributes that ``data`` has, as far as they are known."""
LONGEST_MESSAGE = 2048
"""Characters of a condition's message; the API takes more, and nobody reads as many."""
LONGEST_ADDRESS = 128
"""Bytes of ``hardwareAddress`` that the API takes."""


def nic_entries(driver_name: str, devices: Iterable[PreparedDevice], view: DoorView) -> tuple[JsonObject, ...]:
    """An entry for each of the devices that is a NIC, without times; each device once, whatever requests it is for."""
    entries: dict[tuple[str, str, str | None], JsonObject] = {}
    for prepared in devices:
        offered = view.device(prepared.device)
        if offered is None or offered.device.kind not in NIC_KINDS:
            continue
        entry: JsonObject = {"driver": driver_name, "pool": prepared.pool, "device": prepared.device}
        if prepared.share_id is not None:
            entry["shareID"] = prepared.share_id
        entry["conditions"] = [
            _condition("Ready", True, "DevicePrepared", "the device's nodes and variables are in the container"),
            _network_condition(offered.device),
        ]
        entry["data"] = {"apiVersion": API_VERSION, "kind": "NicStatus", **_facts(offered.device)}
        address = offered.device.text("mac")
        if address and len(address.encode()) <= LONGEST_ADDRESS:
            entry["networkData"] = {"hardwareAddress": address}
        entries[prepared.pool, prepared.device, prepared.share_id] = entry
    return tuple(entries.values())


def ready_entries(driver_name: str, claim: JsonObject, problem: str = "") -> tuple[JsonObject, ...]:
    """An entry for each of our devices in the claim's allocation: ready, or why its parameters are refused."""
    condition = (
        _condition("Ready", False, "ParametersRefused", one_line(problem, LONGEST_MESSAGE))
        if problem
        else _condition("Ready", True, "DevicePrepared", "the device's nodes and variables are in the container")
    )
    results = object_at(claim, "status", "allocation", "devices").get("results")
    entries: dict[tuple[str, ...], JsonObject] = {}
    for result in results if isinstance(results, list) else ():
        if text_at(result, "driver") != driver_name:
            continue
        names = ("driver", "pool", "device", "shareID")
        entry: JsonObject = {name: text_at(result, name) for name in names if text_at(result, name)}
        entries[_key(result)] = {**entry, "conditions": [condition]}
    return tuple(entries.values())


def merged(claim: JsonObject, driver_name: str, entries: Iterable[JsonObject], now: float) -> JsonObject | None:
    """The claim with these entries in its status; None where nothing is to be written.

    Only entries for allocated devices are entered, since the API server refuses all others. Of our own old ones, those
    that are not allocated any more go; those of other drivers stay as they are. A condition whose status has not
    changed keeps its time.
    """
    results = object_at(claim, "status", "allocation", "devices").get("results")
    allocated = {_key(result) for result in results} if isinstance(results, list) else set()
    stored = object_at(claim, "status").get("devices")
    before = [entry for entry in stored if isinstance(entry, dict)] if isinstance(stored, list) else []
    old = {_key(entry): entry for entry in before}
    new = {_key(entry): _timed(entry, old.get(_key(entry)), now) for entry in entries if _key(entry) in allocated}
    kept = [entry for entry in before if _key(entry) not in new and _stays(entry, driver_name, allocated)]
    after: list[Json] = [*kept, *new.values()]
    if not new or (len(after) == len(before) and all(entry in before for entry in after)):
        return None
    changed = deepcopy(claim)
    status = changed["status"]
    assert isinstance(status, dict), "an allocation stands in the status"
    status["devices"] = after
    return changed


def _stays(entry: JsonObject, driver_name: str, allocated: set[tuple[str, ...]]) -> bool:
    return entry.get("driver") != driver_name or _key(entry) in allocated


def _key(entry: Json) -> tuple[str, ...]:
    return tuple(text_at(entry, name) for name in ("driver", "pool", "device", "shareID"))


def _network_condition(device: Device) -> JsonObject:
    interface = device.text("ifName")
    if interface:
        text = f"ostler moves no network interface: {interface} stays in the node's network namespace"
        return _condition("NetworkReady", False, "InterfaceNotMoved", text)
    text = f"the device has no network interface that could be moved (driver {device.text('driver') or 'none'})"
    return _condition("NetworkReady", False, "NoInterface", text)


def _condition(kind: str, status: bool, reason: str, message: str) -> JsonObject:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


def _facts(device: Device) -> JsonObject:
    found: JsonObject = {}
    for name in FACTS:
        content = device.pci_address if name == "pciAddress" else device.attribute(name)
        if content is not None:
            found[name] = str(content) if isinstance(content, Version) else content
    return found


def _timed(entry: JsonObject, old: JsonObject | None, now: float) -> JsonObject:
    """The entry with a time in each condition: that of the old one where the status is the same."""
    conditions = entry["conditions"]
    earlier = (old or {}).get("conditions")
    known = {text_at(each, "type"): each for each in earlier} if isinstance(earlier, list) else {}
    timed: list[Json] = []
    for condition in conditions if isinstance(conditions, list) else []:
        before = known.get(text_at(condition, "type"), {})
        same = text_at(before, "status") == text_at(condition, "status")
        time = text_at(before, "lastTransitionTime") if same else ""
        timed.append({**object_at(condition), "lastTransitionTime": time or _timestamp(now)})
    return {**entry, "conditions": timed}


def _timestamp(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
