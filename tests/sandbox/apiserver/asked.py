"""Requests of the conversation with a real API server: how one is written, and what it may be about."""

from __future__ import annotations

from typing import Any

JSON = "application/json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GROUP = "/apis/resource.k8s.io"
SLICES = f"{GROUP}/v1/resourceslices"
CLAIMS = f"{GROUP}/v1/namespaces/default/resourceclaims"
NODES = "/api/v1/nodes"
PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"


def slice_of(name: str, node: str = "one", devices: tuple[str, ...] = (), **metadata: object) -> dict[str, Any]:
    spec: dict[str, Any] = {"driver": "drv.example.com", "nodeName": node}
    spec["pool"] = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    if devices:
        spec["devices"] = [{"name": device} for device in devices]
    whole: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    return whole | {"metadata": {"name": name, **metadata}, "spec": spec}


def claim_of(name: str, **metadata: object) -> dict[str, Any]:
    requests = [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]
    whole: dict[str, Any] = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    return whole | {"metadata": {"name": name, **metadata}, "spec": {"devices": {"requests": requests}}}


def pod_of(name: str, **spec: object) -> dict[str, Any]:
    container = {"name": "c", "image": "none"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def asked(about: str, method: str, path: str, body: object = None, **rest: str) -> dict[str, Any]:
    """`rest`: `type` of the body; everything else goes into the query, with `__` for a dot."""
    query = {name.rstrip("_"): text for name, text in rest.items() if name != "type"}
    return {
        "about": about,
        "method": method,
        "path": path,
        "body": body,
        "type": rest.get("type", JSON),
        "query": query,
    }
