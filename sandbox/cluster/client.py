"""The sandbox's own client of its API server: plain HTTP, one request at a time in a thread.

Not ``kube.client``, because the sandbox does without the kubernetes library. It serves the control plane in the box and
the kubelet, each of which may lose what it asked when the server is down.
"""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from sandbox.kubelet.dra.settings import ApiFailed

Json = dict[str, Any]
Object = Mapping[str, Any]

SECONDS = 10.0
"""How long an answer may take."""
NOT_FOUND, CONFLICT = 404, 409
_MERGE = "application/merge-patch+json"
_CORE = ("nodes", "pods", "events", "namespaces")
_CLUSTER = ("nodes", "namespaces", "resourceslices", "deviceclasses", "devicetaintrules")
_VERSIONS = {"devicetaintrules": "v1beta2"}
_NAMESPACE = "default"


class RequestRefused(ApiFailed):
    """The API server's answer is an error: its status code, reason and message."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class ClusterClient:
    """Objects of the server at ``url``, by plural; those of resource.k8s.io in v1.

    Every method raises ``RequestRefused``, and ``ApiFailed`` without an answer. Namespace: "default" unless given.
    """

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc

    async def get(self, plural: str, name: str, namespace: str = _NAMESPACE) -> Json:
        """One object."""
        return await self._ask("GET", _path(plural, namespace, name))

    async def list(self, plural: str, *, namespace: str = "", fields: str = "") -> list[Json]:
        """Objects that a field selector chooses, of all namespaces unless one is given."""
        query = f"?{urlencode({'fieldSelector': fields})}" if fields else ""
        answer = await self._ask("GET", _path(plural, namespace) + query)
        # The items of a list do not say what they are.
        named = {"apiVersion": answer["apiVersion"], "kind": str(answer["kind"]).removesuffix("List")}
        return [named | each for each in answer.get("items") or ()]

    async def create(self, plural: str, obj: Object) -> Json:
        """A new object; its namespace is its own."""
        return await self._ask("POST", _path(plural, _namespace(obj)), obj)

    async def replace(self, plural: str, obj: Object, part: str = "") -> Json:
        """Replace the object with its name; ``part``: ``status`` for that alone."""
        return await self._ask("PUT", _path(plural, _namespace(obj), obj["metadata"]["name"], part), obj)

    async def patch(self, plural: str, name: str, patch: Object, namespace: str = _NAMESPACE, part: str = "") -> Json:
        """Merge a patch into an object."""
        return await self._ask("PATCH", _path(plural, namespace, name, part), patch)

    async def delete(self, plural: str, name: str, namespace: str = _NAMESPACE, *, at_once: bool = False) -> None:
        """Delete an object that is there; ``at_once``: a pod without its time to end, as its kubelet does at last."""
        options = {"gracePeriodSeconds": 0} if at_once else {}
        try:
            await self._ask("DELETE", _path(plural, namespace, name), options)
        except RequestRefused as error:
            if error.code != NOT_FOUND:
                raise

    async def delete_all(self, plural: str, fields: str) -> None:
        """Delete what a field selector chooses."""
        await self._ask("DELETE", f"{_path(plural, '')}?{urlencode({'fieldSelector': fields})}")

    async def _ask(self, verb: str, path: str, body: Object | None = None) -> Json:
        return await asyncio.to_thread(self._exchange, verb, path, body)

    def _exchange(self, verb: str, path: str, body: Object | None) -> Json:
        connection = http.client.HTTPConnection(self._host, timeout=SECONDS)
        try:
            data = None if body is None else json.dumps(body).encode()
            headers = {"Content-Type": _MERGE if verb == "PATCH" else "application/json", "User-Agent": "sandbox"}
            connection.request(verb, path, data, headers)
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ApiFailed(f"the API server at {self._host} does not answer: {error}") from error
        finally:
            connection.close()
        return _answer(response.status, text)


class KubeletApi:
    """The API server as the kubelet of the node ``node`` needs it."""

    def __init__(self, client: ClusterClient, node: str) -> None:
        self._client = client
        self._node = node

    async def claim(self, namespace: str, name: str) -> Object:
        """The claim; raises ``ApiFailed``."""
        return await self._client.get("resourceclaims", name, namespace)

    async def delete_slices(self, driver: str | None) -> None:
        """Delete the node's slices; raises ``ApiFailed``, also without a Node object."""
        await self._client.get("nodes", self._node)
        fields = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        await self._client.delete_all("resourceslices", fields)


def _path(plural: str, namespace: str, name: str = "", part: str = "") -> str:
    root = "/api/v1" if plural in _CORE else f"/apis/resource.k8s.io/{_VERSIONS.get(plural, 'v1')}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and plural not in _CLUSTER else ""
    words = (plural, quote(name, safe=""), part)
    return f"{root}{scope}/{'/'.join(word for word in words if word)}"


def _namespace(obj: Object) -> str:
    return str(obj["metadata"].get("namespace", _NAMESPACE))


def _answer(code: int, text: bytes) -> Json:
    try:
        body = json.loads(text)
    except ValueError:
        body = {"message": text.decode(errors="replace").strip()}
    if not isinstance(body, dict):
        body = {"message": f"the answer is not an object: {body!r}"}
        code = code if code >= 400 else 502
    if code >= 400:
        raise RequestRefused(code, str(body.get("reason", "")), str(body.get("message") or f"status {code}"))
    return body
