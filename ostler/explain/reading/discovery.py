"""Which versions of the device API a cluster serves, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from kube.bodies import JsonObject, text_at
from kube.client import path_of
from kube.errors import Forbidden, NotFound
from ostler.explain.errors import NotServed
from ostler.explain.kinds import CORE, FACTS, GROUP, Kind, objects_at

_PREFERRED = ("v1", "v1beta2", "v1beta1", "v1alpha3")
_NEEDED = (Kind.SLICE, Kind.CLAIM, Kind.CLASS)
_SINCE = (
    "dynamic resource allocation (DRA) is on since Kubernetes 1.34; 1.32 and 1.33 have it with the feature gate "
    "DynamicResourceAllocation and --runtime-config=resource.k8s.io/v1beta1=true"
)


class Reads(Protocol):
    """What is needed of a client."""

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Read one object or a list."""
        ...


def server_version(client: Reads) -> str:
    """Such as ``v1.37.2``; empty where the server does not let us know."""
    try:
        return text_at(client.get("/version"), "gitVersion")
    except (Forbidden, NotFound):
        return ""


def served_versions(client: Reads, server: str, release: str) -> dict[Kind, str]:
    """The version to ask for, of every kind that is served; raises ``NotServed`` and ``kube.errors.RequestError``."""
    found = dict.fromkeys((Kind.NODE, Kind.POD), "v1")
    who = f"{server} ({release})" if release else server
    try:
        group = client.get(path_of("apis", GROUP))
    except NotFound as error:
        raise NotServed(f"{who} does not serve the API group {GROUP}: {_SINCE}") from error
    versions = {text_at(version, "version") for version in objects_at(group, "versions")}
    for version in (version for version in _PREFERRED if version in versions):
        names = {text_at(one, "name") for one in objects_at(client.get(path_of("apis", GROUP, version)), "resources")}
        for kind, facts in FACTS.items():
            # The claims and classes of v1alpha3 are another API, which went with Kubernetes 1.31.
            old = version == "v1alpha3" and kind is not Kind.TAINT_RULE
            if facts.group == GROUP and facts.plural in names and not old:
                found.setdefault(kind, version)
    if lacking := [FACTS[kind].plural for kind in _NEEDED if kind not in found]:
        has = ", ".join(sorted(versions)) or "none"
        raise NotServed(f"{who} serves no {', '.join(lacking)} in a known version of {GROUP} (it has {has}): {_SINCE}")
    return found


def collection_path(kind: Kind, version: str, namespace: str = "") -> str:
    """The path of a kind's objects, of one namespace or of all."""
    facts = FACTS[kind]
    root = ("api", version) if facts.group == CORE else ("apis", facts.group, version)
    inner = ("namespaces", namespace) if facts.namespaced and namespace else ()
    return path_of(*root, *inner, facts.plural)


def object_path(kind: Kind, version: str, namespace: str, name: str) -> str:
    """The path of one object."""
    return f"{collection_path(kind, version, namespace)}{path_of(name)}"
