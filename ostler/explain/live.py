"""Reads a cluster's objects through its API server, with as few rights and requests as an answer needs.

Lists come in pages. If the server refuses a kind of object, a note names the missing right instead of an error: an
answer without taint rules is worth more than none. Pods are many and hold secrets: without ``everything`` only the pods
of the question are read; a device's holder is known from its claim.

Fields that no answer needs are dropped before they are decoded (managed fields, parameters of drivers, images of nodes,
variables of containers): they are most of the answer, and users may write anything into them. Parameters, which ostler
may refuse, are read of classes, and one by one of the claims and templates that the answer is about. An object that
cannot be read is left out, or a part of it, and the state names it: it must not cost everybody's answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from driver.resource_api.lists import FIX
from kube.bodies import JsonObject, object_at, path_of, text_at
from kube.collection import Collection, Listing, ReadClient, read_whole
from kube.discovery import ObjectGetter, served, server_version
from kube.errors import BadAnswer, Forbidden, NotFound
from kube.json_stream import METADATA, Fields
from scheduling.api.versions import to_v1
from scheduling.explain.extended import asks_of
from scheduling.explain.nodes import ENDED
from scheduling.explain.state import (
    CORE,
    FACTS,
    GROUP,
    SHOWN,
    DevicesNotServed,
    Kind,
    MissingKind,
    Objects,
    State,
    key_of,
    objects_at,
)

_PREFERRED = ("v1", "v1beta2", "v1beta1", "v1alpha3")
_NEEDED = (Kind.SLICE, Kind.CLAIM, Kind.CLASS)


def served_versions(client: ObjectGetter, server: str, release: str) -> dict[Kind, str]:
    """The version of every kind that is served; raises ``DevicesNotServed`` and ``kube.errors.RequestError``."""
    found = dict.fromkeys((Kind.NODE, Kind.POD), "v1")
    who = f"{server} ({release})" if release else server
    known = served(client, GROUP, _PREFERRED)
    if not known.has_group:
        raise DevicesNotServed(f"{who} does not serve the API group {GROUP}: {FIX}")
    for version, plurals in known.found.items():
        for kind, facts in FACTS.items():
            # The claims and classes of v1alpha3 are another API, which went with Kubernetes 1.31.
            old = version == "v1alpha3" and kind is not Kind.TAINT_RULE
            if facts.group == GROUP and facts.plural in plurals and not old:
                found.setdefault(kind, version)
    if lacking := [FACTS[kind].plural for kind in _NEEDED if kind not in found]:
        has = ", ".join(sorted(known.versions)) or "none"
        raise DevicesNotServed(
            f"{who} serves no {', '.join(lacking)} in a known version of {GROUP} (it has {has}): {FIX}"
        )
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


PAGE = 500
SLICE_PAGE = 100
"""Slices are large: one may have 128 devices, about 250 KiB."""

_CONFIG: Fields = {"opaque": {"driver": True, "parameters": {}}, "*": True}
_CLAIM_SPEC: Fields = {"devices": {"config": _CONFIG, "*": True}, "*": True}
_CONTAINER: Fields = {"name": True, "restartPolicy": True, "resources": True}
_NODE_STATUS: Fields = {"conditions": True, "allocatable": True, "capacity": True}
_FIELDS: dict[Kind, Fields] = {
    Kind.SLICE: {"spec": True},
    Kind.CLAIM: {
        "spec": _CLAIM_SPEC,
        "status": {
            "allocation": {"devices": {"config": _CONFIG, "*": True}, "*": True},
            "devices": {"data": False, "*": True},
            "*": True,
        },
    },
    Kind.CLASS: {"spec": True},
    Kind.NODE: {"spec": True, "status": _NODE_STATUS},
    Kind.POD: {
        "spec": {"containers": _CONTAINER, "initContainers": _CONTAINER, "volumes": False, "*": True},
        "status": True,
    },
    Kind.TEMPLATE: {"spec": {"spec": _CLAIM_SPEC, "*": True}},
    Kind.TAINT_RULE: {"spec": True},
}
"""The decoded fields of each kind in a list, beside its metadata; omitted parameters are ``{}``."""
_WITH_PARAMETERS: dict[Kind, Fields] = {
    **_FIELDS,
    Kind.CLAIM: {**_FIELDS[Kind.CLAIM], "spec": True},
    Kind.TEMPLATE: {"spec": True},
}
"""The same for one object that an answer is about."""
MOST_PARAMETERS = 64
"""Claims and templates whose parameters are read; pods use a few."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ClusterScope:
    """The question: names of pods and claims in ``namespace``; ``everything``: all that a snapshot keeps.

    ``running``: with ``everything``, also the pods on nodes without devices, for the resources that they use there.
    """

    namespace: str = "default"
    pods: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    everything: bool = False
    running: bool = False


