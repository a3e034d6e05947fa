"""A cluster without real nodes on which pods are scheduled, or not, and explained."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cluster.components.versions import has_reached
from tests.cluster.explain.reasons import NODE, Reason
from tests.cluster.rig.api import MERGE, Api, NotAsExpected, Object
from tests.cluster.rig.cluster import Cluster
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
"""Seconds after which the scheduler has seen everything and looked again."""
SECONDS = 60


class Stage:
    """The node ``NODE`` without a kubelet, and the namespace ``TEAM``."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._api: Api = cluster.api

    def build(self) -> None:
        """Make node and namespace, once."""
        self._api.create("/api/v1/namespaces", {"metadata": {"name": TEAM}})
        self._api.wait(f"/api/v1/namespaces/{TEAM}/serviceaccounts/default", "exists", lambda _: True)
        allocatable = {"pods": "110", "cpu": "64", "memory": "256Gi"}
        status = {"allocatable": allocatable, "capacity": allocatable, "conditions": [_ready()]}
        self._api.create(
            NODES, {"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}, "status": status}
        )

    def beat(self) -> None:
        """Be the node's heart: after 50 seconds without a beat it would be thought lost, and tainted."""
        self._api.request("PATCH", f"{NODES}/{NODE}/status", {"status": {"conditions": [_ready()]}}, MERGE)
        self._api.wait(f"{NODES}/{NODE}", "is untainted", lambda node: not node["spec"].get("taints"))

    def clear(self) -> None:
        """Remove pods, claims, slices and classes."""
        now = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        for path in (PODS, CLAIMS, SLICES, CLASSES):
            self._api.request("DELETE", path, now)
        for path in (PODS, CLAIMS):
            self._api.wait(path, "are gone", lambda found: not found["items"])

    def lay(self, reason: Reason) -> None:
        """Make the objects of a situation, schedule ``infer``, and create ``train``.

        Skips the test where this Kubernetes is older than the refusal.
        """
        if reason.since and not has_reached(self.cluster.version, reason.since):
            pytest.skip(f"Kubernetes before {reason.since} does not refuse the pod")
        self.beat()
        for each in reason.classes:
            self._api.create(CLASSES, each)
        for each in reason.slices:
            self._api.create(SLICES, each)
        if reason.infer:
            self.ask("infer", {"requests": list(reason.infer)})
            self._api.wait(f"{PODS}/infer", "is scheduled", lambda pod: "nodeName" in pod["spec"])
        devices: Json = {"requests": list(reason.train)}
        if reason.constraints:
            devices["constraints"] = list(reason.constraints)
        self.ask("train", devices)

    def ask(self, name: str, devices: Json) -> None:
        """Create a claim and a pod for it, of one name."""
        self._api.create(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": devices}})
        pod = simple(name, resourceClaims=[{"name": "devices", "resourceClaimName": name}])
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
        self._api.create(PODS, pod)

    def verdict(self, expected: str) -> Object:
        """What the scheduler says about ``train``: its condition PodScheduled, as soon as it is what is expected.

        In the beginning it may not have seen all objects; each makes it look again. What it says at the deadline is
        returned too.
        """
        with contextlib.suppress(NotAsExpected):
            self._api.wait(f"{PODS}/train", "is explained", lambda pod: _said(pod) == expected, SETTLED)
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
