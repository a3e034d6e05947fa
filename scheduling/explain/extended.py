"""Extended resources that a device class serves, and the claim that the scheduler makes for them (KEP-5004).

A node serves a resource either by a device plugin (its ``status.allocatable`` says so) or by devices. So the claim
differs from node to node, and on a node whose device plugin offers all of it there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter

from kube.bodies import JsonObject, object_at, text_at
from scheduling.api.quantities import QuantityError, of_json
from scheduling.explain.state import GROUP, Kind, name_of, namespace_of, objects_at, uid_of

IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""With a class's name behind it: the resource that every class serves."""
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
CLAIM_NAME = "<extended-resources>"
"""The claim's name while the scheduler only thinks about it: none that an object can have."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one container asks for. ``index``: among init containers and containers; ``order``: among its resources.

    ``short``: an init container that ends before the others begin, so that they use its devices again.
    """

    resource: str
    index: int
    order: int
    count: int
    short: bool

    @property
    def request(self) -> str:
        """The name of the request in the claim."""
        return f"container-{self.index}-request-{self.order}"


def class_of(resource: str, classes: Iterable[JsonObject]) -> JsonObject | None:
    """The class behind a resource: of several with the name the newest, of those the first by name."""
    best: JsonObject | None = None
    for one in classes:
        if f"{IMPLICIT}{name_of(one)}" == resource:
            return one
        if text_at(one, "spec", "extendedResourceName") == resource and (best is None or _before(one, best)):
            best = one
    return best


def _before(one: JsonObject, other: JsonObject) -> bool:
    # RFC 3339 in UTC to the second, as the API server writes it, sorts as text.
    mine, theirs = text_at(one, "metadata", "creationTimestamp"), text_at(other, "metadata", "creationTimestamp")
    return mine > theirs or (mine == theirs and name_of(one) < name_of(other))


def asks_of(pod: JsonObject) -> tuple[Ask, ...]:
    """Every container's extended resources, by resource and container. A limit alone is a request as well."""
    first = objects_at(pod, "spec", "initContainers")
    found: list[Ask] = []
    for index, container in enumerate((*first, *objects_at(pod, "spec", "containers"))):
        short = index < len(first) and container.get("restartPolicy") != "Always"
        wanted = {**object_at(container, "resources", "limits"), **object_at(container, "resources", "requests")}
        for order, resource in enumerate(sorted(wanted)):
            count = _whole(wanted[resource])
            if is_extended(resource) and count:
                found.append(Ask(resource, index, order, count, short))
    return tuple(sorted(found, key=attrgetter("resource", "index")))


def is_extended(resource: str) -> bool:
    """Whether a resource's name is one that nodes or classes add to Kubernetes' own."""
    if resource.startswith(IMPLICIT):
        return True
    own = "/" not in resource or "kubernetes.io/" in resource
    return not own and not resource.startswith("requests.")


def _whole(value: object) -> int:
    try:
        return of_json(value).as_int64() or 0
    except QuantityError:
        return 0


def offered(node: JsonObject | None, resource: str) -> int | None:
    """How many of a resource a device plugin offers on a node; None where none ever did."""
    allocatable = object_at(node, "status", "allocatable")
    return _whole(allocatable[resource]) if resource in allocatable else None


def owner_of(pod: JsonObject) -> JsonObject:
    """The reference to a pod in the claims that are made for it."""
    named = {"apiVersion": "v1", "kind": Kind.POD.value, "name": name_of(pod), "uid": uid_of(pod)}
    return {**named, "controller": True}


def extended_claim(pod: JsonObject, classes: Mapping[str, JsonObject], node: JsonObject | None) -> JsonObject | None:
    """The claim that the scheduler makes on a node, None where it makes none; ``classes``: by resource.

    Without ``node`` the claim for a node without any device plugin.
    """
    asks = [ask for ask in asks_of(pod) if ask.resource in classes and not offered(node, ask.resource)]
    requests = [one for resource in sorted({ask.resource for ask in asks}) for one in _requests(asks, resource)]
    if not requests:
        return None
    name = name_of(pod)
    listed = []
    for ask, count in sorted(requests, key=lambda pair: pair[0].request):
        exactly = {"deviceClassName": name_of(classes[ask.resource]), "allocationMode": "ExactCount", "count": count}
        listed.append({"name": ask.request, "exactly": exactly})
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": Kind.CLAIM.value,
        "metadata": {
            "name": CLAIM_NAME,
            "namespace": namespace_of(pod),
            "uid": f"{name}-extended-resources",
            "generateName": f"{name}-extended-resources-",
            "annotations": {ANNOTATION: "true"},
            "ownerReferences": [owner_of(pod)],
        },
        "spec": {"devices": {"requests": listed}},  # type: ignore[dict-item]  # mypy takes no nested list for Json
    }


def _requests(asks: Iterable[Ask], resource: str) -> list[tuple[Ask, int]]:
    """The requests for one resource with their counts.

    Init containers that end share one request, the largest, for what the later containers do not bring anyway.
    """
    asks = [ask for ask in asks if ask.resource == resource]
    lasting = [ask for ask in asks if not ask.short]
    largest: tuple[Ask, int] | None = None
    for ask in (ask for ask in asks if ask.short):
        more = ask.count - sum(later.count for later in lasting if later.index >= ask.index)
        if more > 0 and (largest is None or more > largest[1]):
            largest = (ask, more)
    return [*([largest] if largest else []), *((ask, ask.count) for ask in lasting)]
