"""Which versions of the device API a cluster serves, kind by kind."""

from __future__ import annotations

from driver.resource_api.lists import FIX
from kube.discovery import Reads, served
from kube.paths import path_of
from scheduling.explain.state import CORE, FACTS, GROUP, Kind, NotServed

_PREFERRED = ("v1", "v1beta2", "v1beta1", "v1alpha3")
_NEEDED = (Kind.SLICE, Kind.CLAIM, Kind.CLASS)


def served_versions(client: Reads, server: str, release: str) -> dict[Kind, str]:
    """The version to ask for, of every kind that is served; raises ``NotServed`` and ``kube.errors.RequestError``."""
    found = dict.fromkeys((Kind.NODE, Kind.POD), "v1")
    who = f"{server} ({release})" if release else server
    known = served(client, GROUP, _PREFERRED)
    if not known.has_group:
        raise NotServed(f"{who} does not serve the API group {GROUP}: {FIX}")
    for version, plurals in known.found.items():
        for kind, facts in FACTS.items():
            # The claims and classes of v1alpha3 are another API, which went with Kubernetes 1.31.
            old = version == "v1alpha3" and kind is not Kind.TAINT_RULE
            if facts.group == GROUP and facts.plural in plurals and not old:
                found.setdefault(kind, version)
    if lacking := [FACTS[kind].plural for kind in _NEEDED if kind not in found]:
        has = ", ".join(sorted(known.versions)) or "none"
        raise NotServed(f"{who} serves no {', '.join(lacking)} in a known version of {GROUP} (it has {has}): {FIX}")
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
