"""Whole objects of a small cluster, with kind and metadata: nodes, pods, classes, slices, claims and their holders."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

GPU = "gpu.example.com"
NIC = "nic.example.com"
ROOT = "resource.kubernetes.io/pcieRoot"
MODEL = f'device.attributes["{GPU}"].model'
Object = dict[str, Any]


def thing(kind: str, name: str, spec: Object, **metadata: Any) -> Object:
    version = {"Node": "v1", "Pod": "v1"}.get(kind, "resource.k8s.io/v1")
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def node(name: str, **spec: Any) -> Object:
    labels = {"kubernetes.io/hostname": name}
    return thing("Node", name, spec, labels=labels)


def device_class(name: str, *expressions: str) -> Object:
    return thing("DeviceClass", name, {"selectors": [{"cel": {"expression": each}} for each in expressions]})


GPU_CLASS = device_class(GPU, f'device.driver == "{GPU}"')
NIC_CLASS = device_class(NIC, f'device.driver == "{NIC}"')


def attribute(value: Any) -> Object:
    kind = {bool: "bool", int: "int", str: "string", list: "strings"}[type(value)]
    return {kind: value}


def device(name: str, *, more: Object | None = None, **attributes: Any) -> Object:
    """A device; attributes with ``_root`` are the standard PCIe root."""
    named = {ROOT if key == "root" else key: attribute(value) for key, value in attributes.items()}
    return {"name": name, **({"attributes": named} if named else {}), **(more or {})}


def gpus(count: int, **attributes: Any) -> list[Object]:
    return [device(f"gpu-{number}", **attributes) for number in range(count)]


def resource_slice(place: str, devices: Sequence[Object], driver: str = GPU, **more: Any) -> Object:
    """A slice of the node's own pool; ``more`` is put over its spec, and ``pool`` over its pool."""
    pool = {"name": place, "generation": 1, "resourceSliceCount": 1, **more.pop("pool", {})}
    name = more.pop("name", f"{place}-{driver.partition('.')[0]}")
    spec = {"driver": driver, "pool": pool, "nodeName": place, "devices": list(devices), **more}
    return thing("ResourceSlice", name, {key: value for key, value in spec.items() if value is not None})


def request(name: str = "gpu", of: str = GPU, count: int = 1, *expressions: str, **more: Any) -> Object:
    selectors = [{"cel": {"expression": each}} for each in expressions]
    exactly = {"deviceClassName": of, "allocationMode": "ExactCount", "count": count, "selectors": selectors, **more}
    return {"name": name, "exactly": exactly}


def claim(*requests: Object, name: str = "train", constraints: Sequence[Object] = ()) -> Object:
    spec = {"devices": {"requests": list(requests), "constraints": list(constraints)}}
    return thing("ResourceClaim", name, spec, namespace="team", uid=f"uid-{name}")


def match(attribute_name: str, *requests: str) -> Object:
    return {"matchAttribute": attribute_name, "requests": list(requests)}


def holder(pool: str, *devices: str, name: str = "other", driver: str = GPU, pods: Sequence[str] = ("busy",)) -> Object:
    """Another claim that has devices."""
    results = [{"request": "gpu", "driver": driver, "pool": pool, "device": each} for each in devices]
    body = claim(request(count=len(devices)), name=name)
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {**body, "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}}


def pod(name: str = "train-0", claims: Sequence[str] = ("train",), **spec: Any) -> Object:
    references = [{"name": each, "resourceClaimName": each} for each in claims]
    body = {"containers": [{"name": "main", "image": "none"}], "resourceClaims": references, **spec}
    return thing("Pod", name, body, namespace="team", uid=f"uid-{name}")


def write(folder: Path, *objects: Object) -> str:
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return str(path)
