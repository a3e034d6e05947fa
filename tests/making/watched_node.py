"""Pods and claims as a cluster has them, in the stand-in's store; and an API that asks it."""

from __future__ import annotations

from kube.backoff import BackoffPolicy
from kube.bodies import Json, JsonObject, text_at
from sandbox.apiserver.server import ApiServer

DRIVER, NODE, TEAM = "ostler.dev", "node-1", "team"
SOON = BackoffPolicy(first=0.01, most=0.05)
MIRROR = "kubernetes.io/config.mirror"


class WatchedWorld:
    """What others do at the API server."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.store = server.store

    def pod(self, name: str, *claims: str, node: str = NODE, mirror: str = "") -> str:
        """Make a pod that names claims; its UID."""
        spec: JsonObject = {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        if claims:
            spec["resourceClaims"] = [{"name": f"c{n}", "resourceClaimName": claim} for n, claim in enumerate(claims)]
        return self.made({"name": name, "annotations": {MIRROR: mirror} if mirror else {}}, spec)

    def made(self, metadata: JsonObject, spec: JsonObject) -> str:
        """Make a pod that the kubelet has begun with; its UID."""
        body: JsonObject = {"metadata": {"namespace": TEAM, **metadata}, "spec": spec}
        uid = text_at(self.store.create("pods", body), "metadata", "uid")
        self.status(text_at(metadata, "name"), startTime="2026-01-01T00:00:00Z")
        return uid

    def status(self, name: str, **status: Json) -> None:
        """Change a pod's status."""
        self.store.patch("pods", name, {"status": status}, namespace=TEAM, part="status")

    def remove(self, name: str) -> None:
        """Delete a pod at once."""
        self.store.delete("pods", name, namespace=TEAM, options={"gracePeriodSeconds": 0})

    def claim(self, name: str, *devices: str, users: tuple[str, ...] = (), pool: str = NODE, **more: Json) -> str:
        """Make a claim, allocated where there are devices; its UID."""
        request: JsonObject = {"name": "gpu", "exactly": {"deviceClassName": "gpu.ostler.dev"}}
        body: JsonObject = {
            "metadata": {"name": name, "namespace": TEAM},
            "spec": {"devices": {"requests": [request]}},
        }
        uid = text_at(self.store.create("resourceclaims", body), "metadata", "uid")
        if devices:
            self.allocate(name, *devices, users=users, pool=pool, **more)
        return uid

    def allocate(self, name: str, *devices: str, users: tuple[str, ...] = (), pool: str = NODE, **more: Json) -> None:
        results: list[Json] = [
            {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device, **more} for device in devices
        ]
        reserved: list[Json] = [{"resource": "pods", "name": user, "uid": user} for user in users]
        status: JsonObject = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        self.store.patch("resourceclaims", name, {"status": status}, namespace=TEAM, part="status")

    def free(self, name: str) -> None:
        """Take a claim's allocation away."""
        status: JsonObject = {"allocation": None, "reservedFor": None}
        self.store.patch("resourceclaims", name, {"status": status}, namespace=TEAM, part="status")

    def admin_namespace(self) -> None:
        """Make the team's namespace, whose claims may have administrator's access."""
        labels: JsonObject = {"resource.kubernetes.io/admin-access": "true"}
        self.store.create("namespaces", {"metadata": {"name": TEAM, "labels": labels}})

    def asked(self, verb: str, resource: str) -> int:
        """How often that was asked."""
        return len(self.server.requests.of(verb, resource))

    def listed(self, resource: str) -> int:
        """How often a list of it was asked for, alone or at the begin of a watch."""
        watches = self.server.requests.of("watch", resource)
        return self.asked("list", resource) + sum("sendInitialEvents" in each.query for each in watches)
