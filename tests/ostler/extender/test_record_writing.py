"""Changed records reach the pods through the API server, and a replica that may not write them says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.backoff import BackoffPolicy
from kube.bodies import Json, JsonObject
from kube.errors import ServerFault
from node.clocks import SystemClocks
from ostler.extender.metrics import ExtenderMetrics
from ostler.extender.record_writing import StatusRecordWriter
from ostler.extender.wire import PodIdentity
from scheduling.cells.pod import ANNOTATION_BIND_INFO, BindInfo
from tests.making.extender import ALLOCATED, NUMBERS, PAIR, Replica, RunningExtender, extender, owning
from tests.making.extender_cluster import ClusterApi, node, pod
from tests.waiting import until


@pytest.fixture
def api() -> Iterator[ClusterApi]:
    with ClusterApi([node("n0")]) as made:
        yield made


def note(running: RunningExtender, name: str, numbers: str) -> None:
    """Write what the agent of the node writes."""
    body = running.api.get("Pod", name, "default")
    assert body is not None
    body["metadata"]["annotations"] |= {NUMBERS: numbers, ALLOCATED: numbers.replace(",", "-")}
    running.add(body)


def written(running: RunningExtender, name: str) -> Any:
    body = running.api.get("Pod", name, "default")
    assert body is not None
    return yaml.safe_load(body["metadata"]["annotations"][ANNOTATION_BIND_INFO])["leafCellIsolation"]


def test_the_process_writes_the_records_through_the_pods_status(api: ClusterApi, tmp_path: Path) -> None:
    configuration = owning(1, A=(PAIR, 1), B=(PAIR, 1))
    with extender(tmp_path, api, configuration) as running:
        running.place(pod("a", 2), "n0")
        running.place(pod("b", 2, vc="B"), "n0")
        note(running, "a", "2,3")
        note(running, "b", "0,1")
        until(lambda: (written(running, "a"), written(running, "b")) == ([2, 3], [0, 1]), "both are written")
        before = running.groups()
        assert before["default/a"]["physicalPlacement"] == {"n0": [2, 3]}
    with extender(tmp_path, api, configuration) as again:
        assert again.groups() == before


def test_a_replica_without_the_right_says_so_on_the_pod_and_goes_on(api: ClusterApi, tmp_path: Path) -> None:
    with extender(tmp_path, api, owning(1, A=(PAIR, 1), B=(PAIR, 1))) as running:
        running.place(pod("a", 2), "n0")
        api.refusals["pods/a/status"] = (403, "no right to patch")
        note(running, "a", "6,7")

        def said() -> list[str]:
            return [each["message"] for each in api.all("Event") if each["reason"] == "RecordNotWritten"]

        until(said, "an event says so")
        (message,) = said()
        assert message.startswith("The extender cannot write where this pod is now: ")
        assert "no right to patch" in message
        assert message.endswith("; let its account patch pods/status, as the chart does")
        assert running.groups()["default/a"]["physicalPlacement"] == {"n0": [6, 7]}
        api.refusals.clear()
        until(lambda: written(running, "a") == [6, 7], "it is written once it may be")


class RefusingClient:
    """Refuses each patch once, and keeps the others."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.bodies: list[Json] = []

    def patch(self, path: str, body: Json) -> JsonObject:
        if self.errors:
            raise self.errors.pop(0)
        self.bodies.append(body)
        return {}


INFO = BindInfo("n0", (0, 1), "G-NODE", ())


def test_the_newest_record_is_written_again_after_a_failure() -> None:
    fault = ServerFault("PATCH", "/", 500, "", "etcd is gone")
    client, metrics = RefusingClient(fault, RuntimeError("unexpected")), ExtenderMetrics()
    warned: list[str] = []

    class Reporter:
        def warn(self, pod: PodIdentity, reason: str, message: str) -> None:
            warned.append(message)

    writer = StatusRecordWriter(
        client,
        Reporter(),
        metrics,
        replica=Replica(is_active=True),
        clocks=SystemClocks(random=lambda: 0.0),
        policy=BackoffPolicy(first=0.001, most=0.002, longest=0.01),
    )
    writer.write_later(PodIdentity("u", "ns", "a"), INFO)
    writer.start()
    until(lambda: metrics.written.counts["failed",] == 2, "two attempts failed")
    # A fault of ours is not tried again; the next record is.
    writer.write_later(PodIdentity("v", "ns", "b"), INFO)
    until(lambda: client.bodies, "it is written")
    assert client.bodies == [{"metadata": {"uid": "v", "annotations": {ANNOTATION_BIND_INFO: INFO.write()}}}]
    writer.close()
    assert warned == []
