"""An API server for the extender: nodes, pods, bindings, events, leases and volume claims, with watches.

Unlike the sandbox's it keeps objects as they are given, UIDs included, and it can hold back what watches would tell: so
recorded exchanges can be replayed exactly.
"""

from __future__ import annotations

import copy
import http.server
import json
import threading
from collections.abc import Iterable
from typing import Any
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]
KINDS = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "Lease": "leases",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "ResourceSlice": "resourceslices",
    "AdmissionCheck": "admissionchecks",
    "Workload": "workloads",
}


class ClusterApi:
    """Use it with ``with``. ``bindings``: those that arrived, with their paths."""

    def __init__(self, objects: Iterable[Object] = ()) -> None:
        self.changed = threading.Condition()
        self.bindings: list[Object] = []
        self.refusals: dict[str, tuple[int, str]] = {}
        """Status and message for writes whose path ends so."""
        self.missing: frozenset[str] = frozenset()
        """Collections that this server does not know."""
        self.is_holding = False
        self.is_away = False
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._events: list[tuple[int, str, str, Object]] = []
        self._version = 100
        self._listed: dict[str, int] = {}
        self._is_closed = False
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        for each in objects:
            self.put(each)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ClusterApi:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self._is_closed = True
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def put(self, given: Object) -> Object:
        """Create the object, or put it in the place of that of its name."""
        kind = KINDS[given["kind"]]
        body = copy.deepcopy(given)
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        with self.changed:
            self._version += 1
            body["metadata"]["resourceVersion"] = str(self._version)
            key = (kind, namespace, name)
            change = "MODIFIED" if key in self._objects else "ADDED"
            self._objects[key] = body
            self._events.append((self._version, kind, change, body))
            self.changed.notify_all()
            return body

    def go_away(self, *, is_away: bool) -> None:
        """End watches and answer nothing, or answer again."""
        with self.changed:
            self.is_away = is_away
            self.changed.notify_all()

    def delete(self, kind: str, name: str, namespace: str = "") -> None:
        with self.changed:
            self._version += 1
            body = copy.deepcopy(self._objects.pop((KINDS[kind], namespace, name)))
            body["metadata"]["resourceVersion"] = str(self._version)
            self._events.append((self._version, KINDS[kind], "DELETED", body))
            self.changed.notify_all()

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        with self.changed:
            return copy.deepcopy(self._objects.get((KINDS[kind], namespace, name)))

    def all(self, kind: str) -> list[Object]:
        with self.changed:
            return [copy.deepcopy(each) for (found, _, _), each in self._objects.items() if found == KINDS[kind]]

    def events(self, reason: str) -> list[Object]:
        """All events with this reason."""
        return [each for each in self.all("Event") if each["reason"] == reason]

    def changes(self, kind: str) -> int:
        """Changes of a kind since it was listed last."""
        with self.changed:
            after = self._listed.get(kind, 0)
            return sum(1 for version, known, _, _ in self._events if known == kind and version > after)

    def hold(self, *, is_holding: bool) -> None:
        """Keep changes from watches, or let all of them go."""
        with self.changed:
            self.is_holding = is_holding
            self.changed.notify_all()

    # For the handler.

    def listed(self, kind: str) -> Object:
        with self.changed:
            self._listed[kind] = self._version
            found = [each for (known, _, _), each in sorted(self._objects.items()) if known == kind]
            return {"kind": "List", "metadata": {"resourceVersion": str(self._version)}, "items": copy.deepcopy(found)}

    def next_events(self, kind: str, after: int) -> tuple[list[Object], int]:
        """Changes after a version, once there is one; none when the server closes."""
        with self.changed:
            while not self._is_closed and not self.is_away:
                fresh = [] if self.is_holding else [each for each in self._events if each[0] > after]
                found = [{"type": change, "object": body} for _, known, change, body in fresh if known == kind]
                if found:
                    return found, fresh[-1][0]
                self.changed.wait(1.0)
            return [], after

    def bind(self, namespace: str, name: str, path: str, body: Object) -> tuple[int, Object]:
        with self.changed:
            pod = copy.deepcopy(self._objects.get(("pods", namespace, name)))
            if pod is None:
                return 404, _status(404, "NotFound", f'pods "{name}" not found')
            if pod.get("spec", {}).get("nodeName"):
                return 409, _status(409, "Conflict", f"pod {name} is already assigned to node")
            if body["metadata"].get("uid") not in (None, pod["metadata"].get("uid")):
                return 409, _status(409, "Conflict", "Precondition failed: UID in precondition")
            self.bindings.append({"path": path, "body": body})
            pod["spec"]["nodeName"] = body["target"]["name"]
            pod["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations", {}))
            self.put(pod)
            return 201, {"kind": "Status", "status": "Success", "code": 201}

    def annotate(self, namespace: str, name: str, body: Object) -> tuple[int, Object]:
        """Take the annotations of a patch of a pod's status."""
        with self.changed:
            pod = copy.deepcopy(self._objects.get(("pods", namespace, name)))
            if pod is None:
                return 404, _status(404, "NotFound", f'pods "{name}" not found')
            if body["metadata"]["uid"] != pod["metadata"]["uid"]:
                return 409, _status(409, "Conflict", "Precondition failed: UID in precondition")
            pod["metadata"]["annotations"].update(body["metadata"]["annotations"])
            return 200, self.put(pod)

    def read(self, parts: list[str]) -> tuple[int, Object]:
        """An object, all of a kind, or what ``resource.k8s.io`` has if there are ResourceSlices."""
        kind = _kind_at(parts)
        if parts[:2] == ["apis", "resource.k8s.io"] and not kind and self.all("ResourceSlice"):
            versions = [{"groupVersion": "resource.k8s.io/v1", "version": "v1"}]
            return 200, {"versions": versions, "resources": [{"name": "resourceslices"}, {"name": "resourceclaims"}]}
        if kind in self.missing:
            return 404, _status(404, "NotFound", "the server could not find the requested resource")
        if parts[-1] == kind:
            return 200, self.listed(kind)
        name = next((key for key, value in KINDS.items() if value == kind), "Node")
        found = self.get(name, parts[-1], _namespace_at(parts))
        return (200, found) if found else (404, _status(404, "NotFound", f"{parts[-1]} not found"))

    def write(self, method: str, parts: list[str], path: str, body: Object) -> tuple[int, Object]:
        for end, (status, message) in self.refusals.items():
            if path.endswith(end):
                return status, _status(status, "Refused", message)
        namespace = _namespace_at(parts)
        if parts[-1] == "binding":
            return self.bind(namespace, parts[-2], path, body)
        if method == "PATCH" and "pods" in parts and parts[-1] == "status":
            return self.annotate(namespace, parts[-2], body)
        kind = _kind_at(parts)
        name = body.get("metadata", {}).get("name", parts[-1])
        with self.changed:
            known = self._objects.get((kind, namespace, name))
            if method == "POST" and known is not None:
                return 409, _status(409, "AlreadyExists", f"{name} exists")
            if method == "PUT" and known is None:
                return 404, _status(404, "NotFound", f"{name} not found")
            if method == "PUT" and known is not None:
                version = body["metadata"].get("resourceVersion", known["metadata"]["resourceVersion"])
                if version != known["metadata"]["resourceVersion"]:
                    return 409, _status(409, "Conflict", "the object has been modified")
            if method == "PATCH" and known is not None:
                body = {**known, **body}
                body["metadata"] = known["metadata"]
            return 201, self.put(body)


