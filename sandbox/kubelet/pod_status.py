"""The part of the node's status and the pods' statuses about devices in use, and which pods need a new status. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sandbox.kubelet.devices import DeviceSet
from sandbox.kubelet.pod_devices import PodDevices
from sandbox.kubelet.pods import Pod

QUEUE: Final = 100


class PodUpdates:
    """Pods (by UID) that hold a device whose health changed, one entry per ListAndWatch message; at most ``QUEUE``."""

    def __init__(self) -> None:
        self._queue: list[tuple[str, ...]] = []
        self.dropped = 0

    def note(self, pod_uids: frozenset[str]) -> None:
        """Add the pods of one message."""
        if not pod_uids:
            return
        if len(self._queue) >= QUEUE:
            self.dropped += 1
            return
        self._queue.append(tuple(sorted(pod_uids)))

    def drain(self) -> tuple[tuple[str, ...], ...]:
        """Return the pods noted since the last call."""
        queue, self._queue = tuple(self._queue), []
        return queue


def pods_to_update(
    records: PodDevices, resource: str, before: DeviceSet, now: DeviceSet, *, scoped: bool
) -> frozenset[str]:
    """UIDs of pods that hold a device whose health changed or that is new.

    Kubelets up to 1.36 look for the id in all resources and stop at the first pod (``scoped`` false), so an equal id of
    another resource can hide the right pod.
    """
    found = (records.pod_with(device_id, resource if scoped else None) for device_id in now.changed_since(before))
    return frozenset(uid for uid in found if uid is not None)


def allocated_resources_status(
    pod: Pod, records: PodDevices, devices: Callable[[str], DeviceSet | None]
) -> dict[str, dict[str, dict[str, str]]]:
    """App container -> resource -> id -> ``Healthy`` or ``Unhealthy``; an id that is not listed counts as healthy."""
    status: dict[str, dict[str, dict[str, str]]] = {}
    for container in pod.containers:
        if container.kind != "app":
            continue
        for resource, record in records.of_container(pod.uid, container.name).items():
            listed = devices(resource)
            known = {} if listed is None else listed.known
            status.setdefault(container.name, {})[resource] = {
                device_id: "Healthy" if device_id not in known or known[device_id].healthy else "Unhealthy"
                for device_id in record.numa
            }
    return status


def raised_allocatable(records: PodDevices, pod_uid: str, allocatable: Mapping[str, int]) -> dict[str, int]:
    """A node's allocatable, raised to what is in use if the pod holds anything, so that a placed pod passes again."""
    raised = dict(allocatable)
    if pod_uid in records.pods():
        for resource in records.resources():
            raised[resource] = max(raised.get(resource, 0), len(records.taken(resource)))
    return raised