def read_cluster(client: ReadClient, server: str, wanted: ClusterScope, progress: Progress = lambda _: None) -> State:
    """All objects that an answer needs; ``server``: its address, for people.

    Raises ``DevicesNotServed``, and ``kube.errors.RequestError`` if the server does not answer at all.
    """
    release = server_version(client)
    reader = _Reader(client, served_versions(client, server, release), wanted, progress)
    for kind in (Kind.CLASS, Kind.SLICE, Kind.TAINT_RULE, Kind.NODE):
        reader.list_whole(kind)
    reader.list_claims()
    if wanted.everything:
        reader.list_whole(Kind.TEMPLATE)
        reader.list_whole(Kind.POD, (lambda _: True) if wanted.running else uses_devices)
    else:
        reader.list_inner(Kind.TEMPLATE)
        reader.read_pods()
        reader.read_parameters()
    return reader.state(server, release)


class _Reader:
    def __init__(self, client: ReadClient, versions: dict[Kind, str], wanted: ClusterScope, progress: Progress) -> None:
        self._client = client
        self._versions = versions
        self._wanted = wanted
        self._progress = progress
        self._objects: dict[Kind, list[JsonObject]] = {kind: [] for kind in Kind}
        self._missing: list[MissingKind] = []
        self._truncated: list[str] = []
        self._whole: set[Kind] = set()
        self._partly: set[Kind] = set()
        """Kinds with an object that could not be read."""

    def state(self, server: str, release: str) -> State:
        objects = {FACTS[kind].field: tuple(found) for kind, found in self._objects.items()}
        return State(
            server,
            release,
            **objects,
            truncated=tuple(self._truncated),
            missing=tuple(self._missing),
            whole=frozenset(self._whole),
        )

    def list_whole(self, kind: Kind, keep: Callable[[JsonObject], bool] = lambda _: True) -> bool:
        """All objects of a kind, in all namespaces; returns whether they may be read."""
        try:
            self._objects[kind] = self._list(kind, "", keep)
        except Forbidden as error:
            self._missing.append(_forbidden(kind, "list", "", error))
            return False
        if kind not in self._partly:
            self._whole.add(kind)
        return True

    def list_inner(self, kind: Kind) -> None:
        """The objects of a kind in the question's namespace."""
        try:
            self._objects[kind] = self._list(kind, self._wanted.namespace, lambda _: True)
        except Forbidden as error:
            self._missing.append(_forbidden(kind, "list", self._wanted.namespace, error))

    def list_claims(self) -> None:
        """All claims, for the devices that they hold; if the list is forbidden, those of the namespace."""
        if self.list_whole(Kind.CLAIM):
            return
        refused = self._missing.pop()
        self.list_inner(Kind.CLAIM)
        if not any(missing.kind is Kind.CLAIM for missing in self._missing):
            self._truncated.append(
                f"claims outside namespace {self._wanted.namespace} could not be read, so devices that they hold "
                f"look free: {refused}"
            )

    def read_pods(self) -> None:
        """The pods of the question, and those that wait for its claims."""
        namespace = self._wanted.namespace
        asked = [c for c in self._objects[Kind.CLAIM] if key_of(Kind.CLAIM, c) in self._asked_claims()]
        owners = [(namespace, text_at(owner, "name")) for claim in asked for owner in _owning_pods(claim)]
        found: dict[tuple[str, str], JsonObject] = {}
        try:
            if self._wanted.claims:
                waiting = self._list(Kind.POD, namespace, uses_devices, {"fieldSelector": "status.phase=Pending"})
                found = {key_of(Kind.POD, pod): pod for pod in waiting}
        except Forbidden as error:
            self._missing.append(_forbidden(Kind.POD, "list", namespace, error))
        try:
            self._get_pods([*((namespace, name) for name in self._wanted.pods), *owners], found)
        except Forbidden as error:
            self._missing.append(_forbidden(Kind.POD, "get", namespace, error))
        self._objects[Kind.POD] = list(found.values())

    def read_parameters(self) -> None:
        """The parameters of the claims and templates that the answer is about; unreadable ones stay out."""
        used = self._asked_used()
        found = [
            (kind, place)
            for kind in (Kind.CLAIM, Kind.TEMPLATE)
            for place, body in enumerate(self._objects[kind])
            if (kind, *key_of(kind, body)) in used and _is_configured(kind, body)
        ]
        for kind, place in found[:MOST_PARAMETERS]:
            namespace, name = key_of(kind, self._objects[kind][place])
            path = object_path(kind, self._versions[kind], namespace, name)
            try:
                body = self._client.get(path, fields=_fields(kind, _WITH_PARAMETERS))
            except (NotFound, Forbidden, BadAnswer):
                continue  # The answer then says nothing about the parameters; the object itself comes from its list.
            self._objects[kind][place] = self._trimmed(kind, body)

    def _asked_used(self) -> set[tuple[Kind, str, str]]:
        """Kind, namespace and name of the question's claims, and of its pods' claims and templates."""
        used = {(Kind.CLAIM, *key) for key in self._asked_claims()}
        for pod in self._objects[Kind.POD]:
            namespace, _ = key_of(Kind.POD, pod)
            references = objects_at(pod, "spec", "resourceClaims")
            for one in (*references, *objects_at(pod, "status", "resourceClaimStatuses")):
                used.add((Kind.CLAIM, namespace, text_at(one, "resourceClaimName")))
            used |= {(Kind.TEMPLATE, namespace, text_at(one, "resourceClaimTemplateName")) for one in references}
        return used

    def _asked_claims(self) -> set[tuple[str, str]]:
        return {(self._wanted.namespace, name) for name in self._wanted.claims}

    def _get_pods(self, names: Iterable[tuple[str, str]], found: dict[tuple[str, str], JsonObject]) -> None:
        for namespace, name in names:
            if (namespace, name) in found or not name:
                continue
            self._progress(f"reading pods ({len(found)} so far)" if found else "reading pods")
            try:
                path = object_path(Kind.POD, self._versions[Kind.POD], namespace, name)
                body = self._client.get(path, fields=_fields(Kind.POD))
            except NotFound:
                continue  # It was deleted since its claim was read, or the name is wrong, which the question reports.
            found[(namespace, name)] = self._trimmed(Kind.POD, body)

    def _list(
        self, kind: Kind, namespace: str, keep: Callable[[JsonObject], bool], query: dict[str, str] | None = None
    ) -> list[JsonObject]:
        version = self._versions.get(kind)
        if version is None:
            # The cluster does not have the kind, so it has no object of it.
            return []

        def read(body: JsonObject) -> JsonObject:
            return self._trimmed(kind, body) if keep(body) else {}

        def progress(count: int) -> None:
            self._progress(f"reading {FACTS[kind].plural}" + (f" ({count} so far)" if count else ""))

        source = Collection(self._client, collection_path(kind, version, namespace), query, read, _fields(kind))
        listing = read_whole(source, SLICE_PAGE if kind is Kind.SLICE else PAGE, progress=progress)
        if listing.unread:
            self._partly.add(kind)
        self._truncated += _left_out(kind, listing)
        return list(listing.objects)

    def _trimmed(self, kind: Kind, body: JsonObject) -> JsonObject:
        facts, version = FACTS[kind], self._versions[kind]
        api_version = f"{facts.group}/{version}" if facts.group else version
        named: JsonObject = {**body, "apiVersion": api_version, "kind": kind.value}
        return cast("JsonObject", to_v1(named)) if facts.group == GROUP else named


