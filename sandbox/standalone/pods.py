"""Pods of manifests on the standalone kubelet: admitted, started as far as they come, and deleted.

Without an API server only pods are taken, and the kubelet is all that judges them: no scheduler comes first. With one,
``SandboxCluster`` does what a cluster does, and other objects are created there.
"""

from __future__ import annotations

import itertools
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from node.documents import DocumentRefused
from node.named_files import read_named_file
from node.yaml_text import parse_yaml_all
from sandbox.cluster.client import RequestRefused
from sandbox.cluster.cluster import PodOutcome, SandboxCluster, UnknownKind
from sandbox.cluster.manifests import ManifestError, check_shape, kubelet_pod
from sandbox.containers import started
from sandbox.injection import InjectionError
from sandbox.kubelet.errors import KubeletError
from sandbox.kubelet.kubelet import Kubelet
from sandbox.kubelet.pods import Pod, PodAdmitResult

Object = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

MAX_MANIFEST = 16 << 20
"""Bytes of a manifest file."""

_WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "Job", "CronJob")


class PodRefused(ValueError):
    """A command about pods cannot be done; the text says why and what to do."""


class ManifestUnusable(PodRefused):
    """A manifest file cannot be read, or has no objects."""


def documents_of(path: Path) -> list[Object]:
    """The objects of a manifest file; those of a List stand for themselves. Raises ``ManifestUnusable``."""
    try:
        documents = parse_yaml_all(read_named_file(path, MAX_MANIFEST, fifo=True))
    except OSError as error:
        raise ManifestUnusable(f"{path}: {error.strerror or error}") from error
    except DocumentRefused as error:
        raise ManifestUnusable(f"{path}: {error}") from error
    found: list[Object] = []
    for number, document in enumerate(filter(None, documents), 1):
        if not isinstance(document, dict):
            raise ManifestUnusable(f"{path}: document {number} must be a Kubernetes object, is {str(document)[:60]!r}")
        items = document.get("items") if document.get("kind") == "List" else [document]
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise ManifestUnusable(f"{path}: document {number}: items must be a list of objects")
        found += items
    if not found:
        raise ManifestUnusable(f"{path}: no object in it; write a Pod manifest")
    return found


