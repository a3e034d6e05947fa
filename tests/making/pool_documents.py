"""Documents of pools, classes and claims, written as short as their subject allows, and the recorded ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from scheduling.pools.claim_documents import DeviceClaim, Document
from scheduling.pools.documents import API_VERSION, DevicePool, PoolDeviceClass
from scheduling.pools.reading import decode, encode, read
from tests.making.recorded_cases import cases_in

VECTORS = Path(__file__).parents[1] / "vectors" / "devmgmt"
DRIVER = "gpu.example.com"
Json = dict[str, Any]


def recorded(name: str) -> list[Json]:
    """The lines of one file of recorded answers."""
    return cases_in(VECTORS / f"{name}.jsonl")


def decoded(case: Json) -> tuple[list[DevicePool], list[PoolDeviceClass], list[DeviceClaim]]:
    """The documents of a recorded case, by their shape alone: some break rules on purpose."""
    return (
        [decode("DevicePool", each) for each in case["pools"]],
        [decode("DeviceClass", each) for each in case["classes"]],
        [decode("DeviceClaim", each) for each in case["claims"]],
    )


def document(kind: str, name: str, spec: Any, **more: Any) -> Json:
    """A document as data."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec, **more}


def attributes(given: Mapping[str, str | int]) -> list[Json]:
    """Attributes with texts and whole numbers."""
    return [
        {"name": name, ("intValue" if isinstance(value, int) else "stringValue"): value}
        for name, value in given.items()
    ]


def device(name: str, requests: Mapping[str, Any] | None = None, resources: Any = (), **facts: str | int) -> Json:
    """A device of a pool; `resources` are (name, capacity) or (name, capacity, block size)."""
    return {
        "name": name,
        "attributes": attributes(facts),
        "requests": dict(requests or {}),
        "resources": [dict(zip(("name", "capacity", "blockSize"), each, strict=False)) for each in resources],
    }


def pool(
    name: str, *devices: Json, node: str | None = "node-1", driver: str = DRIVER, resources: Any = ()
) -> DevicePool:
    """A pool that keeps all rules."""
    spec = {
        "driver": driver,
        "devices": list(devices),
        "resources": [dict(zip(("name", "capacity", "blockSize"), each, strict=False)) for each in resources],
    }
    found = read(document("DevicePool", name, spec | ({"nodeName": node} if node else {})))
    assert isinstance(found, DevicePool)
    return found


def class_(name: str = "gpu", driver: str = DRIVER, **spec: Any) -> PoolDeviceClass:
    """A class that keeps all rules."""
    found = read(document("DeviceClass", name, {"driver": driver, "deviceType": "gpu", **spec}))
    assert isinstance(found, PoolDeviceClass)
    return found


def claim(*needs: Json, name: str = "claim", allocations: Any = (), **spec: Any) -> DeviceClaim:
    """A claim that keeps all rules; a need without class or type is one of class `gpu`."""
    claims = [
        each if {"deviceClass", "deviceType", "oneOf", "allOf"} & set(each) else {"deviceClass": "gpu", **each}
        for each in needs
    ]
    status = {"allocations": list(allocations)}
    found = read(document("DeviceClaim", name, {"claims": claims, **spec}, status=status))
    assert isinstance(found, DeviceClaim)
    return found


def documents(folder: Path, *given: Document, name: str = "documents.yaml") -> str:
    """A file with documents."""
    path = folder / name
    path.write_text(yaml.safe_dump_all([encode(each) for each in given]))
    return str(path)


def having(name: str, pool_: str, *devices: str, memory: str = "", pods: Sequence[str] = ()) -> DeviceClaim:
    """A claim of some pods that has devices of a pool: whole, or so much of their memory."""
    amounts = [{"name": "memory", "allocation": memory}] if memory else []
    taken = [{"devicePoolName": pool_, "deviceName": each, "allocations": amounts} for each in devices]
    made = claim({}, name=name, allocations=taken)
    return replace(made, status=replace(made.status, pod_names=tuple(pods)))


def a100s(place: str = "node-1") -> DevicePool:
    """Four GPUs on two PCIe roots, which claims can share."""
    made = (device(f"gpu-{n}", {}, [("memory", "80Gi", "10Gi")], model="a100", root=f"r{n // 2}") for n in range(4))
    return pool(f"{place}-gpus", *made, node=place)


A100S = a100s()
CLASSES = (class_(), class_("nic", "nic.example.com", deviceType="nic"), class_("watch", adminAccess=True))