def _kind_at(parts: list[str]) -> str:
    """The collection that a path is about, empty if none."""
    return next((each for each in KINDS.values() if each in parts), "")


def _namespace_at(parts: list[str]) -> str:
    return parts[parts.index("namespaces") + 1] if "namespaces" in parts else ""


def _status(code: int, reason: str, message: str) -> Object:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


def _handler(api: ClusterApi) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            if api.is_away:
                self.close_connection = True
                return
            url = urlsplit(self.path)
            parts = [part for part in url.path.split("/") if part]
            kind, query = _kind_at(parts), parse_qs(url.query)
            if kind not in api.missing and parts[-1] == kind and query.get("watch"):
                self._watch(kind, int(query["resourceVersion"][0]))
            else:
                self._send(*api.read(parts))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if api.is_away:
                self.close_connection = True
                return
            parts = [part for part in urlsplit(self.path).path.split("/") if part]
            self._send(*api.write(self.command, parts, self.path, body))

        do_PUT = do_PATCH = do_POST  # noqa: N815 - the names are http.server's

        def _watch(self, kind: str, after: int) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                while True:
                    events, after = api.next_events(kind, after)
                    if not events:
                        break
                    data = b"".join(json.dumps(each).encode() + b"\n" for each in events)
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
                    self.wfile.flush()
                self.wfile.write(b"0\r\n\r\n")
            except OSError:
                self.close_connection = True

        def _send(self, status: int, body: Object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def node(name: str, *, is_ready: bool = True) -> Object:
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    return {"kind": "Node", "metadata": {"name": name, "uid": f"node-{name}"}, "status": {"conditions": conditions}}


def pod(name: str, leaves: int = 8, *, vc: str = "A", priority: int = 0, node: str = "", **more: Any) -> Object:
    """A Pod that wants cells. ``more``: ``spec`` of its annotation, ``pod_spec``, ``annotations``."""
    spec = {
        "virtualCluster": vc,
        "priority": priority,
        "leafCellType": "G",
        "leafCellNumber": leaves,
        **more.get("spec", {}),
    }
    annotations = {"hivedscheduler.microsoft.com/pod-scheduling-spec": json.dumps(spec), **more.get("annotations", {})}
    limits = {"hivedscheduler.microsoft.com/pod-scheduling-enable": "1"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"containers": containers, **({"nodeName": node} if node else {}), **more.get("pod_spec", {})},
        "status": {"phase": "Pending"},
    }