class StandalonePods:
    """The pods of the node and how far each came, the refused ones included until they are deleted."""

    def __init__(self, kubelet: Kubelet, cluster: SandboxCluster | None, cdi: Sequence[Path]) -> None:
        self.outcomes: dict[Key, PodOutcome] = {}
        self._kubelet = kubelet
        self._cluster = cluster
        self._cdi = tuple(cdi)
        self._pods: dict[Key, Pod] = {}
        self._uids: dict[Key, str] = {}
        """UIDs of the pods that were admitted last under their names, the refused ones included."""
        self._numbers = itertools.count(1)
        self._admissions: Counter[str] = Counter()
        """How often each manifest was admitted in this run."""

    async def admit(self, document: Object) -> PodOutcome | None:
        """Take a pod as far as it comes, or create another object (None then).

        Raises ``PodRefused``, ``ManifestError``, ``UnknownKind`` and ``RequestRefused`` for what is not taken at all.
        """
        if self._cluster is not None:
            outcomes = await self._cluster.apply([self._named(document)])
            for outcome in outcomes:
                self.outcomes[outcome.namespace, outcome.pod] = outcome
            return outcomes[0] if outcomes else None
        pod = self._local(document)
        key = pod.namespace, pod.name
        if key in self._pods:
            raise PodRefused(f"pod {name_of(key)} is already on this node; 'delete {name_of(key)}' first")
        self._uids[key] = pod.uid
        outcome = await self._run(pod)
        self.outcomes[key] = outcome
        return outcome

    async def retry(self, name: str) -> PodOutcome:
        """Try again with a pod that is pending; raises ``PodRefused``."""
        key = self.find(name)
        if self._cluster is not None:
            outcome = await self._cluster.retry(key[1], key[0])
        elif key in self._pods:
            outcome = await self._start(self._pods[key])
        else:
            raise PodRefused(f"the kubelet refused pod {name_of(key)} for good; delete it and admit it again")
        self.outcomes[key] = outcome
        return outcome

    async def delete(self, name: str) -> Key:
        """End a pod and free its devices; raises ``PodRefused``, and ``UnprepareError`` with the pod still there."""
        key = self.find(name)
        if self._cluster is not None:
            await self._cluster.end(key[1], key[0])
        elif key in self._pods:
            await self._kubelet.end(self._pods[key])
        else:
            self._kubelet.delete(self._uids[key])
        self._pods.pop(key, None)
        del self.outcomes[key]
        return key

    async def evict(self) -> dict[Key, str]:
        """End pods whose devices' taints say so, and say why."""
        evicted = await self._cluster.evict() if self._cluster is not None else {}
        for key in evicted:
            self.outcomes.pop(key, None)
        return evicted

    def find(self, name: str) -> Key:
        """The pod of this name, or of NAMESPACE/NAME; raises ``PodRefused``."""
        namespace, _, bare = name.rpartition("/")
        key = namespace or "default", bare
        if key not in self.outcomes:
            known = ", ".join(map(name_of, self.outcomes)) or "none"
            raise PodRefused(f"there is no pod {name_of(key)}; pods: {known}")
        return key

    def judged(self, verdicts: Mapping[str, PodAdmitResult], pods: Iterable[Pod]) -> list[PodOutcome]:
        """Take over the verdicts of a kubelet's restart over ``pods``; the outcomes of those that it refused."""
        refused = []
        for pod in pods:
            verdict, key = verdicts.get(pod.uid), (pod.namespace, pod.name)
            if verdict is None or verdict.admitted or key not in self.outcomes:
                continue
            outcome = replace(
                self.outcomes[key], phase="Failed", reason=verdict.reason, message=verdict.message, containers={}
            )
            self.outcomes[key] = outcome
            self._pods.pop(key, None)
            refused.append(outcome)
        return refused

    def pod(self, key: Key) -> Pod | None:
        """The pod as the kubelet has it, None if it was refused."""
        return next((pod for pod in self._kubelet.pods() if (pod.namespace, pod.name) == key), None)

    def missing(self, key: Key) -> tuple[str, ...]:
        """Resources that a running pod asks for and did not get, because the kubelet knows no such resource."""
        pod, outcome = self.pod(key), self.outcomes[key]
        if pod is None or outcome.phase != "Running":
            return ()
        return tuple(
            sorted(
                {
                    resource
                    for container in pod.containers
                    for resource, count in container.limits.items()
                    if count
                    and resource not in outcome.containers.get(container.name, {}).get("deviceIDs", {})
                    and (container.name, resource) not in pod.claim_backed
                }
            )
        )

    async def _run(self, pod: Pod) -> PodOutcome:
        admission = await self._kubelet.admit(pod)
        if not admission.admitted:
            return PodOutcome(pod.name, "Failed", admission.message, pod.namespace, reason=admission.reason)
        self._pods[pod.namespace, pod.name] = pod
        return await self._start(pod)

    async def _start(self, pod: Pod) -> PodOutcome:
        try:
            containers = await started(self._kubelet, pod, self._cdi)
        except (KubeletError, InjectionError) as error:
            return PodOutcome(pod.name, "Pending", str(error), pod.namespace)
        return PodOutcome(pod.name, "Running", namespace=pod.namespace, containers=containers)

    def _local(self, document: Object) -> Pod:
        kind = str(document.get("kind"))
        if kind in _WORKLOADS:
            raise PodRefused(f"kind {kind} has no controller here; write its spec.template as a Pod")
        if kind != "Pod":
            raise PodRefused(f"kind {kind} needs an API server; start 'ostler kubelet --with-apiserver'")
        named = self._named(document)
        check_shape(named)
        spec = named["spec"]
        where = f"Pod {named['metadata']['name']}"
        if spec.get("resourceClaims"):
            raise PodRefused(
                f"{where}: spec.resourceClaims needs an API server, a scheduler and a claim controller; "
                "start 'ostler kubelet --with-apiserver', which has them"
            )
        if not spec.get("containers"):
            raise PodRefused(f"{where}: spec.containers: must have at least one container")
        names = [each["name"] for field in ("initContainers", "containers") for each in spec.get(field) or ()]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise PodRefused(f"{where}: spec.containers: two containers are called {twice!r}; every name is its own")
        return kubelet_pod(named)

    def _named(self, document: Object) -> Object:
        """The document; a pod with a name, and without an API server with a UID."""
        metadata = document.get("metadata")
        if document.get("kind") != "Pod" or not isinstance(metadata, dict):
            return document
        made = dict(metadata)
        if not made.get("name") and made.get("generateName"):
            made["name"] = f"{made['generateName']}{next(self._numbers)}"
        if not isinstance(made.get("name"), str) or not made["name"]:
            raise PodRefused("Pod: metadata.name: must be a name, is missing")
        if self._cluster is None:
            made.setdefault("namespace", "default")
            made.setdefault("uid", self._uid({**document, "metadata": made}))
        return {**document, "metadata": made}

    def _uid(self, document: Object) -> str:
        """A UID that no other admission here has, and that the same manifests have again at the next run.

        So a pod of an earlier run keeps its devices by the checkpoint of ``--root``, and no other pod takes them over.
        """
        text = repr(document)
        self._admissions[text] += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self._admissions[text]} {text}"))


def name_of(key: Key) -> str:
    """The pod's name, with its namespace unless that is the default."""
    return key[1] if key[0] == "default" else "/".join(key)


FAILURES = (PodRefused, ManifestError, UnknownKind, RequestRefused, KubeletError)
"""What ``StandalonePods`` raises for a pod that is not taken, not found, or cannot end."""
