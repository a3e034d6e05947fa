"""`ostler extender` on a thousand nodes with eight GPUs each and 5,000 bound pods: its start, its answers, its memory.

The process is the real one. The client is a scheduler's: one kept connection, every question lists all nodes, and what
is placed is bound. The API server is a stand-in with its pages ready, so that the figures are the extender's own.
Pods and cells are those of ``bench.cells``. ``python -m bench.extender`` measures this part alone.
"""

from __future__ import annotations

import http.client
import http.server
import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from bench.cells import NODES, asked, placed, started, text
from bench.figures import percentile, significant
from bench.process import KIB, clean_environment
from scheduling.cells.configuration import read_configuration
from scheduling.cells.pod import ANNOTATION_BIND_INFO, ANNOTATION_SPEC, RESOURCE_ENABLE, PodSchedulingSpec

Json = dict[str, Any]
WAITING_PODS = 1500
WHOLE_NODES = 20
"""Questions that list whole Nodes, as without ``nodeCacheCapable``."""
PATIENCE = 300.0
"""Seconds for the extender to answer: many times what it takes, for a machine that has much else to do."""
PAGE = 500
"""Objects in a page, as the extender asks for."""
UNREAD = "x" * 1500
"""What users write and the extender does not read."""


def figures(root: Path, *, quick: bool) -> dict[str, float]:
    """Each figure in seconds or bytes. Raises ``ValueError`` if the process fails or answers wrongly."""
    root.mkdir(parents=True)
    configuration = read_configuration(text(), "cells.yaml")
    bound = [_pod(pod.name, pod.spec, notes) for pod, notes in placed(started(configuration))]
    waiting = _waiting_pods(300 if quick else WAITING_PODS)
    nodes = [_node(f"node-{number}") for number in range(NODES)]
    with _api({"/api/v1/nodes": nodes, "/api/v1/pods": [*bound, *waiting]}) as server:
        (root / "cells.yaml").write_text(f"kubeApiServerAddress: {server}\nwebServerAddress: 127.0.0.1:0\n{text()}")
        with _Extender(root) as extender:
            return {
                "extender_start_5000_pods_s": extender.seconds,
                "extender_recovery_5000_pods_s": extender.recovery,
                **_answers(extender, waiting, nodes),
                "extender_rss_bytes": extender.memory("VmRSS"),
                "extender_rss_peak_bytes": extender.memory("VmHWM"),
            }


