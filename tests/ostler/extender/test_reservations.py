"""Random lives of Workloads and pods: cells are held for those that are ready, whatever Kueue does, and never twice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.making.extender import RunningExtender, cells, extender
from tests.making.extender_cluster import ClusterApi, node, pod
from tests.making.kueue import CHECK, admission_check, pod_set, workload
from tests.waiting import until

NODES = ("n0", "n1", "n2")
STEPS = 40


class Queue:
    """Kueue as far as it changes Workloads, with random decisions."""

    def __init__(self, api: ClusterApi, running: RunningExtender, seed: int) -> None:
        self.random = random.Random(seed)
        self.api = api
        self.running = running
        self.number = 0
        self.pods: set[str] = set()

    def step(self) -> None:
        """One event, and what must be true once it has arrived."""
        self.random.choice((self.submit, self.submit, self.end, self.ask_again, self.add_pod, self.remove_pod))()
        until(lambda: not self.states("Pending"), "every check is answered")
        until(lambda: self.needed() == set(self.running.groups()), "cells are held for those that need them")
        # A group that preempts has reserved the cells that its victims still use.
        for is_preempting in (False, True):
            taken = [
                (where, index)
                for each in self.running.groups().values()
                for where, indices in each["physicalPlacement"].items()
                for index in indices
                if (each["state"] == "Preempting") is is_preempting
            ]
            assert len(taken) == len(set(taken))

    def states(self, *wanted: str) -> list[str]:
        """The Workloads whose check says one of these."""
        return [
            each["metadata"]["name"]
            for each in self.api.all("Workload")
            if each["status"]["admissionChecks"][0]["state"] in wanted
        ]

    def needed(self) -> set[str]:
        """The groups that must be there."""
        bound = {each["metadata"]["name"] for each in self.api.all("Pod") if each["spec"].get("nodeName")}
        return {f"team/{name}" for name in self.states("Ready")} | {f"default/{name}" for name in bound}

    def submit(self) -> None:
        """A new Workload with quota."""
        self.number += 1
        size = self.random.choice((1, 2, 4, 8))
        spec: dict[str, Any] = {"priority": self.random.choice((-1, 0, 5)), "virtualCluster": self.random.choice("AB")}
        count = self.random.choice((1, 1, 2, 3))
        self.api.put(workload(f"w{self.number}", pod_set(count=count, leaves=size, **spec)))

    def end(self) -> None:
        """A Workload is deleted, evicted or finished."""
        if not (names := [each["metadata"]["name"] for each in self.api.all("Workload")]):
            return
        name = self.random.choice(names)
        if self.random.random() < 0.5:
            self.api.delete("Workload", name, "team")
            return
        self.change(name, "Pending", has_quota=False)
        # What Kueue has evicted has no answer until it has quota again.
        until(lambda: f"team/{name}" not in self.running.groups(), "its cells are free")
        self.api.delete("Workload", name, "team")

    def ask_again(self) -> None:
        """A Workload that was sent back has quota again."""
        if names := self.states("Retry"):
            self.change(self.random.choice(names), "Pending", has_quota=True)

    def change(self, name: str, state: str, *, has_quota: bool) -> None:
        """Write the status of a Workload as Kueue does."""
        body = self.api.get("Workload", name, "team")
        assert body is not None
        conditions = [{"type": "QuotaReserved", "status": str(has_quota)}]
        status = {**body["status"], "conditions": conditions, "admissionChecks": [{"name": CHECK, "state": state}]}
        self.api.put({**body, "status": status})

    def add_pod(self) -> None:
        """A pod without a job."""
        self.number += 1
        body = pod(
            f"p{self.number}",
            self.random.choice((1, 4, 8)),
            vc=self.random.choice("AB"),
            priority=self.random.choice((-1, 0, 9)),
        )
        self.running.add(body)
        answer = self.running.filter(body, *NODES)
        assert answer["Error"] == ""
        if answer["NodeNames"]:
            assert self.running.bind(body, answer["NodeNames"][0]) == ""
            self.running.settle()
            self.pods.add(body["metadata"]["name"])
        else:
            self.api.delete("Pod", body["metadata"]["name"], "default")
            self.running.settle()

    def remove_pod(self) -> None:
        """It ends."""
        if self.pods:
            name = self.random.choice(sorted(self.pods))
            self.pods.remove(name)
            self.api.delete("Pod", name, "default")
            self.running.settle()


@pytest.mark.parametrize("seed", range(2))
def test_cells_are_held_for_ready_workloads_alone_and_never_twice(tmp_path: Path, seed: int) -> None:
    with ClusterApi([*map(node, NODES), admission_check()]) as api:
        configuration = cells(len(NODES), A=2, B=1)
        with extender(tmp_path, api, configuration, is_for_kueue=True) as running:
            queue = Queue(api, running, seed)
            for _ in range(STEPS):
                queue.step()
            # A group that has to preempt has no cells on record.
            groups = {name: each for name, each in running.groups().items() if each["state"] != "Preempting"}
            before = {name: each["physicalPlacement"] for name, each in groups.items()}
        with extender(tmp_path, api, configuration, is_for_kueue=True) as running:
            restored = {name: each["physicalPlacement"] for name, each in running.groups().items()}
            assert before.items() <= restored.items()
            queue.running = running
            queue.step()
            for each in api.all("Workload"):
                api.delete("Workload", each["metadata"]["name"], "team")
            for name in sorted(queue.pods):
                api.delete("Pod", name, "default")
            until(lambda: not running.groups(), "nothing is left")
