"""Clusters out of the judge's generated cases: one case on several nodes that differ a little."""

from __future__ import annotations

import copy
import random
from typing import Any

from scheduling.allocator.allocated import AllocatedState
from scheduling.allocator.pools import SliceIndex
from scheduling.allocator.slices import DeviceID, SharedDeviceID
from scheduling.explain.cluster import Cluster
from tests.judge import our_allocation as given

Json = dict[str, Any]


def cluster_of_case(case: Json) -> Cluster:
    """The one node's cluster, as the case has it."""
    return Cluster(SliceIndex(case["slices"]), given.classes(case), given.allocated(case), given.features(case))


def spread(case: Json, count: int, seed: int) -> tuple[list[Json], Cluster]:
    """Nodes with copies of what the case's node has; some slices, devices and holdings are changed or missing."""
    chance = random.Random(seed)
    name = case["node"]["metadata"]["name"]
    before = given.allocated(case)
    nodes, slices = [], []
    devices: set[DeviceID] = set()
    shared: set[SharedDeviceID] = set()
    capacity: dict[DeviceID, Any] = {}
    for number in range(count):
        nodes.append({**case["node"], "metadata": {**case["node"]["metadata"], "name": f"{name}-{number}"}})
        for body in copy.deepcopy(case["slices"]):
            own = body["spec"].get("nodeName") == name
            if own or not number or chance.random() < 0.2:
                slices.append(_moved(body, name, number, chance))

        def here(device: DeviceID, number: int = number) -> DeviceID:
            return DeviceID(device.driver, f"{device.pool}-{number}", device.device)

        devices |= {here(device) for device in before.devices if chance.random() < 0.9}
        shared |= {SharedDeviceID(here(share.device), share.share) for share in before.shared}
        capacity |= {here(device): taken for device, taken in before.capacity.items() if chance.random() < 0.9}
    allocated = AllocatedState(frozenset(devices), frozenset(shared), capacity)
    return nodes, Cluster(SliceIndex(slices), given.classes(case), allocated, given.features(case))


def _moved(body: Json, name: str, number: int, chance: random.Random) -> Json:
    """A slice for the node of that number, sometimes with one thing changed."""
    spec = body["spec"]
    body["metadata"]["name"] += f"-{number}"
    spec["pool"]["name"] += f"-{number}"
    if spec.get("nodeName") == name:
        spec["nodeName"] = f"{name}-{number}"
    devices = spec.get("devices") or []
    for device in devices:
        if device.get("nodeName") == name:
            device["nodeName"] = f"{name}-{number}"
    if devices and chance.random() < 0.3:
        _change(chance.choice(devices), spec, chance)
    return dict(body)


def _change(device: Json, spec: Json, chance: random.Random) -> None:
    match chance.randrange(6):
        case 0 if device.get("attributes"):
            del device["attributes"][chance.choice(sorted(device["attributes"]))]
        case 1 if device.get("taints"):
            device["taints"].pop()
        case 2 if device.get("consumesCounters"):
            device["consumesCounters"].pop()
        case 3 if device.get("capacity"):
            del device["capacity"][chance.choice(sorted(device["capacity"]))]
        case 4:
            device["allowMultipleAllocations"] = not device.get("allowMultipleAllocations")
        case _:
            spec["pool"]["resourceSliceCount"] += 1