class _Extender:
    """The process, from its start until it answers and to its end."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "ostler", "extender", "--config", str(root / "cells.yaml")]
        self._log = root / "extender.log"
        environment = {**clean_environment(), "HOME": str(root)}
        environment.pop("KUBECONFIG", None)
        began = time.perf_counter()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--log-format", "json", "--lease", "off"], env=environment, stderr=log
            )
        try:
            port = int(self._said("answering schedulers")["port"])
            self.seconds = time.perf_counter() - began
            recovered = self._said("recovered")
            self.recovery = float(recovered["seconds"])
            self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        except BaseException:
            self._process.kill()
            self._process.wait()
            raise

    def __enter__(self) -> _Extender:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.terminate()
        self._process.wait(PATIENCE)

    def ask(self, verb: str, body: bytes) -> tuple[float, Json]:
        """The seconds until the answer is there, and the answer."""
        began = time.perf_counter()
        self._connection.request("POST", f"/v1/extender/{verb}", body, {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        content = answer.read()
        return time.perf_counter() - began, json.loads(content)

    def memory(self, name: str) -> int:
        """Bytes of its memory by that name in /proc."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * KIB
        raise ValueError(f"the extender has ended: {self._log.read_text()[-2000:]}")

    def _said(self, message: str) -> Json:
        """The line of the log with that message, once it is there."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and self._process.poll() is None:
            for line in self._log.read_text().splitlines():
                with_it: Json = json.loads(line)
                if with_it["msg"] == message:
                    return with_it
            time.sleep(0.01)
        raise ValueError(f"the extender did not say {message!r}: {self._log.read_text()[-2000:]}")


def _answers(extender: _Extender, waiting: Sequence[Json], nodes: Sequence[Json]) -> dict[str, float]:
    """Filter and bind every pod that waits, as a scheduler does; then ask about whole Nodes."""
    names = [each["metadata"]["name"] for each in nodes]
    filtering, binding, whole = list[float](), list[float](), list[float]()
    for pod in waiting:
        seconds, answer = extender.ask("filter", json.dumps({"Pod": pod, "NodeNames": names}).encode())
        filtering.append(seconds)
        if answer["Error"]:
            raise ValueError(f"a filter call failed: {answer['Error']}")
        if answer["NodeNames"]:
            (node,) = answer["NodeNames"]
            own = pod["metadata"]
            body = {"PodName": own["name"], "PodNamespace": own["namespace"], "PodUID": own["uid"], "Node": node}
            seconds, bound = extender.ask("bind", json.dumps(body).encode())
            binding.append(seconds)
            if bound["Error"]:
                raise ValueError(f"a bind call failed: {bound['Error']}")
    for pod in waiting[:WHOLE_NODES]:
        seconds, _ = extender.ask("filter", json.dumps({"Pod": pod, "Nodes": {"items": nodes}}).encode())
        whole.append(seconds)
    return {
        "extender_filter_p50_s": percentile(filtering, 50),
        "extender_filter_p99_s": percentile(filtering, 99),
        "extender_filter_worst_s": max(filtering),
        "extender_filter_whole_nodes_p99_s": percentile(whole, 99),
        "extender_bind_p99_s": percentile(binding, 99),
    }


def _waiting_pods(count: int) -> list[Json]:
    chance = random.Random(2)
    found: list[Json] = []
    while len(found) < count:
        spec = asked(100_000 + len(found), chance)
        found += [_pod(f"{spec.group.name}-{index}", spec, {}) for index in range(spec.group.members[0].pod_number)]
    return found


def _pod(name: str, spec: PodSchedulingSpec, annotations: Mapping[str, str]) -> Json:
    """A pod as the API server has it, with much that the extender does not read; bound if it has a record."""
    group = {
        "name": spec.group.name,
        "members": [{"podNumber": m.pod_number, "leafCellNumber": m.leaf_cell_number} for m in spec.group.members],
    }
    wanted = {
        "virtualCluster": spec.virtual_cluster,
        "priority": spec.priority,
        "leafCellType": spec.leaf_cell_type,
        "leafCellNumber": spec.leaf_cell_number,
        "ignoreK8sSuggestedNodes": spec.ignore_suggested_nodes,
        "affinityGroup": group,
    }
    metadata = {
        "name": name,
        "namespace": "team",
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {ANNOTATION_SPEC: json.dumps(wanted), "example.com/other": UNREAD, **annotations},
        "managedFields": [{"manager": "kube-scheduler", "fieldsV1": {"f:metadata": UNREAD}}],
    }
    limits = {"nvidia.com/gpu": str(spec.leaf_cell_number), RESOURCE_ENABLE: "1"}
    container = {
        "name": "train",
        "image": "train",
        "resources": {"limits": limits},
        "env": [{"name": "E", "value": UNREAD}],
    }
    record = annotations.get(ANNOTATION_BIND_INFO, "")
    bound = {"nodeName": json.loads(record.splitlines()[0].removeprefix("node: "))} if record else {}
    status = {"phase": "Running" if record else "Pending"}
    return {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **bound}, "status": status}


def _node(name: str) -> Json:
    """A Node as the API server has it: most of it are its images."""
    images = [
        {"names": [f"registry.example.com/{number}@sha256:{number:064}"], "sizeBytes": number} for number in range(50)
    ]
    conditions = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"},
        "spec": {"providerID": name},
        "status": {"conditions": conditions, "images": images},
    }


@contextmanager
def _api(collections: Mapping[str, Sequence[Json]]) -> Iterator[str]:
    """The address of an API server with these collections, which never change."""
    pages = {
        path: [_page(objects, first) for first in range(0, len(objects), PAGE)] for path, objects in collections.items()
    }
    ended = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            query = parse_qs(url.query)
            if url.path not in pages:
                self._send(404, b"{}")
            elif "watch" in query:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.flush()
                ended.wait()
            else:
                self._send(200, pages[url.path][int(query.get("continue", ["0"])[0])])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._send(201, b"{}")

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        ended.set()
        server.shutdown()
        server.server_close()


def _page(objects: Sequence[Json], first: int) -> bytes:
    """One page of a list; its token is the number of the next one."""
    more = str(first // PAGE + 1) if first + PAGE < len(objects) else ""
    metadata = {"resourceVersion": "1", "continue": more}
    return json.dumps({"kind": "List", "metadata": metadata, "items": objects[first : first + PAGE]}).encode()


def main() -> None:
    """Measure, and show each figure."""
    with TemporaryDirectory() as folder:
        for name, value in figures(Path(folder) / "extender", quick=False).items():
            print(f"{name}: {significant(value)}")


if __name__ == "__main__":
    main()
