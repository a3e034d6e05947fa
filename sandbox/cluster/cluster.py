"""A cluster of one node: what scheduler and controllers do for a pod with claims, one step after the other.

There are no loops that could run late: a pod is taken through template, allocation, admission, preparation and
injection by one call, so that every step can be shown and its failure told where it happens. Everything that the
control plane decides is written to the API server and read from there by kubelet and driver.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sandbox.cluster.client import CONFLICT, ClusterClient, RequestRefused
from sandbox.cluster.controllers import (
    Unschedulable,
    allocate,
    allocation,
    evicted,
    for_extended_resources,
    from_template,
    released,
    reserved,
    with_rules,
)
from sandbox.cluster.manifests import check_shape, current, kubelet_pod
from sandbox.cluster.samples import device_classes
from sandbox.containers import started
from sandbox.injection import InjectionError
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Pod
from sandbox.network import PodNetworks
from sandbox.nri import SandboxFailed

Json = dict[str, Any]
Object = Mapping[str, Any]

PLURALS = {
    "Pod": "pods",
    "Node": "nodes",
    "Namespace": "namespaces",
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
    "DeviceTaintRule": "devicetaintrules",
}


class UnknownKind(ValueError):
    """The sandbox's cluster does not serve a manifest's kind."""

    def __init__(self, kind: str) -> None:
        super().__init__(f"kind {kind!r} is not served here; must be one of {', '.join(sorted(PLURALS))}")


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """How far a pod came: ``phase`` is Running, Pending or Failed, ``message`` why it came no further.

    ``reason``: of a pod that the kubelet refused, as in its status.
    ``claims``: name of each claim -> its devices as ``driver/pool/device``. ``containers``: what each container has:
    ``deviceIDs`` of device plugins, ``cdiDevices`` of both doors, and all that it gets by them.
    """

    pod: str
    phase: str
    message: str = ""
    namespace: str = "default"
    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    containers: Mapping[str, Json] = field(default_factory=dict)
    reason: str = ""

    @property
    def running(self) -> bool:
        """Whether its containers were started."""
        return self.phase == "Running"


class SandboxCluster:
    """The control plane for ``node``, through ``client``; CDI specs are in ``cdi`` (folders in rising priority)."""

    def __init__(
        self,
        client: ClusterClient,
        node: str,
        kubelet: Kubelet,
        cdi: Sequence[Path],
        networks: PodNetworks | None = None,
    ) -> None:
        """``networks``: the network namespaces of pods, None if they have none."""
        self._networks = networks
        self._client = client
        self._node = node
        self._kubelet = kubelet
        self._cdi = tuple(cdi)
        self._pods: dict[tuple[str, str], Pod] = {}

    async def start(self, labels: Mapping[str, str] | None = None) -> None:
        """Create the Node object and the DeviceClasses unless they exist."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self._node, "labels": dict(labels or {})}}
        for obj in (node, *device_classes()):
            try:
                await self._client.create(PLURALS[str(obj["kind"])], obj)
            except RequestRefused as error:
                if error.code != CONFLICT:
                    raise

    async def apply(self, documents: Iterable[Object]) -> list[PodOutcome]:
        """Create objects; pods are run. Raises ``UnknownKind``, ``ManifestError``, ``RequestRefused``."""
        outcomes = []
        for document in documents:
            plural = PLURALS.get(str(document.get("kind")))
            if plural is None:
                raise UnknownKind(str(document.get("kind")))
            check_shape(document)
            if plural == "pods":
                outcomes.append(await self.run(document))
            else:
                await self._client.create(plural, current(document))
        return outcomes

    async def remove(self, document: Object) -> None:
        """Delete an object that is not a pod."""
        metadata = document["metadata"]
        await self._client.delete(PLURALS[document["kind"]], metadata["name"], metadata.get("namespace", "default"))

    async def run(self, manifest: Object) -> PodOutcome:
        """Create a pod and take it as far as it comes; raises ``RequestRefused``."""
        pod = await self._client.create("pods", manifest)
        return await self._progress(pod)

    async def retry(self, name: str, namespace: str = "default") -> PodOutcome:
        """Try again with a pod that is pending."""
        return await self._progress(await self._client.get("pods", name, namespace))

    async def end(self, name: str, namespace: str = "default") -> None:
        """Delete a pod: its claims are unprepared, then released, and those made for it are deleted.

        Raises ``UnprepareError`` when the driver does not let go: the pod is still there then.
        """
        manifest = await self._client.get("pods", name, namespace)
        await self._client.delete("pods", name, namespace)
        pod = self._pods.get((namespace, name))
        if pod is not None:
            if self._networks is not None:
                await self._networks.end(pod)
            await self._kubelet.end(pod)
            del self._pods[namespace, name]
        await self._client.delete("pods", name, namespace, at_once=True)
        uid = manifest["metadata"]["uid"]
        self._kubelet.delete(uid)
        for claim in await self._client.list("resourceclaims", namespace=namespace):
            if any(owner["uid"] == uid for owner in claim["metadata"].get("ownerReferences") or ()):
                await self._client.delete("resourceclaims", claim["metadata"]["name"], namespace)
            elif any(each["uid"] == uid for each in (claim.get("status") or {}).get("reservedFor") or ()):
                await self._client.replace("resourceclaims", released(claim, uid), "status")

    async def evict(self) -> dict[tuple[str, str], str]:
        """End the pods whose devices have taints NoExecute that they do not tolerate; (namespace, name) -> why."""
        claims = await self._client.list("resourceclaims")
        reasons = evicted(claims, await self._seen_slices(), time.time())
        found: dict[tuple[str, str], str] = {}
        for namespace, name in tuple(self._pods):
            reason = reasons.get(self._pods[namespace, name].uid)
            if reason is not None:
                await self.end(name, namespace)
                found[namespace, name] = reason
        return found

    async def slices(self, driver: str | None = None) -> list[Json]:
        """The ResourceSlices, of one driver or of all."""
        fields = f"spec.driver={driver}" if driver else ""
        return await self._client.list("resourceslices", fields=fields)

    async def has_whole_pools(self, driver: str) -> bool:
        """Whether a driver has published slices, and for every pool as many as each of them says."""
        pools = [each["spec"]["pool"] for each in await self.slices(driver)]
        counts = Counter((pool["name"], pool["generation"]) for pool in pools)
        return bool(pools) and all(
            counts[pool["name"], pool["generation"]] == pool["resourceSliceCount"] for pool in pools
        )

    async def claims(self) -> list[Json]:
        """All ResourceClaims."""
        return await self._client.list("resourceclaims")

    def pods(self) -> tuple[Pod, ...]:
        """Pods that the kubelet has."""
        return tuple(self._pods.values())

    async def _seen_slices(self) -> list[Json]:
        """The slices with the taints of DeviceTaintRules."""
        return with_rules(await self.slices(), await self._client.list("devicetaintrules"))

    async def _progress(self, pod: Json) -> PodOutcome:
        return replace(await self._advanced(pod), namespace=pod["metadata"]["namespace"])

    async def _advanced(self, pod: Json) -> PodOutcome:
        name = pod["metadata"]["name"]
        try:
            pod = await self._with_claims(pod)
            claims = await self._schedule(pod)
        except Unschedulable as error:
            return PodOutcome(name, "Pending", str(error))
        given = {claim["metadata"]["name"]: _devices(claim) for claim in claims}
        running = kubelet_pod(pod)
        admission = await self._kubelet.admit(running)
        if not admission.admitted:
            return PodOutcome(name, "Failed", admission.message, claims=given, reason=admission.reason)
        self._pods[running.namespace, running.name] = running
        try:
            await self._kubelet.prepare(running)
            if self._networks is not None:
                await self._networks.start(running)
            containers = await started(self._kubelet, running, self._cdi)
        except (KubeletError, InjectionError, SandboxFailed) as error:
            return PodOutcome(name, "Pending", str(error), claims=given)
        missing = self._missing_mount(containers) if self._networks is not None else ""
        if missing:
            problem = f"failed to create a container: mount source {missing}: no such file or directory"
            return PodOutcome(name, "Pending", problem, claims=given)
        return PodOutcome(name, "Running", claims=given, containers=containers)

    def _missing_mount(self, containers: Mapping[str, Json]) -> str:
        """A file of the agent that the containers should have and that is missing; empty for none.

        Other files are those of a recorded node, which this machine lacks.
        """
        mounts = (each for seen in containers.values() for each in seen.get("injected", {}).get("mounts", ()))
        paths = (Path(each["hostPath"]) for each in mounts)
        own = self._cdi[-1].parent
        return next((str(path) for path in paths if path.is_relative_to(own) and not path.exists()), "")

    async def _with_claims(self, pod: Json) -> Json:
        """The pod after its claims were made, whose names are in its status."""
        namespace = pod["metadata"].get("namespace", "default")
        status = pod.get("status") or {}
        made = list(status.get("resourceClaimStatuses") or ())
        for entry in pod["spec"].get("resourceClaims") or ():
            template = entry.get("resourceClaimTemplateName")
            if not template or any(each["name"] == entry["name"] for each in made):
                continue
            try:
                found = await self._client.get("resourceclaimtemplates", template, namespace)
            except RequestRefused as error:
                raise Unschedulable(f"1 {error}") from error
            claim = await self._client.create("resourceclaims", from_template(pod, entry["name"], found))
            made.append({"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]})
        change: Json = {"resourceClaimStatuses": made} if made else {}
        if not status.get("extendedResourceClaimStatus"):
            plugins = self._kubelet.capacity().capacity
            need = for_extended_resources(pod, await self._client.list("deviceclasses"), plugins)
            if need is not None:
                claim = await self._client.create("resourceclaims", need.claim)
                change["extendedResourceClaimStatus"] = {
                    "resourceClaimName": claim["metadata"]["name"],
                    "requestMappings": list(need.mappings),
                }
        if not change:
            return pod
        return await self._client.patch("pods", pod["metadata"]["name"], {"status": change}, namespace, "status")

    async def _schedule(self, pod: Json) -> list[Json]:
        """Allocate and reserve the pod's claims, and bind it; its claims then. Raises ``Unschedulable``."""
        namespace = pod["metadata"].get("namespace", "default")
        known = await self._client.list("resourceclaims")
        here = {claim["metadata"]["name"]: claim for claim in known if claim["metadata"]["namespace"] == namespace}
        names = _claim_names(pod)
        missing = next((name for name in names if name not in here), None)
        if missing is not None:
            raise Unschedulable(f'1 resourceclaim "{missing}" not found')
        allocated = allocate(
            [here[name] for name in names if not allocation(here[name])],
            known,
            classes=await self._client.list("deviceclasses"),
            slices=await self._seen_slices(),
            node=await self._client.get("nodes", self._node),
        )
        new = {claim["metadata"]["name"]: claim for claim in allocated}
        claims = []
        for name in names:
            claim = reserved(new.get(name, here[name]), pod)
            claims.append(await self._client.replace("resourceclaims", claim, "status"))
        if not pod["spec"].get("nodeName"):
            change = {"spec": {"nodeName": self._node}}
            await self._client.patch("pods", pod["metadata"]["name"], change, namespace)
            scheduled = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
            await self._client.patch("pods", pod["metadata"]["name"], scheduled, namespace, "status")
        return claims


def _claim_names(pod: Object) -> list[str]:
    """The ResourceClaims of a pod, those made for it included."""
    running = kubelet_pod(pod)
    names = [claim.claim for claim in running.claims if claim.claim]
    return names + ([running.extended_claim.claim] if running.extended_claim is not None else [])


def _devices(claim: Object) -> tuple[str, ...]:
    results = allocation(claim).get("devices", {}).get("results") or ()
    return tuple(f"{each['driver']}/{each['pool']}/{each['device']}" for each in results)
