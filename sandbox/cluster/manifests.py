"""Pods as they stand in manifests, and the values that the embedded kubelet takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sandbox.kubelet.pods import ClaimUse, Container, ExtendedClaim, ExtendedRequest, Kind, Pod, PodClaim
from scheduling.api import quantities as quantity
from scheduling.api.quantities import QuantityError
from scheduling.api.versions import VersionError, from_v1, to_v1

Object = Mapping[str, Any]
_GROUP = "resource.k8s.io"
_TAINT_RULES = "v1beta2"
"""The version in which the sandbox's client speaks of DeviceTaintRules."""


class ManifestError(ValueError):
    """A manifest cannot be run here; the text names the field and the fix."""


def check_shape(document: Object) -> None:
    """Raise ``ManifestError`` for an unusable document; the API server judges the rest."""
    where = str(document.get("kind"))
    metadata = _mapping(f"{where}: metadata", document.get("metadata"))
    if where != "Pod":
        return
    spec = _mapping(f"{where} {metadata.get('name', '')}: spec", document.get("spec"))
    for field in ("initContainers", "containers", "resourceClaims"):
        for place, entry in _named(f"spec.{field}", spec.get(field)):
            if field != "resourceClaims":
                _check_resources(f"{place}.resources", entry.get("resources") or {})


def current(document: Object) -> Object:
    """An object of resource.k8s.io in the version in which it is created here, whatever version it is written in.

    Raises ``ManifestError`` for a version that its kind does not have. Other objects are returned as they are.
    """
    if not str(document.get("apiVersion")).startswith(f"{_GROUP}/"):
        return document
    try:
        wanted = to_v1(document)
        return from_v1(wanted, _TAINT_RULES) if document.get("kind") == "DeviceTaintRule" else wanted
    except VersionError as error:
        raise ManifestError(
            f"{document.get('kind')}: apiVersion: {error.version} is unknown; {error.possible}"
        ) from error


def _check_resources(where: str, resources: object) -> None:
    found = _mapping(where, resources)
    for field in ("requests", "limits"):
        _mapping(f"{where}.{field}", found.get(field) or {})
    list(_named(f"{where}.claims", found.get("claims")))


def _named(where: str, value: object) -> Iterator[tuple[str, Object]]:
    """The entries of a list of mappings that have names each, with their places."""
    if not isinstance(value, (list, type(None))):
        raise ManifestError(f"{where}: must be a list, is {value!r}")
    for index, entry in enumerate(value or ()):
        place = f"{where}[{index}]"
        name = _mapping(place, entry).get("name")
        if not isinstance(name, str):
            raise ManifestError(f"{place}.name: must be a string, is {name!r}")
        yield place, entry


def _mapping(where: str, value: object) -> Object:
    if not isinstance(value, dict):
        raise ManifestError(f"{where}: must be a mapping, is {value!r}")
    return value


def containers_of(manifest: Object) -> list[tuple[Object, Kind]]:
    """The containers with their kind: init containers and sidecars first."""
    spec = manifest["spec"]
    early: list[tuple[Object, Kind]] = [
        (each, "sidecar" if each.get("restartPolicy") == "Always" else "init")
        for each in spec.get("initContainers") or ()
    ]
    return [*early, *((each, "app") for each in spec.get("containers") or ())]


def limits_of(container: Object) -> dict[str, int]:
    """Extended resources of a container (the names with a slash), whole numbers; raises ``ManifestError``."""
    resources = container.get("resources") or {}
    merged = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: _whole(f"{container.get('name')}: {name}", amount) for name, amount in merged.items() if "/" in name}


def kubelet_pod(manifest: Object) -> Pod:
    """The pod as it reaches the kubelet: with its status' names of claims. Raises ``ManifestError``."""
    metadata, status = manifest["metadata"], manifest.get("status") or {}
    extended = _extended(status.get("extendedResourceClaimStatus"))
    mapped = extended.requests if extended is not None else ()
    return Pod(
        uid=metadata["uid"],
        name=metadata["name"],
        namespace=metadata.get("namespace", "default"),
        containers=tuple(
            Container(container["name"], kind, limits_of(container), _uses(container))
            for container, kind in containers_of(manifest)
        ),
        claim_backed=frozenset((each.container, each.resource) for each in mapped),
        claims=tuple(_pod_claim(each, status) for each in manifest["spec"].get("resourceClaims") or ()),
        extended_claim=extended,
    )


def _uses(container: Object) -> tuple[ClaimUse, ...]:
    claims = (container.get("resources") or {}).get("claims") or ()
    return tuple(ClaimUse(each["name"], each.get("request", "")) for each in claims)


def _pod_claim(entry: Object, status: Object) -> PodClaim:
    if entry.get("resourceClaimName"):
        return PodClaim(entry["name"], entry["resourceClaimName"])
    made: Iterable[Object] = status.get("resourceClaimStatuses") or ()
    found = next((each for each in made if each["name"] == entry["name"]), None)
    return PodClaim(entry["name"], "" if found is None else found.get("resourceClaimName"), generated=True)


def _extended(status: Object | None) -> ExtendedClaim | None:
    if not status:
        return None
    requests = tuple(
        ExtendedRequest(each["containerName"], each["resourceName"], each["requestName"])
        for each in status.get("requestMappings") or ()
    )
    return ExtendedClaim(status["resourceClaimName"], requests)


def _whole(what: str, amount: object) -> int:
    try:
        count = quantity.of_json(amount)
    except QuantityError as error:
        raise ManifestError(f"container {what}: {error}; write a whole number") from error
    whole, rest = divmod(count.nanos, 10**9)
    if rest or whole < 0:
        raise ManifestError(f"container {what}: {amount!r} is not a whole number; extended resources are counted")
    return whole
