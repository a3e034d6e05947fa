"""The kinds of objects that decide an allocation, and how the API names them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kube.bodies import Json, JsonObject, object_at, text_at

GROUP = "resource.k8s.io"
CORE = ""


class Kind(StrEnum):
    """A kind, by the word in an object's ``kind``."""

    SLICE = "ResourceSlice"
    CLAIM = "ResourceClaim"
    CLASS = "DeviceClass"
    NODE = "Node"
    POD = "Pod"
    TEMPLATE = "ResourceClaimTemplate"
    TAINT_RULE = "DeviceTaintRule"


@dataclass(frozen=True, slots=True)
class Facts:
    """How the API names a kind: its group (empty for the core), the word in paths and in RBAC rules."""

    group: str
    plural: str
    namespaced: bool
    field: str
    """Where a ``State`` keeps the objects."""


FACTS = {
    Kind.SLICE: Facts(GROUP, "resourceslices", False, "slices"),
    Kind.CLAIM: Facts(GROUP, "resourceclaims", True, "claims"),
    Kind.CLASS: Facts(GROUP, "deviceclasses", False, "classes"),
    Kind.NODE: Facts(CORE, "nodes", False, "nodes"),
    Kind.POD: Facts(CORE, "pods", True, "pods"),
    Kind.TEMPLATE: Facts(GROUP, "resourceclaimtemplates", True, "templates"),
    Kind.TAINT_RULE: Facts(GROUP, "devicetaintrules", False, "taint_rules"),
}


def name_of(body: Json) -> str:
    """An object's name, empty where it has none."""
    return text_at(body, "metadata", "name")


def namespace_of(body: Json) -> str:
    """The namespace of an object of a namespaced kind; without one it is ``default``, as for kubectl."""
    return text_at(body, "metadata", "namespace") or "default"


def uid_of(body: Json) -> str:
    """An object's UID, empty where it has none."""
    return text_at(body, "metadata", "uid")


def kind_of(body: Json) -> Kind | None:
    """The kind of an object, None for one that decides nothing here."""
    try:
        return Kind(text_at(body, "kind"))
    except ValueError:
        return None


def key_of(kind: Kind, body: Json) -> tuple[str, str]:
    """What one object of a kind is told from another by: namespace (empty for a kind without) and name."""
    return (namespace_of(body) if FACTS[kind].namespaced else "", name_of(body))


def objects_at(body: Json, *keys: str) -> tuple[JsonObject, ...]:
    """The objects in the list at a path of keys; what is no object there is left out."""
    found = object_at(body, *keys[:-1]).get(keys[-1])
    return tuple(item for item in found if isinstance(item, dict)) if isinstance(found, list) else ()


def texts_at(body: Json, *keys: str) -> tuple[str, ...]:
    """The texts in the list at a path of keys; what is no text there is left out."""
    found = object_at(body, *keys[:-1]).get(keys[-1])
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()
