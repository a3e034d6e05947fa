"""Claims of the tests: their manifests, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.cluster.rig.api import Object, RigApi
from tests.cluster.rig.pods import FOREVER, container, pod
from tests.cluster.rig.processes import PATIENCE

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"
CLASSES = f"{GROUP}/deviceclasses"
SLICES = f"{GROUP}/resourceslices"
DRIVER = "ostler.dev"
GPU_CLASS, MIG_CLASS, NIC_CLASS = (f"{kind}.{DRIVER}" for kind in ("gpu", "mig", "nic"))


def request(class_: str = GPU_CLASS, name: str = "gpu", *, count: int = 1, cel: str = "", **more: Any) -> Object:
    """A request for exactly ``count`` devices of a class, of those that the expression ``cel`` takes."""
    exactly = {"deviceClassName": class_, "count": count, **more}
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    return {"name": name, "exactly": exactly}


def devices(*requests: Object, constraints: Sequence[Object] = (), config: Sequence[Object] = ()) -> Object:
    """A claim's spec."""
    every = {"requests": list(requests or (request(),)), "constraints": list(constraints), "config": list(config)}
    return {"devices": {key: value for key, value in every.items() if value}}


def matching(attribute: str, *requests: str) -> Object:
    """A constraint: all devices have the same value of an attribute."""
    return {"matchAttribute": attribute, **({"requests": list(requests)} if requests else {})}


def claim(name: str, spec: Object | None = None) -> Object:
    """A claim of its own, which outlives the pods that use it."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec or devices(),
    }


def template(name: str, spec: Object | None = None) -> Object:
    """What every pod that names it gets a claim from."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec or devices()},
    }


def user(name: str, command: str = FOREVER, *, of: str = "", own: str = "", request_: str = "", **spec: Any) -> Object:
    """A pod of one container, ``main``, with a claim by name (``of``) or from a template (``own``)."""
    source = {"resourceClaimName": of} if of else {"resourceClaimTemplateName": own}
    asked: Object = {"name": "devices", **({"request": request_} if request_ else {})}
    main = container("main", command)
    main["resources"] = {"claims": [asked]}
    return pod(name, main, resourceClaims=[{"name": "devices", **source}], **spec)


class Claims:
    """What tests do with claims and templates of the default namespace, and with the slices of our driver."""

    def __init__(self, api: RigApi) -> None:
        self._api = api

    def create(self, manifest: Object) -> str:
        """Create a claim or a template; its name."""
        collection = CLAIMS if manifest["kind"] == "ResourceClaim" else TEMPLATES
        return str(self._api.create(collection, manifest)["metadata"]["name"])

    def get(self, name: str) -> Object:
        """A claim as it is now."""
        found: Object = self._api.get(f"{CLAIMS}/{name}")
        return found

    def of_pod(self, found: Object) -> Object:
        """The claim that was made for a pod from its template."""
        (status,) = found["status"]["resourceClaimStatuses"]
        return self.get(status["resourceClaimName"])

    def wait_slices(self, devices_: int, timeout: float = PATIENCE) -> list[Object]:
        """Our slices, as soon as there are exactly so many devices in them."""
        path = f"{SLICES}?fieldSelector=spec.driver={DRIVER}"
        what = f"slices have {devices_} devices"
        found = self._api.wait(path, what, lambda one: len(published(one["items"])) == devices_, timeout)
        return list(found["items"])

    def slices(self) -> list[Object]:
        """Our slices as they are now."""
        return self._api.items(f"{SLICES}?fieldSelector=spec.driver={DRIVER}")

    def delete_slices(self) -> None:
        """Delete our slices, which an agent that is not there any more has left; the kubelet takes half a minute."""
        for found in self.slices():
            self._api.delete(f"{SLICES}/{found['metadata']['name']}")

    def delete(self, name: str) -> None:
        """Delete a claim and return when it is gone."""
        self._api.delete(f"{CLAIMS}/{name}")
        self._api.wait_gone(f"{CLAIMS}/{name}")

    def delete_all(self) -> None:
        """Delete every claim and every template of the namespace; no pod uses one any more."""
        for collection in (TEMPLATES, CLAIMS):
            for found in self._api.items(collection):
                self._api.delete(f"{collection}/{found['metadata']['name']}")
        for found in self._api.items(CLAIMS):
            self._api.wait_gone(f"{CLAIMS}/{found['metadata']['name']}")


def published(slices: Iterable[Object]) -> dict[str, Object]:
    """Devices of slices by name; the newest generation of each pool alone counts."""
    newest: dict[str, int] = {}
    slices = list(slices)
    for one in slices:
        pool = one["spec"]["pool"]
        newest[pool["name"]] = max(newest.get(pool["name"], 0), pool["generation"])
    return {
        device["name"]: device
        for one in slices
        if one["spec"]["pool"]["generation"] == newest[one["spec"]["pool"]["name"]]
        for device in one["spec"].get("devices", ())
    }


def allocated(found: Object) -> list[str]:
    """Names of the devices that a claim has, in the order of the allocation."""
    results = found.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [result["device"] for result in results]


def nic_entries(found: Object) -> list[Object]:
    """What our driver tells of the NICs of a claim, in its status."""
    return [entry for entry in found["status"].get("devices", ()) if entry["driver"] == DRIVER]
