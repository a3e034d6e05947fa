"""Which fields of each kind of object a snapshot keeps, and which names they hold.

One table for both: a field that is not in it is not kept, so that nothing is kept by accident (environment variables,
annotations, images, data of drivers), and a name cannot be kept without its group. Drivers, classes, devices, requests
and selectors stay unchanged even if names are replaced: the answer is about them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Protocol

from kube.bodies import Json, JsonObject, object_at, text_at
from scheduling.explain.extended import ANNOTATION, is_extended
from scheduling.explain.state import CORE, FACTS, Kind
from scheduling.explain.subject import DEFAULT_SCHEDULER, POD_CLAIM_NAME


class NameGroup(StrEnum):
    """The kinds of names, by the word that aliases begin with."""

    NAMESPACE = "namespace"
    POD = "pod"
    CLAIM = "claim"
    TEMPLATE = "template"
    USER = "user"
    """Whatever else claims are reserved for."""
    LOCAL = "use"
    """A pod's own name for a claim."""
    CONTAINER = "container"
    GATE = "gate"
    SCHEDULER = "scheduler"
    UID = "uid"
    NODE = "node"
    POOL = "pool"
    SLICE = "slice"
    RULE = "rule"
    LABEL = "label"
    VALUE = "value"


NODES = frozenset({NameGroup.NODE, NameGroup.POOL, NameGroup.SLICE, NameGroup.RULE, NameGroup.LABEL, NameGroup.VALUE})
WORKLOADS = frozenset(NameGroup) - NODES


class AliasNaming(Protocol):
    """The replacement of a name."""

    @property
    def groups(self) -> frozenset[NameGroup]:
        """The groups whose names are replaced."""

    def name(self, group: NameGroup, text: str) -> str:
        """The name to write instead of a name."""


Leaf = Callable[[AliasNaming, Json], Json]
"""The text for a value; None if there is none."""
Tree = object
"""A ``Leaf``, a mapping from kept fields to trees, or a list with the tree of its items."""

_KNOWN_DOMAINS = ("kubernetes.io", "k8s.io")
_PUBLIC_LABELS = ("kubernetes.io/os", "kubernetes.io/arch")
REPLACED: JsonObject = {"replaced": "by ostler snapshot"}
LONGEST_NUMBER = 9
"""Digits of a number that only counts something; longer ones are accounts, telephones, serial numbers."""


def kept(kind: Kind, body: JsonObject, naming: AliasNaming) -> JsonObject:
    """An object in the form of a snapshot."""
    facts = FACTS[kind]
    made = _apply(TREES[kind], body, naming)
    inner: JsonObject = made if isinstance(made, dict) else {}
    metadata = dict(object_at(inner, "metadata"))
    if facts.namespaced and "namespace" not in metadata:
        metadata["namespace"] = naming.name(NameGroup.NAMESPACE, "default")
    version = "v1" if facts.group == CORE else f"{facts.group}/v1"
    return {"apiVersion": version, "kind": kind.value, **inner, "metadata": metadata}


def _apply(tree: Tree, value: Json, naming: AliasNaming) -> Json:
    if callable(tree):
        found: Json = tree(naming, value)
        return found
    if isinstance(tree, list):
        if not isinstance(value, list):
            return None
        items = (_apply(tree[0], item, naming) for item in value)
        return [item for item in items if item is not None]
    if not isinstance(tree, Mapping) or not isinstance(value, dict):
        return None
    fields = {key: _apply(tree[key], inner, naming) for key, inner in value.items() if key in tree}
    return {key: inner for key, inner in fields.items() if inner is not None}


def _as_is(_: AliasNaming, value: Json) -> Json:
    return value


def _plain(*fields: str) -> dict[str, Leaf]:
    """Fields that are kept unchanged."""
    return dict.fromkeys(fields, _as_is)


def _named(group: NameGroup) -> Leaf:
    def leaf(naming: AliasNaming, value: Json) -> Json:
        return naming.name(group, value) if isinstance(value, str) else None

    return leaf


def _hidden(naming: AliasNaming, value: Json) -> Json:
    """Free text and labels of workloads: they may contain names, and no answer needs them."""
    return None if WORKLOADS & naming.groups else value


def _opaque(_: AliasNaming, __: Json) -> Json:
    """A driver's own parameters decide nothing here, and may hold anything."""
    return dict(REPLACED)


