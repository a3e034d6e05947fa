"""Pods of the tests: their manifests, and waiting for what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.cluster.rig.api import Api, Object
from tests.cluster.rig.images import BOX
from tests.cluster.rig.node import Node

PODS = "/api/v1/namespaces/default/pods"
FOREVER = "trap 'exit 0' TERM; while :; do sleep 1; done"
"""A shell command that runs until it is told to end."""


def container(name: str, command: str = FOREVER, resources: Mapping[str, int] | None = None, **more: Any) -> Object:
    """A container that runs a shell command and asks for devices by resource name."""
    counts = {resource: str(count) for resource, count in (resources or {}).items()}
    return {
        "name": name,
        "image": BOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "resources": {"limits": counts, "requests": counts},
        **more,
    }


def pod(name: str, *containers: Object, **spec: Any) -> Object:
    """A pod that ends at once when deleted and needs nothing of the cluster but the kubelet."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "dnsPolicy": "Default",
            "restartPolicy": "Never",
            "containers": list(containers),
            **spec,
        },
    }


def simple(name: str, command: str = FOREVER, resources: Mapping[str, int] | None = None, **spec: Any) -> Object:
    """A pod of one container, ``main``."""
    return pod(name, container("main", command, resources), **spec)


def phase(found: Object) -> str:
    """The phase of a pod."""
    return str(found.get("status", {}).get("phase", ""))


class Pods:
    """What tests do with the pods of the default namespace."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def create(self, manifest: Object) -> str:
        """Create a pod; its name."""
        return str(self._api.create(PODS, manifest)["metadata"]["name"])

    def run(self, manifest: Object, timeout: float = 60.0) -> Object:
        """Create a pod and return it when it runs."""
        return self.wait_phase(self.create(manifest), "Running", timeout)

    def finish(self, manifest: Object, timeout: float = 60.0) -> str:
        """Create a pod, wait until it succeeded; what its first container wrote."""
        name = self.create(manifest)
        self.wait_phase(name, "Succeeded", timeout)
        return self.output(name)

    def get(self, name: str) -> Object:
        """A pod as it is now."""
        found: Object = self._api.get(f"{PODS}/{name}")
        return found

    def wait(self, name: str, what: str, condition: Callable[[Object], bool], timeout: float = 60.0) -> Object:
        """A pod as soon as ``condition`` holds."""
        return self._api.wait(f"{PODS}/{name}", what, condition, timeout)

    def wait_phase(self, name: str, wanted: str, timeout: float = 60.0) -> Object:
        """A pod as soon as it is in a phase; one that has ended otherwise is not waited for."""
        found = self.wait(name, f"is {wanted}", lambda one: phase(one) in {wanted, "Succeeded", "Failed"}, timeout)
        assert phase(found) == wanted, f"pod {name} is {phase(found)}: {found['status']}"
        return found

    def all(self) -> list[Object]:
        """Every pod of the namespace as it is now."""
        return self._api.items(PODS)

    def output(self, name: str, of: str = "") -> str:
        """What a container has written so far."""
        return str(self._api.get(f"{PODS}/{name}/log" + (f"?container={of}" if of else "")))

    def delete(self, name: str, grace: int = 0) -> None:
        """Delete a pod and return when the API server has forgotten it."""
        self._api.delete(f"{PODS}/{name}", grace)
        self._api.wait_gone(f"{PODS}/{name}")

    def delete_all(self) -> None:
        """Delete every pod of the namespace."""
        for found in self.all():
            self.delete(found["metadata"]["name"])

    def on_disk(self, node: Node) -> list[str]:
        """The uids of pods that the kubelet has not cleaned up after; the API server may have forgotten them before."""
        folder = node.kubelet_folder / "pods"
        return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []

    def events(self, name: str) -> list[Object]:
        """The events about a pod, oldest first."""
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
        return sorted(self._api.items(path), key=lambda event: event["metadata"]["creationTimestamp"])

    def wait_event(self, name: str, reason: str, text: str = "", timeout: float = 30.0) -> Object:
        """The event of a pod with this reason whose message contains ``text``."""
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"

        def told(events: Object) -> bool:
            return any(event["reason"] == reason and text in event["message"] for event in events["items"])

        found = self._api.wait(path, f"event {reason} with {text!r}", told, timeout)
        return next(event for event in found["items"] if event["reason"] == reason and text in event["message"])
