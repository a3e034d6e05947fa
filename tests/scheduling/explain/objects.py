"""Objects as tests need them, in few words."""

from __future__ import annotations

from kube.bodies import Json, JsonObject
from tests.making.clusters import thing
from tests.making.slices import DRIVER


def _object(kind: str, name: str, *, metadata: JsonObject | None = None, spec: JsonObject, **more: Json) -> JsonObject:
    return {**thing(kind, name, spec, **(metadata or {})), **more}


def device_class(name: str, **spec: Json) -> JsonObject:
    return _object("DeviceClass", name, spec=spec)


def resource_slice(name: str, node: str, *devices: str, pool: str = "", driver: str = DRIVER) -> JsonObject:
    spec: JsonObject = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool or node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": device} for device in devices],
    }
    return _object("ResourceSlice", name, spec=spec)


def claim_spec(device_class_name: str = "gpu", count: int = 1) -> JsonObject:
    exactly: JsonObject = {"deviceClassName": device_class_name, "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def claim(name: str, namespace: str = "team", count: int = 1, **metadata: Json) -> JsonObject:
    return _object("ResourceClaim", name, metadata={"namespace": namespace, **metadata}, spec=claim_spec(count=count))


def allocated(body: JsonObject, *devices: tuple[str, str], pods: tuple[str, ...] = ()) -> JsonObject:
    """The claim with devices (pool and name), reserved for pods."""
    results: list[Json] = [
        {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device} for pool, device in devices
    ]
    reserved: list[Json] = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods]
    return {**body, "status": {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}}


def template(name: str, namespace: str = "team", count: int = 1) -> JsonObject:
    return _object(
        "ResourceClaimTemplate", name, metadata={"namespace": namespace}, spec={"spec": claim_spec(count=count)}
    )


def node(name: str, labels: dict[str, Json] | None = None, **more: Json) -> JsonObject:
    made: JsonObject = thing("Node", name, {}, labels=labels or {})
    del made["spec"]
    return {**made, **more}


def pod(name: str, namespace: str = "team", uid: str = "", **spec: Json) -> JsonObject:
    metadata: JsonObject = {"namespace": namespace, **({"uid": uid} if uid else {})}
    return _object("Pod", name, metadata=metadata, spec={"containers": [{"name": "main"}], **spec})


def taint_rule(name: str, **spec: Json) -> JsonObject:
    return _object("DeviceTaintRule", name, spec=spec)