def _annotations(naming: AliasNaming, value: Json) -> Json:
    found: JsonObject = {}
    if own := text_at(value, POD_CLAIM_NAME):
        found[POD_CLAIM_NAME] = naming.name(NameGroup.LOCAL, own)
    if text_at(value, ANNOTATION):
        found[ANNOTATION] = text_at(value, ANNOTATION)
    return found or None


def _owner(naming: AliasNaming, value: Json) -> Json:
    """Owners that are pods or nodes; a pod's own owner decides nothing."""
    group = {"Pod": NameGroup.POD, "Node": NameGroup.NODE}.get(text_at(value, "kind"))
    if group is None:
        return None
    tree = {**_plain("apiVersion", "kind", "controller"), "name": _named(group), "uid": _named(NameGroup.UID)}
    return _apply(tree, value, naming)


def _consumer(naming: AliasNaming, value: Json) -> Json:
    group = NameGroup.POD if text_at(value, "resource") == "pods" and not text_at(value, "apiGroup") else NameGroup.USER
    tree = {"apiGroup": _as_is, "resource": _as_is, "name": _named(group), "uid": _named(NameGroup.UID)}
    return _apply(tree, value, naming)


def _pod_condition(naming: AliasNaming, value: Json) -> Json:
    """A condition of a pod; the owners of readiness gates name theirs after what they watch."""
    return None if "/" in text_at(value, "type") and WORKLOADS & naming.groups else _apply(_CONDITION, value, naming)


def _scheduler(naming: AliasNaming, value: Json) -> Json:
    return (
        value if value == DEFAULT_SCHEDULER or not isinstance(value, str) else naming.name(NameGroup.SCHEDULER, value)
    )


def _ready(naming: AliasNaming, value: Json) -> Json:
    return _apply(_CONDITION, value, naming) if text_at(value, "type") == "Ready" else None


def _extended(_: AliasNaming, value: Json) -> Json:
    """Resources that nodes add to Kubernetes' own: a device plugin's."""
    return {key: count for key, count in object_at(value).items() if is_extended(key)} or None


def label_key(naming: AliasNaming, key: str) -> str:
    """A label's key; those that Kubernetes gives are no secret."""
    domain = key.partition("/")[0] if "/" in key else ""
    known = any(domain == one or domain.endswith(f".{one}") for one in _KNOWN_DOMAINS)
    return key if known or not key else naming.name(NameGroup.LABEL, key)


def label_value(naming: AliasNaming, key: str, value: Json) -> Json:
    """A label's value. Small numbers and truth values name nothing, and are compared as such."""
    if not isinstance(value, str) or key in _PUBLIC_LABELS or value in ("", "true", "false"):
        return value
    if len(value) <= LONGEST_NUMBER and value.lstrip("+-").isdigit():
        return value
    return naming.name(NameGroup.NODE if key == "kubernetes.io/hostname" else NameGroup.VALUE, value)


def _labels(naming: AliasNaming, value: Json) -> Json:
    found = object_at(value)
    return {label_key(naming, key): label_value(naming, key, inner) for key, inner in found.items()}


def _requirement(naming: AliasNaming, value: Json) -> Json:
    key, values = text_at(value, "key"), object_at(value).get("values")
    made: JsonObject = {"key": label_key(naming, key), "operator": text_at(value, "operator")}
    if isinstance(values, list):
        made["values"] = [label_value(naming, key, one) for one in values]
    return made


def _field(naming: AliasNaming, value: Json) -> Json:
    """A requirement on metadata.name, the only such field."""
    return _apply({"key": _as_is, "operator": _as_is, "values": [_named(NameGroup.NODE)]}, value, naming)


def _taint(naming: AliasNaming, value: Json) -> Json:
    """A taint of a node, or a toleration of a pod."""
    key = text_at(value, "key")
    made = dict(object_at(value))
    if "key" in made:
        made["key"] = label_key(naming, key)
    if "value" in made:
        made["value"] = label_value(naming, key, made["value"])
    return made


def _node_selector(naming: AliasNaming, value: Json) -> Json:
    term = {"matchExpressions": [_requirement], "matchFields": [_field]}
    return _apply({"nodeSelectorTerms": [term]}, value, naming)


def _metadata(group: NameGroup | None, labels: Leaf = _hidden) -> Mapping[str, Tree]:
    return {
        "name": _as_is if group is None else _named(group),
        "namespace": _named(NameGroup.NAMESPACE),
        "uid": _named(NameGroup.UID),
        **_plain("creationTimestamp", "deletionTimestamp"),
        "labels": labels,
        "annotations": _annotations,
        "ownerReferences": [_owner],
    }