def _fields(kind: Kind, of: Mapping[Kind, Fields] = _FIELDS) -> Fields:
    return {"metadata": METADATA, **of[kind]}


def _is_configured(kind: Kind, body: JsonObject) -> bool:
    """Whether a claim or template has configurations for drivers."""
    spec = object_at(body, "spec", "spec") if kind is Kind.TEMPLATE else object_at(body, "spec")
    return bool(objects_at(spec, "devices", "config"))


def _left_out(kind: Kind, listing: Listing) -> list[str]:
    """A sentence for each object that is incomplete, at most ``SHOWN``."""
    found = [f"{kind} {each}, so it is left out" for each in listing.unread]
    found += [f"{kind} {each}" for each in listing.pruned]
    more = [f"and {len(found) - SHOWN} more of the kind {kind}"] if len(found) > SHOWN else []
    return found[:SHOWN] + more


def uses_devices(pod: JsonObject) -> bool:
    """Whether a pod has claims, or one for its extended resources, or asks for such resources and has not ended."""
    spec, status = object_at(pod, "spec"), object_at(pod, "status")
    if spec.get("resourceClaims") or status.get("extendedResourceClaimStatus"):
        return True
    return status.get("phase") not in ENDED and bool(asks_of(pod))


def _owning_pods(claim: JsonObject) -> Objects:
    owners = objects_at(claim, "metadata", "ownerReferences")
    return tuple(owner for owner in owners if text_at(owner, "kind") == Kind.POD)


def _forbidden(kind: Kind, verb: str, namespace: str, error: Forbidden) -> MissingKind:
    facts = FACTS[kind]
    where = f" in namespace {namespace}" if namespace else ""
    role = "Role" if namespace else "ClusterRole"
    group = f"API group {facts.group}" if facts.group else 'API group ""'
    return MissingKind(
        kind,
        f"{facts.plural}{where} cannot be read: {error.message}",
        f"grant your account the verb {verb} on {facts.plural} of the {group} with a {role}",
    )
