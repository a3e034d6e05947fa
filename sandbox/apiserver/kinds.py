"""The kinds of objects that are served, in which versions, and what can be selected by field.

Objects of `resource.k8s.io` are stored in v1 and converted at the edge; which of their versions are served is the
catalogue's to say, because a driver has to work with servers that know only an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

Object = Mapping[str, Any]
Json = dict[str, Any]

RESOURCE_GROUP: Final = "resource.k8s.io"
VERSIONS: Final = ("v1", "v1beta2", "v1beta1")
"""Versions of `resource.k8s.io`, the preferred one first."""
_POOL_SELECTOR_SINCE: Final = 37
_TAINT_RULE_V1_SINCE: Final = 37

_NAME: Final[dict[str, tuple[str, ...]]] = {"metadata.name": ("metadata", "name")}
_NAMESPACED: Final[dict[str, tuple[str, ...]]] = {**_NAME, "metadata.namespace": ("metadata", "namespace")}


def _paths(*names: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(name.split(".")) for name in names}


@dataclass(frozen=True, slots=True)
class ServedKind:
    """`plural`: as in paths; `name`: as in objects; `group`: "" for core; `versions`: those it exists in.

    `status`: has a status that is written by itself; `counts`: `metadata.generation` counts changes of the spec;
    `fields`: what a field selector may name, and where that is.
    """

    plural: str
    name: str
    group: str = ""
    versions: tuple[str, ...] = ("v1",)
    namespaced: bool = False
    status: bool = False
    counts: bool = False
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType(_NAME))

    @property
    def judged(self) -> bool:
        """Whether the rules of `scheduling.api.validation` know it."""
        return self.group == RESOURCE_GROUP

    @property
    def resource(self) -> str:
        """The name in the server's messages: `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """The kind in the server's messages: `ResourceSlice.resource.k8s.io`."""
        return f"{self.name}.{self.group}" if self.group else self.name

    @property
    def subresources(self) -> tuple[str, ...]:
        """The parts of an object that are requested by themselves."""
        return (("status",) if self.status else ()) + (("binding",) if self.name == "Pod" else ())

    def api_version(self, version: str) -> str:
        """The apiVersion of its objects in a version of its group."""
        return f"{self.group}/{version}" if self.group else version


def _resource_kinds(minor: int) -> tuple[ServedKind, ...]:
    group = RESOURCE_GROUP
    slice_fields = _NAME | _paths("spec.driver", "spec.nodeName")
    if minor >= _POOL_SELECTOR_SINCE:
        slice_fields |= _paths("spec.pool.name")
    rules = ("v1", "v1beta2", "v1alpha3") if minor >= _TAINT_RULE_V1_SINCE else ("v1beta2", "v1alpha3")
    return (
        ServedKind("resourceslices", "ResourceSlice", group, VERSIONS, counts=True, fields=slice_fields),
        ServedKind(
            "resourceclaims", "ResourceClaim", group, VERSIONS, namespaced=True, status=True, fields=_NAMESPACED
        ),
        ServedKind(
            "resourceclaimtemplates", "ResourceClaimTemplate", group, VERSIONS, namespaced=True, fields=_NAMESPACED
        ),
        ServedKind("deviceclasses", "DeviceClass", group, VERSIONS, counts=True),
        ServedKind("devicetaintrules", "DeviceTaintRule", group, rules, status=True, counts=True),
    )


_CORE: Final = (
    ServedKind("nodes", "Node", status=True, fields=_NAME | _paths("spec.unschedulable")),
    ServedKind("namespaces", "Namespace", status=True, fields=_NAME | _paths("status.phase")),
    ServedKind(
        "pods",
        "Pod",
        namespaced=True,
        status=True,
        fields=_NAMESPACED
        | _paths(
            "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "status.phase"
        ),
    ),
    ServedKind(
        "events",
        "Event",
        namespaced=True,
        fields=_NAMESPACED
        | _paths(
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "reason",
            "type",
            "reportingComponent",
        ),
    ),
)


class Catalogue:
    """The kinds a server has. `versions`: of `resource.k8s.io`, none without DRA; `minor`: of Kubernetes 1.x."""

    def __init__(self, versions: Iterable[str] = VERSIONS, minor: int = 36) -> None:
        self.minor = minor
        self.versions = tuple(versions)
        """Served versions of `resource.k8s.io`, the preferred one first."""
        known = _CORE + _resource_kinds(minor)
        self._by_plural = {kind.plural: kind for kind in known}
        possible = {version for kind in known if kind.group for version in kind.versions}
        for version in self.versions:
            if version not in possible:
                text = f"{version!r} is not a version of {RESOURCE_GROUP}; use some of {', '.join(sorted(possible))}"
                raise ValueError(text)

    def by_plural(self, plural: str) -> ServedKind:
        """The kind, served over HTTP or not. Raises KeyError."""
        return self._by_plural[plural]

    def kinds(self) -> tuple[ServedKind, ...]:
        """All kinds."""
        return tuple(self._by_plural.values())

    def served(self, group: str, version: str) -> tuple[ServedKind, ...]:
        """Kinds of a group and version, none if it is not served."""
        if group == "" or version in self.versions:
            return tuple(kind for kind in self.kinds() if kind.group == group and version in kind.versions)
        return ()
