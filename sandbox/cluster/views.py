"""Slices and claims as people read them: plain data, without fields that people do not look for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sandbox.cluster.cluster import PodOutcome
from sandbox.cluster.controllers import allocation, shown

Json = dict[str, Any]
Object = Mapping[str, Any]
_ASKED = ("memory", "cell2", "cell4", "switch", "sriovFunction")
"""Attributes and capacities in a device's line."""


def slice_view(obj: Object) -> Json:
    """One ResourceSlice: attributes as name -> value."""
    spec = obj["spec"]
    return {
        "slice": obj["metadata"]["name"],
        "driver": spec["driver"],
        "pool": spec["pool"]["name"],
        "generation": spec["pool"]["generation"],
        "devices": [_device(each) for each in spec.get("devices") or ()],
    }


def slice_lines(views: Iterable[Object]) -> Iterator[str]:
    """Slices by ``slice_view``, a line for each device with what claims ask for first."""
    for view in views:
        yield f"{view['slice']}: pool {view['pool']}, generation {view['generation']}, {len(view['devices'])} devices"
        for device in view["devices"]:
            facts = [str(device[name]) for name in ("productName", "profile", "ifName", "rdmaDevice") if name in device]
            facts += [f"{name}={device[name]}" for name in _ASKED if name in device]
            facts += [f"taint {taint}" for taint in device.get("taints", ())]
            yield "  ".join((f"  {device['name']}", *facts))


def claim_view(claim: Object) -> Json:
    """One ResourceClaim: what it was given, and who has it."""
    status = claim.get("status") or {}
    results = allocation(claim).get("devices", {}).get("results") or ()
    return {
        "claim": claim["metadata"]["name"],
        "devices": [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results],
        "reservedFor": [each["name"] for each in status.get("reservedFor") or ()],
        "reported": [_reported(each) for each in status.get("devices") or ()],
    }


def outcome_view(outcome: PodOutcome) -> Json:
    """How far a pod came."""
    facts: Json = {"pod": outcome.pod, "phase": outcome.phase}
    if outcome.message:
        facts["message"] = outcome.message
    facts["claims"] = {name: list(devices) for name, devices in outcome.claims.items()}
    facts["containers"] = {name: dict(seen) for name, seen in outcome.containers.items()}
    return facts


def tainted(slices: Iterable[Object]) -> dict[str, list[str]]:
    """Device -> its taints as ``key=value:effect``, for devices that have any."""
    return {
        device["name"]: [shown(each) for each in device["taints"]]
        for obj in slices
        for device in obj["spec"].get("devices") or ()
        if device.get("taints")
    }


def _device(device: Object) -> Json:
    facts: Json = {"name": device["name"]}
    facts |= {name: next(iter(value.values())) for name, value in (device.get("attributes") or {}).items()}
    facts |= {name: value["value"] for name, value in (device.get("capacity") or {}).items()}
    if device.get("taints"):
        facts["taints"] = [shown(each) for each in device["taints"]]
    return facts


def _reported(device: Object) -> Json:
    conditions = {each["type"]: each["status"] for each in device.get("conditions") or ()}
    return {"device": device["device"], **conditions, **(device.get("networkData") or {})}
