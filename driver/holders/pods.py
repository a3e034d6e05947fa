"""Pods of a node, reduced to what says who they are, whether they are over, and which claims they name.

A pod's object has 10 to 20 kB, of which less than one is of use here; so each is cut down where it arrives, before the
next is read. Reading trusts nothing: what has another type than the API gives it is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Iterator

from kube.bodies import Json, JsonObject, object_at, text_at
from node.values import Value, value

MOST_CLAIMS = 128
"""Names of claims that are kept of one pod: several times what a pod can use of any node.

A pod may name thousands, also of claims that do not exist. Nothing is known here of what is left out: such a claim
reserves nothing before it is prepared, and is refused then if somebody else has its device.
"""

_MIRROR = "kubernetes.io/config.mirror"
_OVER = ("Succeeded", "Failed")
_CONTAINERS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


@value
class NodePod(Value):
    """A pod that is bound to this node.

    ``uid``: of its object. ``static``: of a static pod, which is known to the API server by a copy (mirror pod), the
    UID that the kubelet itself uses; else empty. ``over``: it has ended, and no container of it is running.
    ``claims``: names of ResourceClaims, in its namespace, ``MOST_CLAIMS`` at most. ``unlisted``: how many are left out.
    """

    uid: str
    namespace: str
    name: str
    static: str = ""
    over: bool = False
    claims: tuple[str, ...] = ()
    unlisted: int = 0

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def stripped(body: JsonObject) -> JsonObject:
    """The parts of a pod's object that ``pod_of`` and a reflector need."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    kept: JsonObject = {key: metadata.get(key) for key in ("name", "namespace", "uid", "resourceVersion")}
    mirror = text_at(metadata, "annotations", _MIRROR)
    if mirror:
        kept["annotations"] = {_MIRROR: mirror}
    state: JsonObject = {"phase": status.get("phase")}
    for key in ("resourceClaimStatuses", "extendedResourceClaimStatus"):
        if status.get(key):
            state[key] = status[key]
    for key in _CONTAINERS:
        if status.get(key):
            state[key] = [{"state": {"running": {}}} for each in _objects(status.get(key)) if _is_running(each)]
    return {
        "metadata": kept,
        "spec": {"resourceClaims": object_at(body, "spec").get("resourceClaims")},
        "status": state,
    }


def pod_of(body: JsonObject) -> NodePod:
    """A pod's object, whole or ``stripped``."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    claims = tuple(dict.fromkeys(filter(None, _claims(body))))
    return NodePod(
        text_at(metadata, "uid"),
        text_at(metadata, "namespace"),
        text_at(metadata, "name"),
        text_at(metadata, "annotations", _MIRROR),
        _is_over(status),
        claims[:MOST_CLAIMS],
        max(0, len(claims) - MOST_CLAIMS),
    )


def _is_over(status: JsonObject) -> bool:
    """By phase and containers: others than the kubelet set a phase, too, while containers still run."""
    if text_at(status, "phase") not in _OVER:
        return False
    return not any(_is_running(each) for key in _CONTAINERS for each in _objects(status.get(key)))


def _is_running(container: JsonObject) -> bool:
    return object_at(container, "state").get("running") is not None


def _claims(body: JsonObject) -> Iterator[str]:
    """Names of claims: given by the pod, made for it from a template, or made for its extended resources."""
    status = object_at(body, "status")
    for each in _objects(object_at(body, "spec").get("resourceClaims")):
        yield text_at(each, "resourceClaimName")
    for each in _objects(status.get("resourceClaimStatuses")):
        yield text_at(each, "resourceClaimName")
    yield text_at(status, "extendedResourceClaimStatus", "resourceClaimName")


def _objects(found: Json) -> Iterator[JsonObject]:
    return (each for each in found if isinstance(each, dict)) if isinstance(found, list) else iter(())
