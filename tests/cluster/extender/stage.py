"""An extender with the chart's rights, and a second scheduler that asks it over TLS; and nodes without kubelets."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.cluster.rig.api import MERGE, ApiRefused, Object, RigApi, RigCredentials
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.pods import PODS, simple
from tests.cluster.rig.processes import PATIENCE, died, log_of, start, wait_until
from tests.deploy.chart.rendering import render

NODES = ("cell-0", "cell-1", "cell-2")
DEVICE = "example.com/gpu"
"""Of the nodes without kubelets."""
ENABLE = "hivedscheduler.microsoft.com/pod-scheduling-enable"
SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"
ISOLATION = "hivedscheduler.microsoft.com/pod-leaf-cell-isolation"
SCHEDULER = "cells"
PORT = 9096
USER = "ostler-extender-test"
NAMESPACE = "ostler-system"
RANKS = {"weak": 10, "strong": 1000, "stronger": 2000}
"""PriorityClasses: the scheduler must rank pods as the extender does."""
BEAT = 5.0
"""Seconds between two signs of life of the nodes; after 40 without one the controllers give them up."""


def cells(nodes: Sequence[Object], **teams: Object) -> Object:
    """Nodes (their cells) of eight devices; one virtual cluster, ``team``, owns all of them unless others are given."""
    return {
        "physicalCluster": {
            "cellTypes": {
                "QUAD": {"childCellType": "GPU", "childCellNumber": 4},
                "NODE": {"childCellType": "QUAD", "childCellNumber": 2, "isNodeLevel": True},
            },
            "physicalCells": list(nodes),
        },
        "virtualClusters": teams or {"team": {"virtualCells": [{"cellType": "NODE", "cellNumber": len(nodes)}]}},
    }


class ExtenderStage:
    """Extender and scheduler of a cluster; built once for a file of tests, ``strike`` takes it down.

    ``device``: the resource that pods ask for.
    """

    def __init__(self, cluster: RigCluster, configuration: Object, device: str, *, is_for_kueue: bool = False) -> None:
        self.api: RigApi = cluster.api
        self._device = device
        self._cluster = cluster
        self._root = cluster.place.root
        self._address = cluster.place.control
        self._configuration = configuration
        self._is_for_kueue = is_for_kueue
        self._extender: subprocess.Popen[bytes] | None = None
        self._scheduler: subprocess.Popen[bytes] | None = None

    def build(self) -> None:
        """Start everything."""
        for name, value in RANKS.items():
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}
            self._have("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        self._grant()
        authority = self._cluster.authority
        authority.pair("extender", "/CN=ostler-extender", f"subjectAltName=IP:{self._address}")
        authority.pair("extender-client", "/CN=system:kube-scheduler")
        authority.kubeconfig(USER, f"/CN={USER}", self._root / "extender.kubeconfig")
        self._write(self._configuration)
        self.start_extender()
        self._start_scheduler()

    @property
    def file(self) -> Path:
        """The extender's configuration."""
        return self._root / "cells.yaml"

    def start_extender(self) -> None:
        """Start the extender, and return when it answers."""
        folder = self._cluster.authority.folder
        before, recovered = self.log.count("answering schedulers"), self.log.count("msg=recovered")
        self._extender = start(
            self._root,
            "extender",
            [
                sys.executable, "-m", "ostler", "extender", f"--config={self.file}",
                f"--tls-cert={folder / 'extender.crt'}", f"--tls-key={folder / 'extender.key'}",
                f"--tls-client-ca={self._cluster.authority.certificate}", "--tls-client-name=system:kube-scheduler",
                f"--lease={NAMESPACE}/ostler-extender", *(["--kueue"] if self._is_for_kueue else []),
            ],
        )  # fmt: skip
        wait_until(
            "the extender answers",
            lambda: self.log.count("answering schedulers") > before and self.log.count("msg=recovered") > recovered,
            alive=self._died,
        )

    def end_extender(self, number: signal.Signals) -> None:
        """End the extender by a signal."""
        assert self._extender is not None
        self._extender.send_signal(number)
        self._extender.wait(PATIENCE)

    def reconfigure(self, configuration: Object) -> None:
        """Lay another configuration over the running pods; returns when it is in force."""
        assert self._extender is not None
        before = self.log.count("configuration applied")
        self._write(configuration)
        self._extender.send_signal(signal.SIGHUP)
        wait_until(
            "the configuration is applied",
            lambda: self.log.count("configuration applied") > before,
            alive=self._died,
        )

    def inspect(self, path: str) -> Any:
        """A document of the inspect API."""
        folder = self._cluster.authority.folder
        credentials = RigCredentials(folder / "extender-client.crt", folder / "extender-client.key")
        api = RigApi(self._address, self._cluster.authority.certificate, credentials, PORT)
        return api.get(f"/v1/inspect/{path}")

    @property
    def log(self) -> str:
        """What the extenders have written."""
        path = log_of(self._root, "extender")
        return path.read_text() if path.exists() else ""

    def submit(
        self,
        pod: Object,
        group: str,
        pods: int,
        devices: int,
        *,
        priority: int = 0,
        rank: str = "weak",
        team: str = "team",
        **more: Any,
    ) -> str:
        """Create a pod as a member of a gang of so many pods; its name. ``more``: of the scheduling annotation."""
        spec = {
            "virtualCluster": team,
            "priority": priority,
            "leafCellNumber": devices,
            "affinityGroup": {"name": group, "members": [{"podNumber": pods, "leafCellNumber": devices}]},
            **more,
        }
        limits = pod["spec"]["containers"][0]["resources"]
        for kind in ("limits", "requests"):
            limits[kind] = {**limits.get(kind, {}), ENABLE: "1"}
        pod["metadata"]["annotations"] = {SPEC: json.dumps(spec)}
        pod["spec"] |= {
            "schedulerName": SCHEDULER,
            "priorityClassName": rank,
        }
        return str(self.api.create(PODS, pod)["metadata"]["name"])

    def placed(self, name: str, timeout: float = PATIENCE) -> tuple[str, tuple[int, ...]]:
        """Node and devices of a pod, once it is bound."""
        found = self.api.wait(f"{PODS}/{name}", "is bound", lambda pod: bool(pod["spec"].get("nodeName")), timeout)
        indices = found["metadata"]["annotations"][ISOLATION]
        return found["spec"]["nodeName"], tuple(int(each) for each in indices.split(","))

    def clear(self) -> None:
        """Remove all pods."""
        for found in self.api.items(PODS):
            self.api.delete(f"{PODS}/{found['metadata']['name']}")
        wait_until("no pod is left", lambda: not self.api.items(PODS))

    def strike(self) -> None:
        """Take everything down."""
        if self._scheduler is not None:
            self._scheduler.kill()
            self._scheduler.wait()
        if self._extender is not None and self._extender.poll() is None:
            # In good order, so that the next one need not wait for the lease.
            self.end_extender(signal.SIGTERM)
        self.clear()

    def _write(self, configuration: Object) -> None:
        settings = {
            "webServerAddress": f"{self._address}:{PORT}",
            "kubeConfigFilePath": str(self._root / "extender.kubeconfig"),
        }
        self.file.write_text(json.dumps({**settings, **configuration}))

    def _grant(self) -> None:
        """The rights of the chart's account, and no others, for the test's user."""
        # Tests of the chart on the same cluster leave it.
        self._have("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        values: dict[str, Any] = {"extender": {"enabled": True, "config": self._configuration, "tlsSecret": "tls"}}
        values["extender"]["kueue"] = {"enabled": self._is_for_kueue}
        group = "/apis/rbac.authorization.k8s.io/v1"
        subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
        for document in render(values):
            if document["metadata"]["name"] != "ostler-extender" or "Role" not in document["kind"]:
                continue
            if document["kind"].endswith("Binding"):
                document["subjects"] = [subject]
            plural = f"{document['kind'].lower()}s"
            space = f"/namespaces/{NAMESPACE}" if "namespace" in document["metadata"] else ""
            self._have(f"{group}{space}/{plural}", document)

    def _have(self, path: str, body: Object) -> None:
        """Create an object unless one of its name is there, of a stage before."""
        if self.api.find(f"{path}/{body['metadata']['name']}") is None:
            self.api.create(path, body)

    def _start_scheduler(self) -> None:
        folder = self._cluster.authority.folder
        kubeconfig = str(self._root / "kube-scheduler.kubeconfig")
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": kubeconfig},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "profiles": [{"schedulerName": SCHEDULER}],
            "podMaxBackoffSeconds": 2,
            "extenders": [
                {
                    "urlPrefix": f"https://{self._address}:{PORT}/v1/extender",
                    "filterVerb": "filter",
                    "preemptVerb": "preempt",
                    "prioritizeVerb": "prioritize",
                    "weight": 1,
                    "bindVerb": "bind",
                    "enableHTTPS": True,
                    "tlsConfig": {
                        "caFile": str(self._cluster.authority.certificate),
                        "certFile": str(folder / "extender-client.crt"),
                        "keyFile": str(folder / "extender-client.key"),
                    },
                    "httpTimeout": "5s",
                    "nodeCacheCapable": True,
                    "managedResources": [{"name": ENABLE, "ignoredByScheduler": True}],
                }
            ],
        }
        path = self._root / "cells-scheduler.yaml"
        path.write_text(json.dumps(configuration))
        self._scheduler = start(
            self._root,
            "cells-scheduler",
            [
                self._cluster.binaries / "kube-scheduler", f"--config={path}", f"--bind-address={self._address}",
                "--secure-port=10260", f"--authentication-kubeconfig={kubeconfig}",
                f"--authorization-kubeconfig={kubeconfig}",
            ],
        )  # fmt: skip

    def _died(self) -> str:
        assert self._extender is not None
        return died(self._extender, self._root, "extender")


