"""A cluster's objects, read through its API server with as few rights and requests as an answer takes.

Lists come in pages. What the server does not let us read is a note with the right that is missing, not an end: an
answer without taint rules is worth more than none. Pods are many and hold secrets: without ``everything`` only those
are read that are asked about; who holds a device is known from its claim.

What no answer needs is dropped when it is read (managed fields, images of nodes), since it is most of the memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

from driver.versions import to_v1
from kube.bodies import JsonObject, object_at, text_at
from kube.discovery import Reads, server_version
from kube.errors import Forbidden, Gone, NotFound
from ostler.explain.asking.extended import asks_of
from ostler.explain.kinds import FACTS, GROUP, Kind, key_of, objects_at
from ostler.explain.reading.discovery import collection_path, object_path, served_versions
from ostler.explain.state import Missing, Objects, State

PAGE = 500
SLICE_PAGE = 100
"""Slices are large: one may have 128 devices, about 250 KiB."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked about: names of pods and claims in ``namespace``; ``everything``: all that a snapshot keeps."""

    namespace: str = "default"
    pods: tuple[str, ...] = ()
    claims: tuple[str, ...] = ()
    everything: bool = False


def read_cluster(client: Reads, server: str, wanted: Wanted, progress: Progress = lambda _: None) -> State:
    """All objects that an answer takes; ``server``: its address, for people.

    Raises ``NotServed``, and ``kube.errors.RequestError`` where the server cannot be asked at all.
    """
    release = server_version(client)
    reader = _Reader(client, served_versions(client, server, release), wanted, progress)
    for kind in (Kind.CLASS, Kind.SLICE, Kind.TAINT_RULE, Kind.NODE):
        reader.list_whole(kind)
    reader.list_claims()
    if wanted.everything:
        reader.list_whole(Kind.TEMPLATE)
        reader.list_whole(Kind.POD, uses_devices)
    else:
        reader.list_inner(Kind.TEMPLATE)
        reader.read_pods()
    return reader.state(server, release)


class _Reader:
    def __init__(self, client: Reads, versions: dict[Kind, str], wanted: Wanted, progress: Progress) -> None:
        self._client = client
        self._versions = versions
        self._wanted = wanted
        self._progress = progress
        self._objects: dict[Kind, list[JsonObject]] = {kind: [] for kind in Kind}
        self._missing: list[Missing] = []
        self._truncated: list[str] = []
        self._whole: set[Kind] = set()

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

    def list_whole(self, kind: Kind, keep: Callable[[JsonObject], bool] = lambda _: True) -> None:
        """All objects of a kind, in all namespaces."""
        try:
            self._objects[kind] = self._list(kind, "", keep)
        except Forbidden as error:
            self._missing.append(_forbidden(kind, "list", "", error))
        else:
            self._whole.add(kind)

    def list_inner(self, kind: Kind) -> None:
        """The objects of a kind in the namespace that is asked about."""
        try:
            self._objects[kind] = self._list(kind, self._wanted.namespace, lambda _: True)
        except Forbidden as error:
            self._missing.append(_forbidden(kind, "list", self._wanted.namespace, error))

    def list_claims(self) -> None:
        """All claims, for the devices that they hold; where that is forbidden, those of the namespace."""
        self.list_whole(Kind.CLAIM)
        if Kind.CLAIM in self._whole:
            return
        refused = self._missing.pop()
        self.list_inner(Kind.CLAIM)
        if not any(missing.kind is Kind.CLAIM for missing in self._missing):
            self._truncated.append(
                f"claims of other namespaces than {self._wanted.namespace} are not known, so devices that they hold "
                f"look free: {refused}"
            )

    def read_pods(self) -> None:
        """The pods asked about, and those that wait for the claims asked about."""
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

    def _asked_claims(self) -> set[tuple[str, str]]:
        return {(self._wanted.namespace, name) for name in self._wanted.claims}

    def _get_pods(self, names: Iterable[tuple[str, str]], found: dict[tuple[str, str], JsonObject]) -> None:
        for namespace, name in names:
            if (namespace, name) in found or not name:
                continue
            self._progress(f"reading pods ({len(found)} so far)" if found else "reading pods")
            try:
                body = self._client.get(object_path(Kind.POD, self._versions[Kind.POD], namespace, name))
            except NotFound:
                continue  # It went since its claim was read, or it is a name that the question finds to be wrong.
            found[(namespace, name)] = self._trimmed(Kind.POD, body)

    def _list(
        self, kind: Kind, namespace: str, keep: Callable[[JsonObject], bool], query: dict[str, str] | None = None
    ) -> list[JsonObject]:
        version = self._versions.get(kind)
        if version is None:
            # The cluster does not have the kind, so it has no object of it.
            return []
        path = collection_path(kind, version, namespace)
        page = str(SLICE_PAGE if kind is Kind.SLICE else PAGE)
        try:
            return self._pages(kind, path, keep, {**(query or {}), "limit": page})
        except Gone:
            # The list took longer than the server remembers its beginning; all at once it cannot.
            return self._pages(kind, path, keep, query or {})

    def _pages(
        self, kind: Kind, path: str, keep: Callable[[JsonObject], bool], query: dict[str, str]
    ) -> list[JsonObject]:
        found: list[JsonObject] = []
        more = ""
        while True:
            self._progress(f"reading {FACTS[kind].plural}" + (f" ({len(found)} so far)" if found else ""))
            answer = self._client.get(path, {**query, "continue": more} if more else query)
            found += (self._trimmed(kind, body) for body in objects_at(answer, "items") if keep(body))
            last, more = more, text_at(answer, "metadata", "continue")
            if not more or more == last:
                return found

    def _trimmed(self, kind: Kind, body: JsonObject) -> JsonObject:
        facts, version = FACTS[kind], self._versions[kind]
        metadata = {key: value for key, value in object_at(body, "metadata").items() if key != "managedFields"}
        named: JsonObject = {
            **body,
            "apiVersion": f"{facts.group}/{version}" if facts.group else version,
            "kind": kind.value,
            "metadata": metadata,
        }
        if kind is Kind.NODE:
            kept = ("conditions", "allocatable", "capacity")
            status = {key: value for key, value in object_at(body, "status").items() if key in kept}
            return {**named, "status": status}
        return cast("JsonObject", to_v1(named)) if facts.group == GROUP else named


def uses_devices(pod: JsonObject) -> bool:
    """Whether a pod has claims, or one for its extended resources, or waits for such resources."""
    spec, status = object_at(pod, "spec"), object_at(pod, "status")
    if spec.get("resourceClaims") or status.get("extendedResourceClaimStatus"):
        return True
    return not spec.get("nodeName") and bool(asks_of(pod))


def _owning_pods(claim: JsonObject) -> Objects:
    owners = objects_at(claim, "metadata", "ownerReferences")
    return tuple(owner for owner in owners if text_at(owner, "kind") == Kind.POD)


def _forbidden(kind: Kind, verb: str, namespace: str, error: Forbidden) -> Missing:
    facts = FACTS[kind]
    where = f" in namespace {namespace}" if namespace else ""
    role = "Role" if namespace else "ClusterRole"
    group = f"API group {facts.group}" if facts.group else 'API group ""'
    return Missing(
        kind,
        f"{facts.plural}{where} are not known: {error.message}",
        f"give your account the verb {verb} on {facts.plural} of the {group} by a {role}",
    )
