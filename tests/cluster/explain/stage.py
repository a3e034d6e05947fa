"""A cluster without real nodes on which pods are scheduled, or not, and explained."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path

import pytest

from tests.cluster.components.versions import has_reached
from tests.cluster.explain.reasons import NODE, ClusterReason
from tests.cluster.rig.api import MERGE, ApiRefused, NotAsExpected, Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import simple
from tests.judge.chance import Json

ROOT = Path(__file__).parents[3]
GROUP = "/apis/resource.k8s.io/v1"
TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
CLAIMS = f"{GROUP}/namespaces/{TEAM}/resourceclaims"
SLICES, CLASSES = f"{GROUP}/resourceslices", f"{GROUP}/deviceclasses"
NODES = "/api/v1/nodes"
SETTLED = 5.0
"""Seconds after which the scheduler has looked again and says what it goes on saying."""
SECONDS = 120
BEAT = 5.0
"""Seconds between two signs of life of the node; after 50 without one it would be thought lost, and tainted."""
SEEN = "seen.example.com"
"""Class and driver of a device by which is learned what the scheduler has seen."""


class ExplainStage:
    """The node ``NODE`` without a kubelet, and the namespace ``TEAM``."""

    def __init__(self, cluster: RigCluster) -> None:
        self.cluster = cluster
        self._api: RigApi = cluster.api
        self._closed = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)
        self._laid = 0

    def build(self) -> None:
        """Make node and namespace, once."""
        self._api.create("/api/v1/namespaces", {"metadata": {"name": TEAM}})
        self._api.wait(f"/api/v1/namespaces/{TEAM}/serviceaccounts/default", "exists", lambda _: True)
        allocatable = {"pods": "110", "cpu": "64", "memory": "256Gi"}
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [_ready()]}
        self._api.create(
            NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}, "status": status}
        )
        self._heart.start()

    def close(self) -> None:
        """Give no more signs of life."""
        self._closed.set()
        if self._heart.ident is not None:
            self._heart.join()

    def _beat(self) -> None:
        while not self._closed.wait(BEAT):
            # The next one comes soon.
            with contextlib.suppress(OSError, HTTPException, ApiRefused):
                self._api.request("PATCH", f"{NODES}/{NODE}/status", {"status": {"conditions": [_ready()]}}, MERGE)

    def clear(self) -> None:
        """Remove pods, claims, slices and classes."""
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for path in (PODS, CLAIMS, SLICES, CLASSES):
            self._api.request("DELETE", path, now)
        for path in (PODS, CLAIMS):
            self._api.wait(path, "are gone", lambda found: not found["items"])

    def lay(self, reason: ClusterReason) -> None:
        """Make the objects of a situation, schedule ``infer``, and create ``train``.

        Skips the test where this Kubernetes is older than the refusal.
        """
        if reason.since and not has_reached(self.cluster.version, reason.since):
            pytest.skip(f"Kubernetes before {reason.since} does not refuse the pod")
        self._api.wait(f"{NODES}/{NODE}", "is untainted", lambda node: not node["spec"].get("taints"))
        for each in reason.classes:
            self._api.create(CLASSES, each)
        for each in reason.slices:
            self._api.create(SLICES, each)
        self._wait_seen()
        if reason.infer:
            self.ask("infer", {"requests": list(reason.infer)})
            self._api.wait(f"{PODS}/infer", "is scheduled", lambda pod: "nodeName" in pod["spec"])
        devices: Json = {"requests": list(reason.train)}
        if reason.constraints:
            devices["constraints"] = list(reason.constraints)
        self.ask("train", devices)

    def _wait_seen(self) -> None:
        """Return when the scheduler knows the slices and classes that there are, and none of a test before.

        It learns of each kind of object in order. So once it has found the last slice by the last class, it has seen
        everything before.
        """
        self._laid += 1
        name = f"seen-{self._laid}"
        device = {"name": "device", "attributes": {"round": {"int": self._laid}}}
        place = {"name": name, "generation": 1, "resourceSliceCount": 1}
        expression = f'device.driver == "{SEEN}" && device.attributes["{SEEN}"].round == {self._laid}'
        selectors = [{"cel": {"expression": expression}}]
        spec = {"driver": SEEN, "nodeName": NODE, "pool": place, "devices": [device]}
        self._api.create(SLICES, {"metadata": {"name": name}, "spec": spec})
        self._api.create(CLASSES, {"metadata": {"name": name}, "spec": {"selectors": selectors}})
        self.ask(name, {"requests": [{"name": "device", "exactly": {"deviceClassName": name}}]})
        self._api.wait(f"{PODS}/{name}", "is scheduled", lambda pod: "nodeName" in pod["spec"])
        for path in (PODS, CLAIMS, SLICES, CLASSES):
            self._api.delete(f"{path}/{name}")
        for path in (PODS, CLAIMS):
            self._api.wait_gone(f"{path}/{name}")

    def ask(self, name: str, devices: Json) -> None:
        """Create a claim and a pod for it, of one name."""
        self._api.create(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": devices}})
        pod = simple(name, resourceClaims=[{"name": "devices", "resourceClaimName": name}])
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
        self._api.create(PODS, pod)

    def verdict(self, expected: str) -> Object:
        """What the scheduler says about ``train``: its condition PodScheduled, as soon as it is what is expected.

        In the beginning it may not have seen all objects; each makes it look again. Without expected words, what it
        says when it has settled is returned, and what it says at the deadline, too.
        """
        with contextlib.suppress(NotAsExpected):
            if expected:
                self._api.wait(f"{PODS}/train", "is explained", lambda pod: _said(pod) == expected)
            else:
                self._api.wait(f"{PODS}/train", "is looked at", lambda pod: _said(pod) != "")
                self._api.wait(f"{PODS}/train", "has settled", lambda _: False, SETTLED)
        return _scheduled(self._api.get(f"{PODS}/train"))

    def ostler(self, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command of ours, in the default case as administrator."""
        return subprocess.run(
            [sys.executable, "-m", "ostler", *arguments], check=False, capture_output=True, text=True, cwd=ROOT,
            timeout=SECONDS, env={**os.environ, "KUBECONFIG": str(kubeconfig or self.cluster.place.kubeconfig)},
        )  # fmt: skip


def _ready() -> Object:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}


def _scheduled(pod: Object) -> Object:
    conditions: list[Object] = pod.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), {})


def _said(pod: Object) -> str:
    return str(_scheduled(pod).get("message", ""))
