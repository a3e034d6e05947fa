"""The resource API as the DRA door uses it: resource.k8s.io objects as v1 dicts, whatever version the server serves.

The version is decided once (``driver.resource_api.lists``). If the server answers 404 without naming the requested
object, the version may be gone, and is discovered again. So a missing object is believed only if the server names it:
an API that is off for a moment must not lead anybody to release a device because its claim seems gone. Blocking and
safe for several threads; ``driver.resource_api.async_client`` is the side for the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from driver.resource_api.lists import GROUP, ResourceList, ServedVersion, converted
from kube.bodies import JsonObject, path_of, text_at
from kube.client import STRATEGIC_PATCH
from kube.collection import Collection
from kube.discovery import server_version
from kube.errors import NotFound
from kube.json_stream import WHOLE, Fields
from scheduling.api.versions import from_v1

if TYPE_CHECKING:
    from kube.client import Client

T = TypeVar("T")


class NodeProofs(Protocol):
    """Remembers for a moment that a Node is this machine."""

    def node(self, prove: Callable[[], JsonObject]) -> JsonObject:
        """The Node as proved a moment ago, or by ``prove`` now."""


SLICES, CLAIMS = "resourceslices", "resourceclaims"
_SLICE, _CLAIM = "ResourceSlice", "ResourceClaim"

_ASKED: Fields = {"name": True, "deviceClassName": True}
CLAIM_FIELDS: Fields = {
    "metadata": {
        **dict.fromkeys(("name", "namespace", "uid", "resourceVersion"), True),
        "annotations": {"resource.kubernetes.io/pod-claim-name": True},
    },
    "spec": {"devices": {"requests": {**_ASKED, "exactly": _ASKED, "firstAvailable": _ASKED}}},
    "*": True,
}
"""The fields to keep of a claim: its identity, the names of its requests and classes, and its status.

