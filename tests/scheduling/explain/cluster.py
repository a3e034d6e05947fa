"""An API server with objects in it: discovery, lists in pages, single objects, and what is forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

from kube.bodies import Json, JsonObject, object_at, text_at
from scheduling.explain.state import FACTS, GROUP, Kind, kind_of, name_of
from tests.kube.server import Asked, CannedAnswer, StubApiServer, refused


class MadeCluster:
    """``versions``: of the device API, with the plurals that each has. ``forbidden``: plurals, or paths."""

    def __init__(self, *objects: JsonObject) -> None:
        self.objects = list(objects)
        plurals = [facts.plural for facts in FACTS.values() if facts.group == GROUP]
        self.versions: dict[str, list[str]] = {"v1": plurals}
        self.forbidden: set[str] = set()
        self.expired = False
        """Whether a page after the first is no longer known."""
        self.raw: dict[str, bytes] = {}
        """Texts in objects, each with the JSON that is sent in its place: such as no decoder makes, or none at all."""

    def respond(self, asked: Asked) -> CannedAnswer:
        answer = self.answer(asked)
        body = answer.body
        for text, data in self.raw.items():
            body = body.replace(b'"%b"' % text.encode(), data)
        return replace(answer, body=body)

    def answer(self, asked: Asked) -> CannedAnswer:
        url = urlsplit(asked.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        parts = url.path.strip("/").split("/")
        if parts == ["version"]:
            return CannedAnswer.of({"gitVersion": "v1.37.0"})
        if parts[0] == "apis" and len(parts) <= 3:
            return self._discovery(parts)
        root = 2 if parts[0] == "api" else 3
        inner = parts[root:]
        namespace = inner[1] if inner[0] == "namespaces" else ""
        plural, name = (inner[2:] if namespace else inner)[0], ((inner[2:] if namespace else inner)[1:] or [""])[0]
        if plural in self.forbidden or url.path in self.forbidden:
            return refused(403, "Forbidden", f'User "ann" cannot read "{plural}"')
        if root == 3 and plural not in self.versions.get(parts[2], ()):
            return refused(404, "NotFound", "the server could not find the requested resource")
        found = [body for body in self.objects if FACTS[_kind(body)].plural == plural]
        if namespace:
            found = [body for body in found if text_at(body, "metadata", "namespace") == namespace]
        if name:
            one = next((body for body in found if name_of(body) == name), None)
            return refused(404, "NotFound", f"{name} not found") if one is None else CannedAnswer.of(one)
        if query.get("fieldSelector") == "status.phase=Pending":
            found = [body for body in found if text_at(body, "status", "phase") == "Pending"]
        return self._page(found, query)

    def _page(self, found: list[JsonObject], query: dict[str, str]) -> CannedAnswer:
        begin, limit = int(query.get("continue", "0")), int(query.get("limit", "0")) or len(found)
        if begin and self.expired:
            return refused(410, "Expired", "the continue token is too old")
        metadata = {"continue": str(begin + limit)} if begin + limit < len(found) else {}
        bare = [{key: value for key, value in body.items() if key not in ("kind", "apiVersion")} for body in found]
        return CannedAnswer.of({"metadata": metadata, "items": bare[begin : begin + limit]})

    def _discovery(self, parts: list[str]) -> CannedAnswer:
        if parts[1] != GROUP or not self.versions:
            return refused(404, "NotFound", "the server could not find the requested resource")
        if len(parts) == 2:
            return CannedAnswer.of({"versions": [{"version": version} for version in self.versions]})
        names: list[Json] = [{"name": plural} for plural in self.versions[parts[2]]]
        return CannedAnswer.of({"resources": [*names, {"name": "resourceclaims/status"}]})


def _kind(body: JsonObject) -> Kind:
    kind = kind_of(body)
    assert kind is not None
    return kind


@contextmanager
def serving(cluster: MadeCluster) -> Iterator[StubApiServer]:
    with StubApiServer() as server:
        server.respond = cluster.respond
        yield server


def paths(server: StubApiServer) -> list[str]:
    return [urlsplit(asked.path).path for asked in server.asked]


def status(body: JsonObject, **values: Json) -> JsonObject:
    return {**body, "status": {**object_at(body, "status"), **values}}
