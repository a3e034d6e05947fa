"""Pods of the tests: their manifests, and waiting for what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.cluster.rig.api import ApiRefused, Object, RigApi
from tests.cluster.rig.images import BOX
from tests.cluster.rig.node import RigNode, processes_of_pod
from tests.cluster.rig.processes import FIRST_PAUSE, PATIENCE, wait_until

PODS = "/api/v1/namespaces/default/pods"
FOREVER = "trap 'exit 0' TERM; sleep 2147483647 & wait"
"""A shell command that runs until it is told to end, and then ends at once: not when its ``sleep`` does."""


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


def _has_ended(uid: str) -> bool:
    return not processes_of_pod(uid)


def phase(found: Object) -> str:
    """The phase of a pod."""
    return str(found.get("status", {}).get("phase", ""))


class RigPods:
    """What tests do with the pods of the default namespace."""

    def __init__(self, api: RigApi) -> None:
        self._api = api
        self._uids: dict[str, str] = {}
        """Of the last pod of each name: events and containers of one before it have the same name."""

    def create(self, manifest: Object) -> str:
        """Create a pod; its name."""
        made = self._api.create(PODS, manifest)["metadata"]
        self._uids[made["name"]] = made["uid"]
        return str(made["name"])

    def run(self, manifest: Object, timeout: float = PATIENCE) -> Object:
        """Create a pod and return it when it runs."""
        return self.wait_phase(self.create(manifest), "Running", timeout)

    def finish(self, manifest: Object, timeout: float = PATIENCE) -> str:
        """Create a pod, wait until it succeeded; what its first container wrote."""
        name = self.create(manifest)
        self.wait_phase(name, "Succeeded", timeout)
        return self.output(name)

    def get(self, name: str) -> Object:
        """A pod as it is now."""
        found: Object = self._api.get(f"{PODS}/{name}")
        return found

    def wait(self, name: str, what: str, condition: Callable[[Object], bool], timeout: float = PATIENCE) -> Object:
        """A pod as soon as ``condition`` holds."""
        return self._api.wait(f"{PODS}/{name}", what, condition, timeout)

    def wait_phase(self, name: str, wanted: str, timeout: float = PATIENCE) -> Object:
        """A pod as soon as it is in a phase; one that has ended otherwise is not waited for."""
        found = self.wait(name, f"is {wanted}", lambda one: phase(one) in {wanted, "Succeeded", "Failed"}, timeout)
        assert phase(found) == wanted, f"pod {name} is {phase(found)}: {found['status']}"
        return found

    def all(self) -> list[Object]:
        """Every pod of the namespace as it is now."""
        return self._api.items(PODS)

    def output(self, name: str, of: str = "") -> str:
        """What a container has written so far; the API server asks the kubelet, which may be busy."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return str(self._api.get(f"{PODS}/{name}/log" + (f"?container={of}" if of else "")))
            except ApiRefused as refused:
                if not refused.is_for_now or time.monotonic() > deadline:
                    raise
            time.sleep(FIRST_PAUSE)

    def delete(self, name: str, grace: int = 0) -> None:
        """Delete a pod and return when the API server has forgotten it."""
        self._api.delete(f"{PODS}/{name}", grace)
        self._api.wait_gone(f"{PODS}/{name}")

    def end(self, *names: str) -> None:
        """Delete pods and return when no process of theirs is left, so that all they had is free."""
        for name in names:
            self._uids[name] = self.get(name)["metadata"]["uid"]
        for name in names:
            self._api.delete(f"{PODS}/{name}")
        for name in names:
            self._api.wait_gone(f"{PODS}/{name}")
        for uid in map(self._uids.__getitem__, names):
            wait_until(f"the containers of the pod {uid} have ended", partial(_has_ended, uid))

    def delete_all(self) -> None:
        """Delete every pod of the namespace, also one that a controller makes meanwhile."""

        def none_is_left() -> bool:
            names = [found["metadata"]["name"] for found in self.all()]
            for name in names:
                self._api.delete(f"{PODS}/{name}")
            return not names

        wait_until("no pod is left", none_is_left)

    def on_disk(self, node: RigNode) -> list[str]:
        """The uids of pods that the kubelet has not cleaned up after; the API server may have forgotten them before."""
        folder = node.kubelet_folder / "pods"
        return sorted(entry.name for entry in folder.iterdir()) if folder.exists() else []

    def wait_event(self, name: str, reason: str, text: str = "", timeout: float = PATIENCE) -> Object:
        """The event of a pod with this reason whose message contains ``text``; not of a pod of that name before it."""
        selector = f"involvedObject.name={name}"
        if name in self._uids:
            selector += f",involvedObject.uid={self._uids[name]}"
        path = f"/api/v1/namespaces/default/events?fieldSelector={selector}"

        def told(events: Object) -> bool:
            return any(event["reason"] == reason and text in event["message"] for event in events["items"])

        found = self._api.wait(path, f"event {reason} with {text!r}", told, timeout)
        return next(event for event in found["items"] if event["reason"] == reason and text in event["message"])
