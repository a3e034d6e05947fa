"""The claims that the kubelet knows: which pods use them, their prepared devices, and what a container gets of them.

Everything but ``prepared`` is in ``dra_manager_state``, which is written whole after every change that must survive;
after a restart no claim counts as prepared. A state file that cannot be read stops the kubelet, as in real ones.

Two habits of kubelets are kept: podresources lists all devices of a claim, whichever request the container asks for,
and lets ``cdi_devices`` pile up from device to device. Devices of equal id are listed once in a status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from node.kubelet import dra_state
from node.kubelet.dra_state import FILE_NAME, DeviceState, DraState
from node.kubelet.gojson import KubeletStateError
from node.opening import KUBELET_STATE, read_regular
from protos.podresources.v1 import api_pb2
from sandbox.kubelet.dra.health import HealthCache
from sandbox.kubelet.dra.settings import Object
from sandbox.kubelet.errors import ContainerStartError, KubeletError, cause_of
from sandbox.kubelet.pods import Container, Pod, PodClaim
from sandbox.kubelet.state_files import write_state


@dataclass(slots=True)
class CachedClaim:
    """One claim; ``drivers`` holds the devices of each driver in the order of its answers."""

    uid: str
    name: str
    namespace: str
    pods: set[str] = field(default_factory=set)
    drivers: dict[str, list[DeviceState]] = field(default_factory=dict)
    prepared: bool = False

    def mark_prepared(self) -> None:
        """All its drivers have prepared it."""
        self.prepared = True

    def cdi_devices(self, request: str) -> tuple[str, ...]:
        """The CDI names for a request, all of them for an empty one."""
        return tuple(
            name
            for devices in self.drivers.values()
            for device in devices
            if not request or not device.requests or request in device.requests
            for name in device.cdi_devices or ()
        )


class ClaimCache:
    """All claims by namespace and name; read from ``folder`` at once. Raises ``KubeletError``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._claims: dict[tuple[str, str], CachedClaim] = {}
        try:
            if not self._path.exists():
                self.write()
            state = dra_state.decode(read_regular(self._path, KUBELET_STATE))
        except (KubeletStateError, OSError) as error:
            raise KubeletError(
                "create ResourceClaim cache: GetOrCreate() on checkpoint state: "
                f"failed to get checkpoint {FILE_NAME}: {cause_of(error)}"
            ) from error
        for entry in state.claims or ():
            self.add(_restored(entry))

    def get(self, namespace: str, name: str) -> CachedClaim | None:
        """The claim of that name."""
        return self._claims.get((namespace, name))

    def add(self, claim: CachedClaim) -> None:
        """Know a claim from now on."""
        self._claims[claim.namespace, claim.name] = claim

    def remove(self, namespace: str, name: str) -> None:
        """Forget a claim; an unknown one is no error."""
        self._claims.pop((namespace, name), None)

    def all(self) -> tuple[CachedClaim, ...]:
        """All claims in the order in which they became known."""
        return tuple(self._claims.values())

    def write(self) -> None:
        """Write the state file; raises OSError."""
        entries = tuple(_entry(claim) for claim in self._claims.values())
        write_state(self._path, dra_state.encode(DraState(entries)), durable=True)

    def of_pods_but(self, active: Iterable[str]) -> dict[str, list[CachedClaim]]:
        """The claims of every pod that is not in ``active``, by pod UID."""
        known = set(active)
        found: dict[str, list[CachedClaim]] = {}
        for claim in self._claims.values():
            for pod in sorted(claim.pods - known):
                found.setdefault(pod, []).append(claim)
        return found


def claim_of(claim: Object) -> CachedClaim:
    """The cache entry of an API claim that is not prepared yet; raises ``KubeletError`` unless it is allocated."""
    metadata = claim["metadata"]
    allocation = claim.get("status", {}).get("allocation")
    if not allocation:
        raise KubeletError(f"ResourceClaim {metadata['name']}: not allocated")
    results = allocation.get("devices", {}).get("results") or ()
    drivers: dict[str, list[DeviceState]] = {result["driver"]: [] for result in results}
    return CachedClaim(metadata["uid"], metadata["name"], metadata["namespace"], drivers=drivers)


def pod_claims(pod: Pod) -> tuple[PodClaim, ...]:
    """The pod's claims, and at last the one for its extended resources."""
    if pod.extended_claim is None:
        return pod.claims
    return (*pod.claims, PodClaim("", pod.extended_claim.claim))


def claim_name(pod: Pod, claim: PodClaim) -> str | None:
    """The name of the ResourceClaim, None when the pod needs none; raises ``KubeletError`` while it is not made."""
    if claim.claim == "":
        raise KubeletError(f'pod "{pod.namespace}/{pod.name}": ResourceClaim not created yet')
    return claim.claim


def _restored(entry: dra_state.ClaimInfo) -> CachedClaim:
    drivers = {driver: list(devices or ()) for driver, devices in (entry.drivers or {}).items()}
    return CachedClaim(entry.uid, entry.name, entry.namespace, set(entry.pods or ()), drivers)


def _entry(claim: CachedClaim) -> dra_state.ClaimInfo:
    drivers = {driver: tuple(devices) or None for driver, devices in claim.drivers.items()}
    return dra_state.ClaimInfo(claim.uid, claim.name, claim.namespace, tuple(sorted(claim.pods)), drivers)


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
