"""What a container has of its pod's claims: the CDI names for its runtime, and how podresources and status show it.

Two habits of kubelets are kept: podresources lists all devices of a claim, whichever request the container asks for,
and lets ``cdi_devices`` pile up from device to device. Devices of equal id are listed once in a status.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from protos.podresources.v1 import api_pb2
from sandbox.kubelet.dra.claims import CachedClaim, ClaimCache
from sandbox.kubelet.dra.health import HealthCache
from sandbox.kubelet.dra.manager import claim_name
from sandbox.kubelet.errors import ContainerStartError, KubeletError
from sandbox.kubelet.pods import Container, Pod


@dataclass(frozen=True, slots=True)
class ResourceHealth:
    """One entry of ``allocatedResourcesStatus[].resources``."""

    resource_id: str
    health: str
    message: str = ""


def cdi_devices(claims: ClaimCache, pod: Pod, container: Container) -> tuple[str, ...]:
    """The CDI names that the runtime gets for a container, as they come; raises ``ContainerStartError``."""
    names: list[str] = []
    for claim, request in _requests(pod, container):
        known = claims.get(pod.namespace, claim)
        if known is None:
            raise ContainerStartError(
                f"internal error: unable to get claim info for ResourceClaim {claim} in namespace {pod.namespace}"
            )
        names += known.cdi_devices(request)
    return tuple(names)


def dynamic_resources(claims: ClaimCache, pod: Pod, container: Container) -> list[api_pb2.DynamicResource]:
    """The container's claims as podresources shows them; none at all if one of them is not known."""
    try:
        names = _names(pod, container)
    except KubeletError:
        return []
    known = [claims.get(pod.namespace, name) for name in names]
    found = [claim for claim in known if claim is not None]
    return [_dynamic_resource(claim) for claim in found] if len(found) == len(known) else []


def allocated_resources(
    claims: ClaimCache, health: HealthCache, pod: Pod, container: Container
) -> dict[str, tuple[ResourceHealth, ...]]:
    """``claim:NAME`` or ``claim:NAME/REQUEST`` -> health of its devices, for an app container's claims."""
    by_name = {claim.name: claim.claim for claim in pod.claims}
    status: dict[str, tuple[ResourceHealth, ...]] = {}
    for use in container.claims if container.kind == "app" else ():
        claim = claims.get(pod.namespace, by_name.get(use.name) or "")
        if claim is None:
            continue
        resources: dict[str, ResourceHealth] = {}
        for each in _healths(health, claim, use.request):
            resources.setdefault(each.resource_id, each)
        if resources:
            name = f"claim:{use.name}/{use.request}" if use.request else f"claim:{use.name}"
            status[name] = tuple(resources.values())
    return status


def _requests(pod: Pod, container: Container) -> Iterator[tuple[str, str]]:
    """The container's requests: name of the ResourceClaim, request (empty for all)."""
    for pod_claim in pod.claims:
        requests = [use.request for use in container.claims if use.name == pod_claim.name]
        name = claim_name(pod, pod_claim) if requests else None
        if name is not None:
            yield from ((name, request) for request in requests)
    for each in pod.extended_claim.requests if pod.extended_claim is not None else ():
        if pod.extended_claim is not None and each.container == container.name and container.limits.get(each.resource):
            yield pod.extended_claim.claim, each.request


def _names(pod: Pod, container: Container) -> list[str]:
    """The ResourceClaims that the container uses."""
    used = {use.name for use in container.claims}
    found = [claim_name(pod, pod_claim) for pod_claim in pod.claims if pod_claim.name in used]
    names = [name for name in found if name is not None]
    extended = pod.extended_claim
    if extended is not None and any(each.container == container.name for each in extended.requests):
        names.append(extended.claim)
    return names


def _dynamic_resource(claim: CachedClaim) -> api_pb2.DynamicResource:
    resources: list[api_pb2.ClaimResource] = []
    for driver, devices in claim.drivers.items():
        names: list[str] = []
        for device in devices:
            names += device.cdi_devices or ()
            resources.append(
                api_pb2.ClaimResource(
                    cdi_devices=[api_pb2.CDIDevice(name=name) for name in names],
                    driver_name=driver,
                    pool_name=device.pool,
                    device_name=device.device,
                    share_id=device.share_id,
                )
            )
    return api_pb2.DynamicResource(claim_name=claim.name, claim_namespace=claim.namespace, claim_resources=resources)


def _healths(health: HealthCache, claim: CachedClaim, request: str) -> list[ResourceHealth]:
    wanted = request.partition("/")[0]
    found = []
    for driver, devices in claim.drivers.items():
        for device in devices:
            if wanted and device.requests and wanted not in device.requests:
                continue
            known = health.of(driver, device.pool, device.device)
            name = (device.cdi_devices or (f"{driver}/{device.pool}/{device.device}",))[0]
            found.append(ResourceHealth(name, known.health, known.message))
    return found
