"""Pods of a node, reduced to what says who they are, whether they are over, and which claims they name.

Whoever may create pods may bind them to this node, as many and as large as the API server takes, and the kubelet
refuses most of them afterwards. So of each object only ``FIELDS`` are decoded. A pod that is over, as one that the
kubelet refused, keeps no claims; one that neither scheduler nor kubelet have accepted yet keeps a few. Of the others
there are no more than the node can run.

Reading trusts nothing: what has another type than the API gives it is as if it were not there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from kube.bodies import Json, JsonObject, object_at, text_at
from kube.json_stream import Fields
from node.values import Value, value

MOST_CLAIMS = 128
"""Names of claims that are kept of one pod: several times what a pod can use of any node.

A pod may name thousands, also of claims that do not exist. Nothing is known here of what is left out: such a claim
reserves nothing before it is prepared, and is refused then if somebody else has its device.
"""
MOST_CLAIMS_UNSEEN = 8
"""The same for a pod that neither the scheduler bound nor the kubelet has seen, of which there may be any number."""

_MIRROR = "kubernetes.io/config.mirror"
_OVER = ("Succeeded", "Failed")
_CONTAINERS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
"""Of an object of the API; no claim has another, so whoever names one names nothing."""
_STATUS: Fields = {"state": {"running": {}}}
_CLAIM_NAME: Fields = {"resourceClaimName": True}
_UNLISTED = "claimsLeftOut"
"""Our own field of a stripped pod's status."""
_SCHEDULED: JsonObject = {"type": "PodScheduled", "status": "True"}
FIELDS: Fields = {
    "metadata": {"name": True, "namespace": True, "uid": True, "resourceVersion": True, "annotations": {_MIRROR: True}},
    "spec": {"resourceClaims": _CLAIM_NAME},
    "status": {
        "phase": True,
        "startTime": True,
        "conditions": {"type": True, "status": True},
        "resourceClaimStatuses": _CLAIM_NAME,
        "extendedResourceClaimStatus": _CLAIM_NAME,
        **dict.fromkeys(_CONTAINERS, _STATUS),
    },
}
"""What is read of a pod's object."""


@value
class NodePod(Value):
    """A pod that is bound to this node.

    ``uid``: of its object. ``static``: of a static pod, which is known to the API server by a copy (mirror pod), the
    UID that the kubelet itself uses; else empty. ``over``: it has ended, and no container of it is running.
    ``claims``: names of ResourceClaims, in its namespace, a bounded number. ``unlisted``: how many are left out.
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
    for key in _CONTAINERS:
        if any(_is_running(each) for each in _objects(status.get(key))):
            state[key] = [{"state": {"running": {}}}]
    if _is_accepted(status):
        state["conditions"] = [_SCHEDULED]
    if _is_over(status):
        return {"metadata": kept, "status": state}
    claims, unlisted = _named(body)
    named: list[Json] = [{"resourceClaimName": name} for name in claims]
    return {"metadata": kept, "spec": {"resourceClaims": named}, "status": {**state, _UNLISTED: unlisted}}


def pod_of(body: JsonObject) -> NodePod:
    """A pod's object, whole or ``stripped``."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    over = _is_over(status)
    claims, unlisted = ((), 0) if over else _named(body)
    return NodePod(
        text_at(metadata, "uid"),
        text_at(metadata, "namespace"),
        text_at(metadata, "name"),
        text_at(metadata, "annotations", _MIRROR),
        over,
        claims,
        unlisted,
    )


def _named(body: JsonObject) -> tuple[tuple[str, ...], int]:
    """The claims that count, and how many others there are."""
    status = object_at(body, "status")
    most = MOST_CLAIMS if _is_accepted(status) else MOST_CLAIMS_UNSEEN
    names = dict.fromkeys(name for name in _claims(body) if _NAME.fullmatch(name))
    before = status.get(_UNLISTED)
    return tuple(islice(names, most)), max(0, len(names) - most) + (before if isinstance(before, int) else 0)


def _is_accepted(status: JsonObject) -> bool:
    """Whether scheduler or kubelet have accepted the pod; until then only its author says that it belongs here."""
    return bool(text_at(status, "startTime")) or any(
        text_at(each, "type") == "PodScheduled" and text_at(each, "status") == "True"
        for each in _objects(status.get("conditions"))
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
