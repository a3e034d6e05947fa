"""Holding a conversation with an API server, and writing its answers so that two servers can be compared.

Uids, resource versions and times differ from server to server; they are replaced by the order in which they occurred.
Words about broken rules and unreadable requests are everybody's own: there code, reason, fields are compared.
"""

from __future__ import annotations

import json
import re
import ssl
import sys
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

PATIENCE = 20.0
CORE = ("Pod", "Node", "Event")
"""Their defaults are not the stand-in's business."""
WORDS_OF_ITS_OWN = (400, 415, 422)
UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
NUMBER = re.compile(r"\d{2,}")
PLACE = re.compile(r"<(uid|rv) (\d+)>")


class Conversation:
    """One server at `url`, answered with `token` if there is one."""

    def __init__(self, url: str, token: str = "") -> None:
        place = urlsplit(url)
        self._host, self._port = place.hostname or "", place.port or 443
        self._secure = place.scheme == "https"
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._seen: dict[str, list[str]] = {"uid": [], "rv": []}

    def hold(self, request: Any) -> dict[str, Any]:
        """Ask; return code and body with placeholders. A watch's body is the list of its events."""
        target = request["path"]
        if request["query"]:
            target += f"?{urlencode({name: self._filled(text) for name, text in request['query'].items()})}"
        body = None if request["body"] is None else self._filled(json.dumps(request["body"]))
        connection = self._connection()
        try:
            headers = self._headers | ({"Content-Type": request["type"]} if body else {})
            connection.request(request["method"], target, body, headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        watched = "watch" in request["query"] and response.status == 200
        if not response.headers["Content-Type"].startswith("application/json"):
            return {"code": response.status, "body": text}
        found = [json.loads(line) for line in text.splitlines()] if watched else json.loads(text)
        return {"code": response.status, "body": self._plain(found)}

    def _connection(self) -> HTTPConnection:
        if not self._secure:
            return HTTPConnection(self._host, self._port, timeout=PATIENCE)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return HTTPSConnection(self._host, self._port, timeout=PATIENCE, context=context)

    def _filled(self, text: str) -> str:
        return PLACE.sub(lambda found: self._seen[found[1]][int(found[2]) - 1], text)

    def _plain(self, value: Any, field: str = "") -> Any:
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            return {name: self._plain(part, name) for name, part in _essence(value).items()}
        if not isinstance(value, str):
            return value
        if field == "uid" and UID.fullmatch(value):
            return self._placed("uid", value)
        if field == "resourceVersion" and value.isdigit():
            return self._placed("rv", value)
        if field == "continue":
            return "<continue>"
        if TIME.fullmatch(value):
            return "<time>"
        return NUMBER.sub("<number>", UID.sub("<uid>", value)) if field == "message" else value

    def _placed(self, kind: str, value: str) -> str:
        seen = self._seen[kind]
        if value not in seen:
            seen.append(value)
        return f"<{kind} {seen.index(value) + 1}>"


def _essence(value: dict[str, Any]) -> dict[str, Any]:
    """What both servers must say alike, of an object or a part of one."""
    kind = value.get("kind", "")
    value = {name: part for name, part in value.items() if name != "managedFields"}
    if "causes" in value:
        causes = {(each.get("field", ""), each["reason"]) for each in value["causes"]}
        return value | {"causes": [list(each) for each in sorted(causes)]}
    if kind == "Status" and value.get("code") in WORDS_OF_ITS_OWN:
        return {name: part for name, part in value.items() if name != "message"}
    if "items" in value or value.get("type") == "BOOKMARK":
        # A server writes objects of its own, so the version of now is any.
        holder = value if "items" in value else value["object"]
        whole = holder | {"metadata": holder["metadata"] | {"resourceVersion": "<now>"}}
        if "items" in value:
            return whole
        return value | {"object": {name: whole[name] for name in ("apiVersion", "kind", "metadata")}}
    if kind in CORE and "metadata" in value:
        metadata = {name: part for name, part in value["metadata"].items() if name != "generation"}
        return {"kind": kind, "apiVersion": value["apiVersion"], "metadata": metadata}
    return value


def main() -> None:
    """Record: `python -m tests.sandbox.apiserver.protocol URL TOKEN`, with a fresh server of the release that is
    followed.

    It needs AlwaysAllow, --disable-admission-plugins=ServiceAccount and the other versions of resource.k8s.io; and it
    must be up for some seconds, or its history goes back to version 1 and the watch from there is answered.
    """
    from tests.sandbox.apiserver.protocol_requests import CONVERSATION

    held = Conversation(sys.argv[1], sys.argv[2])
    lines = [json.dumps({"about": request["about"], "reply": held.hold(request)}) for request in CONVERSATION]
    (Path(__file__).parent / "protocol.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