Users write the rest, of which 1.4 MB can be 18 MB of values (250,000 finalizers, or quantities of a request); the
allocation has everything that counts. Writing a claim's status back does not change the rest, because the server takes
the status alone.
"""


class ResourceApi:
    """Slices, claims, Nodes and pods. Its ``kube.client.Client`` keeps as many connections as threads ask.

    All methods raise ``kube.errors.KubeError``: ``RequestError`` by the server's answer, ``NotServed`` if DRA is off,
    ``ConfigurationError`` if there is no credential.
    """

    def __init__(self, client: Client, *, assumed: str = "", proofs: NodeProofs | None = None) -> None:
        """``assumed``: see ``ServedVersion``. ``proofs``: what ``own_node`` asks first; None if it always reads."""
        self._client = client
        self._served = ServedVersion(client, client.server, assumed)
        self._proofs = proofs

    @property
    def server(self) -> str:
        """The API server's URL, for people."""
        return self._client.server

    def version(self) -> str:
        """The version of resource.k8s.io in use."""
        return self._served.version()

    def release(self) -> str:
        """The server's release, such as ``v1.36.0``; empty if the server refuses to say."""
        return server_version(self._client)

    def slices(self, query: Mapping[str, str] | None = None, fields: Fields = WHOLE) -> ResourceList:
        """A collection of slices, or of these ``fields`` of them, for a ``kube.reflector.Reflector``; sends no request
        yet.

        ``query`` such as ``{"fieldSelector": "spec.driver=…,spec.nodeName=…"}``. A node's identity may list and watch
        only with ``spec.nodeName=`` its own name.
        """
        return ResourceList(self._client, self._served, SLICES, _SLICE, query=query, fields=fields)

    def list_slices(self, query: Mapping[str, str] | None = None) -> tuple[JsonObject, ...]:
        """List the slices now."""
        return self.slices(query).read_whole().objects

    def claims(self, read: Callable[[JsonObject], JsonObject], fields: Fields = WHOLE) -> ResourceList:
        """The claims of all namespaces; ``read`` gets the ``fields`` of each, as they are sent, and returns what to
        keep.

        A node's identity may not list claims.
        """
        return ResourceList(self._client, self._served, CLAIMS, _CLAIM, read=read, fields=fields)

    def core(
        self,
        plural: str,
        query: Mapping[str, str],
        read: Callable[[JsonObject], JsonObject],
        fields: Fields = WHOLE,
    ) -> Collection:
        """Objects of core/v1 in all namespaces, such as ``pods``, that ``query`` selects; ``read`` as for ``claims``.

        A node's identity may list and watch pods with ``spec.nodeName=`` and nodes with ``metadata.name=`` its own
        name.
        """
        return Collection(self._client, path_of("api", "v1", plural), query, read, fields)

    def create_slice(self, body: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Create a slice; returns it as stored, or, for a dry run, as it would be stored.

        One attempt, here and below: the publisher learns about every fault, also of a busy server, and tries again
        itself.
        """
        query = {"dryRun": "All"} if dry_run else None

        def post(version: str, sent: JsonObject) -> JsonObject:
            attempts = None if dry_run else 1
            return self._client.create(_path(version, SLICES), sent, query, attempts=attempts)

        return self._written(body, post)

    def replace_slice(self, body: JsonObject) -> JsonObject:
        """Replace a slice; raises ``WriteConflict`` if it no longer has the given resourceVersion."""
        name = text_at(body, "metadata", "name")

        def put(version: str, sent: JsonObject) -> JsonObject:
            return self._client.replace(_path(version, SLICES, name), sent, attempts=1)

        return self._written(body, put, name)

    def delete_slice(self, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete a slice; raises ``NotFound`` if it is gone, ``WriteConflict`` if it is another or has changed."""
        self._asked(
            lambda version: self._client.delete(
                _path(version, SLICES, name), uid=uid, resource_version=resource_version, attempts=1
            ),
            name,
        )

    def claim(self, namespace: str, name: str, *, attempts: int | None = None) -> JsonObject | None:
        """One claim, None if the server has none with that name.

        ``attempts``: as for ``ReadClient.get``, for callers that repeat the request themselves.
        """

        def read(version: str) -> JsonObject:
            path = _claim_path(version, namespace, name)
            return converted(self._client.get(path, fields=CLAIM_FIELDS, attempts=attempts), version, _CLAIM, path)

        try:
            body = self._asked(read, name)
        except NotFound as error:
            if _names(error, name):
                return None
            raise
        return body

    def replace_claim_status(self, claim: JsonObject) -> JsonObject:
        """Replace the status of a claim; raises ``WriteConflict`` if it changed since it was read."""
        namespace, name = (text_at(claim, "metadata", key) for key in ("namespace", "name"))

        def put(version: str, sent: JsonObject) -> JsonObject:
            return self._client.replace(_claim_path(version, namespace, name, "status"), sent)

        return self._written(claim, put, name)

    def evict_pod(self, namespace: str, name: str, uid: str, condition: JsonObject) -> None:
        """Set the condition in the pod's status and delete the pod; raises ``WriteConflict`` if it has another UID.

        A node's identity may do both to pods of its own node.
        """
        path = path_of("api", "v1", "namespaces", namespace, "pods", name)
        body: JsonObject = {"metadata": {"uid": uid}, "status": {"conditions": [condition]}}
        self._client.patch(f"{path}/status", body, STRATEGIC_PATCH)
        self._client.delete(path, uid=uid)

    def annotate_pod(self, namespace: str, name: str, uid: str, annotations: Mapping[str, str]) -> None:
        """Set annotations of a pod; ``WriteConflict`` if it has another UID.

        Through its status, which takes annotations and nothing of the spec: the right to patch pods themselves would
        also be the right to change their images.
        """
        path = path_of("api", "v1", "namespaces", namespace, "pods", name)
        self._client.patch(f"{path}/status", {"metadata": {"uid": uid, "annotations": dict(annotations)}})

    def node(self, name: str) -> JsonObject:
        """A core/v1 Node; raises ``NotFound`` if there is none."""
        return self._client.get(path_of("api", "v1", "nodes", name))

    def own_node(self, name: str, check: Callable[[JsonObject], None]) -> JsonObject:
        """A Node that ``check`` accepts, which another part of the process may have read a moment ago.

        ``check`` raises ``KubeError`` for the Node of another machine.
        """

        def proved() -> JsonObject:
            node = self.node(name)
            check(node)
            return node

        return proved() if self._proofs is None else self._proofs.node(proved)

    def close(self) -> None:
        """End pending requests, waits and watches."""
        self._client.close()

    def _written(self, body: JsonObject, write: Callable[[str, JsonObject], JsonObject], name: str = "") -> JsonObject:
        """Write a v1 object; returns the stored object, as v1."""
        kind = text_at(body, "kind")

        def ask(version: str) -> JsonObject:
            answer = write(version, cast("JsonObject", from_v1(body, version)))
            return converted(answer, version, kind, _path(version, SLICES if kind == _SLICE else CLAIMS, name))

        return self._asked(ask, name)

    def _asked(self, ask: Callable[[str], T], name: str = "") -> T:
        """Ask in the served version, and once more if the server serves another one by now."""
        version = self._served.version()
        try:
            return ask(version)
        except NotFound as error:
            if name and _names(error, name):
                raise
            newer = self._served.instead_of(version)
            if newer == version:
                raise
        return ask(newer)


def _path(version: str, plural: str, name: str = "") -> str:
    return path_of("apis", GROUP, version, plural, *((name,) if name else ()))


def _claim_path(version: str, namespace: str, *name: str) -> str:
    return path_of("apis", GROUP, version, "namespaces", namespace, CLAIMS, *name)


def _names(error: NotFound, name: str) -> bool:
    """Whether a 404 is about the object with that name, and not about its kind or version."""
    return f'"{name}" not found' in error.message
