"""Pods with a claim, as scheduler and controllers leave them when they have done their part."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.dra.kubelet import AllocatedClaim
from bench.scale.server import CLIENTS, ScaleServer
from tests.cluster.dra.claims import CLAIMS, claim, user
from tests.cluster.rig.api import RigApi

PODS = "/api/v1/namespaces/default/pods"


@dataclass(frozen=True, slots=True)
class BoundClaim:
    """A claim for one device of a driver on a node, and the pod of the same name that uses it."""

    name: str
    node: str
    device: str
    driver: str


def make_claims(server: ScaleServer, wanted: Sequence[BoundClaim]) -> list[AllocatedClaim]:
    """Create each pod and its claim, allocate and reserve the claim, and bind the pod; several at a time."""
    kept = server.api.kept()
    try:
        with ThreadPoolExecutor(CLIENTS) as clients:
            return list(clients.map(lambda each: _made(kept, each), wanted))
    finally:
        kept.close()


def _made(api: RigApi, wanted: BoundClaim) -> AllocatedClaim:
    made = api.create(CLAIMS, claim(wanted.name))
    pod = api.create(PODS, user(wanted.name, of=wanted.name))
    result = {"request": "gpu", "driver": wanted.driver, "pool": wanted.node, "device": wanted.device}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": wanted.name, "uid": pod["metadata"]["uid"]}],
    }
    api.request("PUT", f"{CLAIMS}/{wanted.name}/status", {**made, "status": status})
    target = {"apiVersion": "v1", "kind": "Node", "name": wanted.node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": wanted.name}, "target": target}
    api.create(f"{PODS}/{wanted.name}/binding", binding)
    return AllocatedClaim("default", wanted.name, made["metadata"]["uid"])
