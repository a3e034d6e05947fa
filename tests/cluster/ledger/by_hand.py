"""A scheduler by hand: it decides by what it saw a moment ago, whenever a test wants it to.

The scheduler's own view is behind by moments that no test can choose. So a pod with a gate waits until the test has
allocated its claim as a scheduler would that has not heard of the latest news; the real one then binds the pod, as
it does with any claim that is allocated. A pod that is let go without that is the real scheduler's alone.
"""

from __future__ import annotations

from typing import Any

from tests.cluster.dra.claims import CLAIMS, DRIVER
from tests.cluster.rig.api import MERGE, Object, RigApi
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.pods import PODS, RigPods
from tests.cluster.rig.processes import wait_until

JOBS = "/apis/batch/v1/namespaces/default/jobs"
GATE: Object = {"schedulingGates": [{"name": "ostler.dev/test"}]}
"""Of a pod's spec: it waits until it is let go."""
EVICTED_IS_NO_FAILURE: Object = {
    "backoffLimit": 0,
    "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
}
"""Of a Job's spec: evictions do not count, and any other failure is the end."""


class ByHand:
    """Jobs of one pod, and the scheduling of their pods."""

    def __init__(self, api: RigApi, node: RigNode, pods: RigPods) -> None:
        self._api = api
        self._node = node
        self._pods = pods

    def job(self, name: str, pod: Object, **spec: Any) -> str:
        """Create a Job of this pod; its name. ``spec`` is more of the Job's."""
        labels = {**pod["metadata"].get("labels", {}), "job": name}
        template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name},
            "spec": {"template": template, **spec},
        }
        self._api.create(JOBS, body)
        return name

    def pods_of(self, job: str) -> list[Object]:
        """The pods of a Job that are there."""
        return self._api.items(f"{PODS}?labelSelector=job={job}")

    def next_pod(self, job: str, *before: Object) -> Object:
        """The pod of a Job that came after those ``before``, as soon as there is one."""
        known = {one["metadata"]["uid"] for one in before}

        def new() -> list[Object]:
            return [one for one in self.pods_of(job) if one["metadata"]["uid"] not in known]

        wait_until(f"Job {job} has another pod", lambda: bool(new()))
        return new()[0]

    def allocate(self, pod: Object, *devices: str) -> str:
        """Give these devices to the one claim of a pod, whoever has them; the claim's name."""
        name = pod["metadata"]["name"]
        found = self._pods.wait(name, "has its claim", lambda one: bool(one["status"].get("resourceClaimStatuses")))
        (status,) = found["status"]["resourceClaimStatuses"]
        path = f"{CLAIMS}/{status['resourceClaimName']}"
        (asked,) = self._api.get(path)["spec"]["devices"]["requests"]
        results = [
            {"request": asked["name"], "driver": DRIVER, "pool": self._node.name, "device": device}
            for device in devices
        ]
        here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._node.name]}]}
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [here]}}
        user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        self._api.request(
            "PATCH", path, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}, MERGE
        )
        self._api.request(
            "PATCH", f"{path}/status", {"status": {"allocation": allocation, "reservedFor": [user]}}, MERGE
        )
        return str(status["resourceClaimName"])

    def let_go(self, pod: Object) -> str:
        """Take the gate away: the scheduler is next. The pod's name."""
        name = str(pod["metadata"]["name"])
        self._api.request("PATCH", f"{PODS}/{name}", {"spec": {"schedulingGates": None}}, MERGE)
        return name

    def delete(self, job: str) -> None:
        """Delete a Job, and return when it has no pod any more."""
        self._api.delete(f"{JOBS}/{job}")
        self._no_pod_of(f"job={job}")

    def remove(self) -> None:
        """Delete every Job."""
        for one in self._api.items(JOBS):
            self._api.delete(f"{JOBS}/{one['metadata']['name']}")
        self._no_pod_of("job")

    def _no_pod_of(self, selector: str) -> None:
        wait_until("the pods are gone", lambda: not self._api.items(f"{PODS}?labelSelector={selector}"))
