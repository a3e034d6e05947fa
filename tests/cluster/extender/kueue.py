"""Kueue's own manager beside the cluster: its CRDs and webhooks installed, one queue whose check is the extender's."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import yaml

from tests.cluster.components.build import kueue
from tests.cluster.extender.stage import DEVICE, ENABLE, SCHEDULER, SPEC
from tests.cluster.rig.api import ApiRefused, Object, RigApi
from tests.cluster.rig.cluster import RigCluster
from tests.cluster.rig.processes import died, start, wait_until

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
WORKLOADS = f"{KUEUE}/namespaces/default/workloads"
CHECK = "cells"
QUEUE = "team"
_JOBS = "/apis/batch/v1/namespaces/default/jobs"
_WEBHOOKS = ("mjob", "vjob", "mworkload", "vworkload", "mclusterqueue", "vclusterqueue", "mresourceflavor")
_SYSTEM = "kueue-system"
_PORT, _HEALTH = 9443, 8081


class KueueManager:
    """From ``build`` to ``strike``."""

    def __init__(self, cluster: RigCluster) -> None:
        self.api: RigApi = cluster.api
        self._cluster = cluster
        self._root = cluster.place.root
        self._address = cluster.place.control
        self._binaries = kueue()
        self._process: subprocess.Popen[bytes] | None = None
        self._made: list[str] = []

    def build(self, quota: int) -> None:
        """Install it, start it, and create a queue with the check and so many devices."""
        for path in sorted((self._binaries / "manifests/crd").glob("*.yaml")):
            self._create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(path.read_text()))
        for made in self._made:
            self.api.wait(made, "is served", _is_established)
        self._create("/api/v1/namespaces", {"metadata": {"name": _SYSTEM}})
        self._start()
        self._install_webhooks()
        self._queue(quota)

    def create_job(
        self, name: str, pods: int, *, priority: int = 0, scheduler: str = SCHEDULER, **spec: object
    ) -> None:
        """Create a Job of the queue whose pods have eight devices each; ``spec``: keys of the pods' annotation."""
        devices = 8
        asked = {"virtualCluster": "team", "priority": priority, "leafCellNumber": devices, **spec}
        resources = {DEVICE: str(devices), ENABLE: "1"}
        container = {"name": "c", "image": "local/box:1", "resources": {"limits": resources, "requests": resources}}
        template = {
            "metadata": {"annotations": {SPEC: json.dumps(asked)}},
            "spec": {
                "restartPolicy": "Never",
                "schedulerName": scheduler,
                "priorityClassName": "strong" if priority > 0 else "weak",
                "tolerations": [{"operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }
        body = {
            "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": QUEUE}},
            "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 6, "template": template},
        }
        self.api.create(_JOBS, body)

    def delete_job(self, name: str) -> None:
        """Delete a Job and its pods."""
        self.api.delete(f"{_JOBS}/{name}")

    def job(self, name: str) -> Object:
        """A Job."""
        found: Object = self.api.get(f"{_JOBS}/{name}")
        return found

    def workload(self, job: str) -> Object | None:
        """The Workload that Kueue made for a Job."""
        return next(
            (
                each
                for each in self.api.items(WORKLOADS)
                if any(owner["name"] == job for owner in each["metadata"].get("ownerReferences", []))
            ),
            None,
        )

    def check(self, job: str) -> Object:
        """The state of the check of a Job's Workload, empty while there is none."""
        workload = self.workload(job) or {}
        checks = workload.get("status", {}).get("admissionChecks", [])
        return next((each for each in checks if each["name"] == CHECK), {})

    def clear(self) -> None:
        """Remove all Jobs."""
        for found in self.api.items(_JOBS):
            self.delete_job(found["metadata"]["name"])
        wait_until("no Workload is left", lambda: not self.api.items(WORKLOADS))

    def strike(self) -> None:
        """Take everything down."""
        for kind in ("mutating", "validating"):
            self.api.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/kueue")
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for path in self._made:
            self.api.delete(path)

    def _create(self, collection: str, body: Object) -> None:
        self.api.create(collection, body)
        self._made.append(f"{collection}/{body['metadata']['name']}")

    def _start(self) -> None:
        folder = self._root / "kueue"
        authority = self._cluster.authority
        authority.pair("kueue", "/CN=kueue", f"subjectAltName=IP:{self._address}")
        authority.kubeconfig("kueue-manager", "/O=system:masters/CN=kueue", self._root / "kueue.kubeconfig")
        for name in ("webhook", "etc/kueue/metrics/certs"):
            (folder / name).mkdir(parents=True)
            for ending, target in (("crt", "tls.crt"), ("key", "tls.key")):
                shutil.copyfile(authority.folder / f"kueue.{ending}", folder / name / target)
        configuration = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": _SYSTEM,
            "health": {"healthProbeBindAddress": f"{self._address}:{_HEALTH}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": self._address, "port": _PORT, "certDir": str(folder / "webhook")},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {"VisibilityOnDemand": False},
            # The limit that opts in is no device, and no queue has quota for it.
            "resources": {"excludeResourcePrefixes": ["hivedscheduler.microsoft.com/"]},
        }
        path = folder / "configuration.yaml"
        path.write_text(json.dumps(configuration))
        # The folder of its metrics' certificate is fixed, also where it serves none.
        script = f'mount -t overlay overlay -o "lowerdir={folder}/etc:/etc" /etc && exec "$0" "$@"'
        self._process = start(
            self._root,
            "kueue",
            [
                "unshare", "--mount", "--propagation", "private", "sh", "-c", script,
                self._binaries / "kueue", f"--config={path}", "--zap-log-level=2",
            ],
            {"KUBECONFIG": str(self._root / "kueue.kubeconfig")},
        )  # fmt: skip
        process = self._process
        log = self._root / "logs/kueue.log"
        wait_until(
            "Kueue serves its webhooks",
            lambda: "Serving webhook server" in log.read_text() and "Starting workers" in log.read_text(),
            alive=lambda: died(process, self._root, "kueue"),
        )

    def _install_webhooks(self) -> None:
        bundle = base64.b64encode(Path(self._cluster.authority.certificate).read_bytes()).decode()
        for document in yaml.safe_load_all((self._binaries / "manifests/webhooks.yaml").read_text()):
            kept = [each for each in document["webhooks"] if each["name"].partition(".")[0] in _WEBHOOKS]
            for each in kept:
                url = f"https://{self._address}:{_PORT}{each['clientConfig']['service']['path']}"
                each["clientConfig"] = {"url": url, "caBundle": bundle}
            kind = document["kind"]
            body = {"metadata": {"name": "kueue"}, "webhooks": kept}
            self.api.create(f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s", body)

    def _queue(self, quota: int) -> None:
        self._create(
            f"{KUEUE}/admissionchecks", {**_of("AdmissionCheck", CHECK), "spec": {"controllerName": "ostler.dev/cells"}}
        )
        flavors = [{"name": "gpus", "resources": [{"name": DEVICE, "nominalQuota": quota}]}]
        queue = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [DEVICE], "flavors": flavors}],
            "admissionChecksStrategy": {"admissionChecks": [{"name": CHECK}]},
        }
        wait_until(
            "webhooks are in force", lambda: self._is_created(f"{KUEUE}/resourceflavors", _of("ResourceFlavor", "gpus"))
        )
        self._create(f"{KUEUE}/clusterqueues", {**_of("ClusterQueue", QUEUE), "spec": queue})
        self._create(
            f"{KUEUE}/namespaces/default/localqueues", {**_of("LocalQueue", QUEUE), "spec": {"clusterQueue": QUEUE}}
        )
        self.api.wait(f"{KUEUE}/clusterqueues/{QUEUE}", "is active", lambda found: _has(found, "Active"))

    def _is_created(self, collection: str, body: Object) -> bool:
        try:
            self._create(collection, body)
        except ApiRefused as refused:
            if refused.status < 500:
                raise
            return False
        return True


def _of(kind: str, name: str) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}


def _has(body: Object, condition: str) -> bool:
    found = body.get("status", {}).get("conditions") or []
    return any(each["type"] == condition and each["status"] == "True" for each in found)


def _is_established(body: Object) -> bool:
    return _has(body, "Established")
