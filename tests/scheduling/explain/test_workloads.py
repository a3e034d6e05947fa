"""Workloads of a cluster: one pod as their template makes it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kube.bodies import JsonObject
from kube.errors import Forbidden, NotFound
from ostler.explain.workloads import WORKLOADS, read_workload, workload_path
from scheduling.explain.state import BadQuestion


class _Server:
    """Answers every question with one object, or an error."""

    def __init__(self, answer: JsonObject | Exception) -> None:
        self.answer = answer
        self.paths: list[str] = []

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        self.paths.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_workload_is_read_by_its_own_path_and_stands_for_one_pod() -> None:
    template: JsonObject = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}, "other": 1}
    metadata: JsonObject = {"name": "web", "namespace": "team", "uid": "u"}
    server = _Server({"metadata": metadata, "spec": {"replicas": 4, "template": template}})
    pod, note = read_workload(server, "Deployment", "team", "web")
    assert server.paths == ["/apis/apps/v1/namespaces/team/deployments/web"]
    assert pod["metadata"] == {"name": "web", "namespace": "team", "labels": {"app": "web"}}
    assert note == "Deployment web: asked for 1 of its 4 pods; each of them asks for the same"


def test_every_kind_has_its_path() -> None:
    assert workload_path("CronJob", "a", "b") == "/apis/batch/v1/namespaces/a/cronjobs/b"
    assert workload_path("ReplicationController", "a", "b") == "/api/v1/namespaces/a/replicationcontrollers/b"
    assert len({workload_path(kind, "a", "b") for kind in WORKLOADS}) == len(WORKLOADS)


def test_what_cannot_be_read_is_told_with_what_to_do() -> None:
    with pytest.raises(BadQuestion, match=r"there is no Job team/x; check name and namespace \(-n\)"):
        read_workload(_Server(NotFound("GET", "/x", 404, "NotFound", "gone")), "Job", "team", "x")
    with pytest.raises(BadQuestion, match=r"Job team/x cannot be read: you may not get jobs\.batch there; ask about"):
        read_workload(_Server(Forbidden("GET", "/x", 403, "Forbidden", "no")), "Job", "team", "x")
    with pytest.raises(BadQuestion, match="Job team/x has no pod template"):
        read_workload(_Server({"metadata": {"name": "x"}, "spec": {}}), "Job", "team", "x")
