"""What the server tells about itself: groups, versions, kinds, its release, its health."""

from __future__ import annotations

from typing import Final

from sandbox.apiserver.kinds import RESOURCE_GROUP, Catalogue, Json, ServedKind

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_PART_VERBS: Final = {"status": ["get", "patch", "update"], "binding": ["create"]}
_HEALTH: Final = (("healthz",), ("livez",), ("readyz",))


def described(catalogue: Catalogue, parts: tuple[str, ...]) -> Json | str | None:
    """Return what the path shows: an object, a text, or None where there is nothing."""
    if parts in _HEALTH:
        return "ok"
    match parts:
        case ("version",):
            return _version(catalogue.minor)
        case ("api",):
            return {"kind": "APIVersions", "versions": ["v1"]}
        case ("apis",):
            groups = [_group(catalogue)] if catalogue.versions else []
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ("apis", group) if group == RESOURCE_GROUP and catalogue.versions:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(catalogue)}
        case ("api", version):
            return _resources(catalogue, "", version)
        case ("apis", group, version):
            return _resources(catalogue, group, version)
    return None


def _version(minor: int) -> Json:
    return {"major": "1", "minor": str(minor), "gitVersion": f"v1.{minor}.0+sandbox", "platform": "linux/amd64"}


def _group(catalogue: Catalogue) -> Json:
    versions = [{"groupVersion": f"{RESOURCE_GROUP}/{each}", "version": each} for each in catalogue.versions]
    return {"name": RESOURCE_GROUP, "versions": versions, "preferredVersion": versions[0]}


def _resources(catalogue: Catalogue, group: str, version: str) -> Json | None:
    kinds = catalogue.served(group, version)
    if not kinds:
        return None
    name = f"{group}/{version}" if group else version
    listed = [entry for kind in kinds for entry in _entries(kind)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": listed}


def _entries(kind: ServedKind) -> list[Json]:
    whole: Json = {"name": kind.plural, "singularName": kind.name.lower(), "namespaced": kind.namespaced}
    entries = [whole | {"kind": kind.name, "verbs": _VERBS}]
    for part in kind.subresources:
        shown = "Binding" if part == "binding" else kind.name
        entries.append(whole | {"name": f"{kind.plural}/{part}", "kind": shown, "verbs": _PART_VERBS[part]})
    return entries