_CONDITION = {"type": _as_is, "status": _as_is, "reason": _as_is, "message": _hidden, "lastTransitionTime": _as_is}
_CONFIG = [{"requests": _as_is, "source": _as_is, "opaque": {"driver": _as_is, "parameters": _opaque}}]
_CLAIM_SPEC = {"devices": {"requests": _as_is, "constraints": _as_is, "config": _CONFIG}}
_DEVICE_REF = {"driver": _as_is, "pool": _named(NameGroup.POOL), "device": _as_is, "shareID": _as_is}
_RESULT = {
    **_DEVICE_REF,
    **_plain("request", "adminAccess", "tolerations", "consumedCapacity"),
    **_plain("bindingConditions", "bindingFailureConditions"),
}
_ALLOCATION = {
    "devices": {"results": [_RESULT], "config": _CONFIG},
    "nodeSelector": _node_selector,
    "allocationTimestamp": _as_is,
}


def _device(naming: AliasNaming, value: Json) -> Json:
    """A whole device, except the names of nodes in it."""
    made = dict(object_at(value))
    if isinstance(name := made.get("nodeName"), str):
        made["nodeName"] = naming.name(NameGroup.NODE, name)
    if "nodeSelector" in made:
        made["nodeSelector"] = _node_selector(naming, made["nodeSelector"])
    return made


_CONTAINERS = [
    {
        "name": _named(NameGroup.CONTAINER),
        "restartPolicy": _as_is,
        "resources": {
            **_plain("requests", "limits"),
            "claims": [{"name": _named(NameGroup.LOCAL), "request": _as_is}],
        },
    }
]
_POD_SPEC = {
    "nodeName": _named(NameGroup.NODE),
    "nodeSelector": _labels,
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _node_selector}},
    "tolerations": [_taint],
    "schedulerName": _scheduler,
    "schedulingGates": [{"name": _named(NameGroup.GATE)}],
    "resourceClaims": [
        {
            "name": _named(NameGroup.LOCAL),
            "resourceClaimName": _named(NameGroup.CLAIM),
            "resourceClaimTemplateName": _named(NameGroup.TEMPLATE),
        }
    ],
    "initContainers": _CONTAINERS,
    "containers": _CONTAINERS,
}
_MAPPING = {"containerName": _named(NameGroup.CONTAINER), "resourceName": _as_is, "requestName": _as_is}
_POD_STATUS = {
    "phase": _as_is,
    "conditions": [_pod_condition],
    "resourceClaimStatuses": [{"name": _named(NameGroup.LOCAL), "resourceClaimName": _named(NameGroup.CLAIM)}],
    "extendedResourceClaimStatus": {"resourceClaimName": _named(NameGroup.CLAIM), "requestMappings": [_MAPPING]},
}
TREES: Mapping[Kind, Mapping[str, Tree]] = {
    Kind.SLICE: {
        "metadata": _metadata(NameGroup.SLICE, _labels),
        "spec": {
            **_plain("driver", "allNodes", "perDeviceNodeSelection", "sharedCounters"),
            "pool": {**_plain("generation", "resourceSliceCount"), "name": _named(NameGroup.POOL)},
            "nodeName": _named(NameGroup.NODE),
            "nodeSelector": _node_selector,
            "devices": [_device],
        },
    },
    Kind.CLAIM: {
        "metadata": _metadata(NameGroup.CLAIM),
        "spec": _CLAIM_SPEC,
        "status": {
            "allocation": _ALLOCATION,
            "reservedFor": [_consumer],
            "devices": [{**_DEVICE_REF, "conditions": [_CONDITION]}],
        },
    },
    Kind.CLASS: {
        "metadata": _metadata(None),
        "spec": {**_plain("selectors", "extendedResourceName"), "config": _CONFIG},
    },
    Kind.NODE: {
        "metadata": _metadata(NameGroup.NODE, _labels),
        "spec": {"taints": [_taint], "unschedulable": _as_is},
        "status": {"conditions": [_ready], "allocatable": _extended},
    },
    Kind.POD: {"metadata": _metadata(NameGroup.POD), "spec": _POD_SPEC, "status": _POD_STATUS},
    Kind.TEMPLATE: {
        "metadata": _metadata(NameGroup.TEMPLATE),
        "spec": {"metadata": {"labels": _hidden}, "spec": _CLAIM_SPEC},
    },
    Kind.TAINT_RULE: {
        "metadata": _metadata(NameGroup.RULE),
        "spec": {
            "deviceSelector": {"driver": _as_is, "pool": _named(NameGroup.POOL), "device": _as_is},
            "taint": _as_is,
        },
    },
}
