"""An extender in this process, in front of a small API server, and a client of it."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ostler.extender.process import ExtenderOptions, ExtenderProcess
from scheduling.cells.scheduler import CellScheduler
from tests.making.extender_cluster import ClusterApi, Object
from tests.waiting import until

GROUP = "hivedscheduler.microsoft.com"
NUMBERS, ALLOCATED = f"{GROUP}/pod-leaf-cell-isolation", "ostler.dev/pod-allocated-devices"
"""Annotations in which the agent of a node says which devices the kubelet has given a pod: numbers, and ids."""
PAIR = "G-NODE.G-QUAD.G-PAIR"
"""A pair of devices as a virtual cluster names it."""
NODE_OF_8: Object = {
    "cellTypes": {
        "G-PAIR": {"childCellType": "G", "childCellNumber": 2},
        "G-QUAD": {"childCellType": "G-PAIR", "childCellNumber": 2},
        "G-NODE": {"childCellType": "G-QUAD", "childCellNumber": 2, "isNodeLevel": True},
    }
}


def cells(nodes: int = 2, **owners: int) -> Object:
    """A configuration of nodes n0, n1, … with 8 devices each; ``owners``: nodes of each virtual cluster (A: all)."""
    physical = [{"cellType": "G-NODE", "cellAddress": f"n{number}"} for number in range(nodes)]
    shares = {
        name: {"virtualCells": [{"cellType": "G-NODE", "cellNumber": n}]}
        for name, n in (owners or {"A": nodes}).items()
    }
    return {"physicalCluster": {**NODE_OF_8, "physicalCells": physical}, "virtualClusters": shares}


def owning(nodes: int, **owned: tuple[str, int]) -> Object:
    """The same, with virtual clusters that own so many cells of a type each."""
    body = cells(nodes)
    body["virtualClusters"] = {
        name: {"virtualCells": [{"cellType": kind, "cellNumber": number}]} for name, (kind, number) in owned.items()
    }
    return body


def gang(name: str, pods: int, leaves: int = 8) -> dict[str, Any]:
    """The part of a scheduling spec that says which gang a pod belongs to."""
    return {"affinityGroup": {"name": name, "members": [{"podNumber": pods, "leafCellNumber": leaves}]}}


class RunningExtender:
    """An extender that answers; ``ask`` and the calls of a scheduler."""

    def __init__(self, process: ExtenderProcess, api: ClusterApi, path: Path) -> None:
        self.process = process
        self.api = api
        self.path = path

    @property
    def port(self) -> int:
        server = self.process.server
        assert server is not None
        return server.port

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, _, content = self.raw(method, path, None if body is None else json.dumps(body).encode())
        return status, json.loads(content)

    def raw(self, method: str, path: str, body: bytes | None = None) -> tuple[int, str, bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port)) as client:
            client.request(method, path, body)
            answer = client.getresponse()
            return answer.status, answer.getheader("Content-Type", ""), answer.read()

    def filter(self, pod: Object, *nodes: str) -> Any:
        _, answer = self.ask("POST", "/v1/extender/filter", {"Pod": pod, "NodeNames": list(nodes)})
        return answer

    def bind(self, pod: Object, node: str) -> str:
        own = pod["metadata"]
        body = {"PodName": own["name"], "PodNamespace": own["namespace"], "PodUID": own["uid"], "Node": node}
        _, answer = self.ask("POST", "/v1/extender/bind", body)
        return str(answer["Error"])

    def preempt(self, pod: Object, *nodes: str) -> tuple[int, Any]:
        victims = {name: {"Pods": [], "NumPDBViolations": 0} for name in nodes}
        return self.ask("POST", "/v1/extender/preempt", {"Pod": pod, "NodeNameToMetaVictims": victims})

    def place(self, pod: Object, *nodes: str) -> str:
        """Create the pod, filter and bind it as a scheduler does; the node."""
        self.add(pod)
        answer = self.filter(pod, *nodes)
        assert answer["Error"] == "", answer
        assert answer["NodeNames"], answer
        node: str = answer["NodeNames"][0]
        assert self.bind(pod, node) == ""
        self.settle()
        return node

    def add(self, *objects: Object) -> None:
        for each in objects:
            self.api.put(each)
        self.settle()

    def settle(self) -> None:
        """Wait until the extender has taken every change."""
        until(self._is_settled, "the extender is up to date")

    def _is_settled(self) -> bool:
        nodes, pods = self.process.watch.status()
        return nodes.events >= self.api.changes("nodes") and pods.events >= self.api.changes("pods")

    def groups(self) -> dict[str, Any]:
        _, found = self.ask("GET", "/v1/inspect/affinitygroups/")
        return {each["metadata"]["name"]: each["status"] for each in found["items"] or []}


@contextmanager
def extender(
    folder: Path,
    api: ClusterApi,
    configuration: Object,
    *,
    ready: bool = True,
    faults: list[BaseException] | None = None,
    **options: Any,
) -> Iterator[RunningExtender]:
    """An extender on a free port. ``ready``: wait until it answers; ``faults`` gets what ended it."""
    path = folder / f"cells-{len(list(folder.iterdir()))}.yaml"
    settings = {"kubeApiServerAddress": api.url, "webServerAddress": "127.0.0.1:0"}
    path.write_text(json.dumps({**settings, **configuration}))
    options.setdefault("identity", "replica")
    process = ExtenderProcess(ExtenderOptions(path, **options), {}, CellScheduler)
    faults = [] if faults is None else faults
    thread = threading.Thread(target=_run, args=(process, faults), daemon=True)
    thread.start()
    try:
        until(lambda: faults or (process.server is not None and (not ready or not process.why_not())), "it answers")
        assert not faults, faults
        yield RunningExtender(process, api, path)
    finally:
        process.stop()
        thread.join(60)
    assert not thread.is_alive()


def _run(process: ExtenderProcess, faults: list[BaseException]) -> None:
    try:
        process.run()
    except Exception as error:  # noqa: BLE001 - shown by the test that waits for it
        faults.append(error)


class Replica:
    """An ``ActiveReplica`` that is active or not."""

    def __init__(self, *, is_active: bool) -> None:
        self._is_active = is_active

    def may_act(self) -> bool:
        """See ``ActiveReplica``."""
        return self._is_active

    def why_not(self) -> str:
        """See ``ActiveReplica``."""
        return "" if self._is_active else "it is not the active one"