class BareNodes(ExtenderStage):
    """The same with three nodes without kubelets."""

    def __init__(self, cluster: RigCluster, *, is_for_kueue: bool = False) -> None:
        nodes = [{"cellType": "NODE", "cellAddress": name} for name in NODES]
        super().__init__(cluster, cells(nodes), DEVICE, is_for_kueue=is_for_kueue)
        self._struck = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def build(self) -> None:
        """Start everything."""
        for name in NODES:
            self.api.create("/api/v1/nodes", _node(name))
        self._heart.start()
        super().build()

    def create(
        self, name: str, group: str, pods: int, *, devices: int = 8, priority: int = 0, strong: bool = False
    ) -> str:
        """Create a member of a gang; the pod's name."""
        # The controllers take nodes without kubelets for lost ones.
        made = simple(name, resources={self._device: devices}, tolerations=[{"operator": "Exists"}])
        return self.submit(made, group, pods, devices, priority=priority, rank="strong" if strong else "weak")

    def strike(self) -> None:
        """Take everything down."""
        self._struck.set()
        if self._heart.ident is not None:
            self._heart.join()
        super().strike()
        for name in NODES:
            self.api.delete(f"/api/v1/nodes/{name}")

    def _beat(self) -> None:
        while not self._struck.wait(BEAT):
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
            for name in NODES:
                body = {"status": {"conditions": [ready]}}
                # The next sign of life comes soon; at the end, the nodes are gone.
                with contextlib.suppress(OSError, HTTPException, ApiRefused):
                    self.api.request("PATCH", f"/api/v1/nodes/{name}/status", body, MERGE)


def _node(name: str) -> Object:
    amounts = {"pods": "100", "cpu": "64", "memory": "256Gi", DEVICE: "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [ready]}
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "status": status}
