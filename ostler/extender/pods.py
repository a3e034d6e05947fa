"""A pod as the extender knows it: what it asks for, where it is, and what speaks against binding it unprepared.

Read from the API server's objects, of which only the named fields are kept: users decide how large the rest is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kube.bodies import Json, JsonObject, count_of, object_at, text_at
from kube.json_stream import Fields
from ostler.extender.wire import PodIdentity
from scheduling.cells import pod as contract

MOST_SPEC = 16 << 10
"""Bytes of the annotation with the scheduling spec; those of real gangs have a few hundred."""
_ANNOTATIONS = (
    contract.ANNOTATION_SPEC,
    contract.ANNOTATION_BIND_INFO,
    contract.ANNOTATION_ISOLATION,
    contract.ANNOTATION_OLD_ISOLATION,
)
_CONTAINER: Fields = {"resources": {"limits": {contract.RESOURCE_ENABLE: True}}}
FIELDS: Fields = {
    "metadata": {
        "namespace": True,
        "name": True,
        "uid": True,
        "resourceVersion": True,
        "creationTimestamp": True,
        "annotations": dict.fromkeys(_ANNOTATIONS, True),
    },
    "spec": {
        "nodeName": True,
        "containers": _CONTAINER,
        "initContainers": _CONTAINER,
        "resourceClaims": {"name": True},
        "volumes": {"name": True, "persistentVolumeClaim": {"claimName": True}, "ephemeral": {}},
    },
    "status": {"phase": True, "extendedResourceClaimStatus": {"resourceClaimName": True}},
}
NODE_FIELDS: Fields = {
    "metadata": {"name": True, "uid": True, "resourceVersion": True},
    "spec": {"unschedulable": True},
    "status": {"conditions": {"type": True, "status": True}},
}
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodFacts:
    """``node``: empty while the pod is not bound. ``is_over``: it has succeeded or failed.

    ``is_read``: False if only the metadata could be read. ``claims``: its resource claims. ``volumes``: the
    PersistentVolumeClaims that it uses. ``created``: as written.
    """

    identity: PodIdentity
    node: str
    annotations: Mapping[str, str]
    is_enabled: bool
    is_over: bool
    claims: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    created: str = ""
    is_read: bool = True

    @property
    def uid(self) -> str:
        """What identifies it."""
        return self.identity.uid

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.identity.namespace}/{self.identity.name}"

    @property
    def needs_preparation(self) -> bool:
        """Whether the scheduler itself must bind it: it allocates claims and volumes before it binds."""
        return bool(self.claims or self.volumes)


def facts_of(body: JsonObject) -> PodFacts:
    """A Pod's facts."""
    metadata, spec = object_at(body, "metadata"), object_at(body, "spec")
    name = text_at(metadata, "name")
    annotations = {key: text for key in _ANNOTATIONS if (text := text_at(metadata, "annotations", key))}
    return PodFacts(
        PodIdentity(text_at(metadata, "uid"), text_at(metadata, "namespace"), name),
        node=text_at(spec, "nodeName"),
        annotations=annotations,
        is_enabled=any(_is_enabled(each) for each in _containers(spec)),
        is_over=text_at(body, "status", "phase") in _OVER,
        claims=tuple(_claims(body, spec)),
        volumes=tuple(_volumes(spec, name)),
        created=text_at(metadata, "creationTimestamp"),
        is_read=bool(spec),
    )


def is_ready_node(body: JsonObject) -> bool:
    """Whether a Node is Ready and not cordoned."""
    if object_at(body, "spec").get("unschedulable") is True:
        return False
    conditions = object_at(body, "status").get("conditions")
    return any(text_at(each, "type") == "Ready" and text_at(each, "status") == "True" for each in _list(conditions))


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    for key in ("containers", "initContainers"):
        yield from _list(spec.get(key))


def _is_enabled(container: JsonObject) -> bool:
    limit = object_at(container, "resources", "limits").get(contract.RESOURCE_ENABLE)
    return (limit > 0) if isinstance(limit, int) else bool(isinstance(limit, str) and count_of(limit))


def _claims(body: JsonObject, spec: JsonObject) -> Iterator[str]:
    for each in _list(spec.get("resourceClaims")):
        yield text_at(each, "name")
    # A claim that the scheduler makes for an extended resource that is backed by DRA.
    if name := text_at(body, "status", "extendedResourceClaimStatus", "resourceClaimName"):
        yield name


def _volumes(spec: JsonObject, pod: str) -> Iterator[str]:
    for each in _list(spec.get("volumes")):
        if "ephemeral" in each:
            yield f"{pod}-{text_at(each, 'name')}"
        elif name := text_at(each, "persistentVolumeClaim", "claimName"):
            yield name


def _list(value: Json) -> Iterator[JsonObject]:
    for each in value if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield each
