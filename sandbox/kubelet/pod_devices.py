"""Which container holds which devices, which ids are free, and what a container gets from its plugins' answers.

Invariants: an id that is recorded or reserved is never free; a reservation is either committed or released; one
(pod, container, resource) has at most one reservation. Reservations are in neither the checkpoint nor podresources.
Released kubelets have no reservations: ids taken before an error stay taken until the next rebuild of the sets, which
``release(keep=True)`` reproduces.

Answers are merged as the kubelet merges them: the first one wins and no conflict fails a container. A real kubelet
picks the first at random and logs some of the conflicts; here resources are taken in the order of their names and each
conflict is reported as a value.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Literal

from google.protobuf.message import DecodeError

from node.kubelet.checkpoint import NO_NUMA, Checkpoint, CheckpointEntry
from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.devices import DeviceSet, in_order
from sandbox.kubelet.errors import DeviceAllocationError

log = logging.getLogger("ostler.sandbox.kubelet")


@dataclass(frozen=True, slots=True, order=True)
class ContainerResource:
    """One container's share of one resource."""

    pod_uid: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """The devices of one holder: ids by NUMA node (an id on several is in each bucket) and the plugin's answer."""

    buckets: Mapping[int, tuple[str, ...]]
    answer: api_pb2.ContainerAllocateResponse

    @property
    def ids(self) -> frozenset[str]:
        """All ids."""
        return frozenset(device_id for bucket in self.buckets.values() for device_id in bucket)

    @property
    def numa(self) -> dict[str, tuple[int, ...] | None]:
        """Id -> NUMA nodes, None for an id without."""
        nodes: dict[str, tuple[int, ...] | None] = dict.fromkeys(in_order(self.ids))
        for node, bucket in sorted(self.buckets.items()):
            for device_id in bucket if node != NO_NUMA else ():
                nodes[device_id] = (*(nodes[device_id] or ()), node)
        return nodes


def record_of(ids: Collection[str], devices: DeviceSet, answer: api_pb2.ContainerAllocateResponse) -> AllocationRecord:
    """The record of ``ids`` with the topology that ``devices`` knows."""
    buckets: dict[int, list[str]] = {}
    for device_id in in_order(ids):
        for node in devices.numa_of(device_id) or (NO_NUMA,):
            buckets.setdefault(node, []).append(device_id)
    return AllocationRecord({node: tuple(bucket) for node, bucket in buckets.items()}, answer)


class PodDevices:
    """All holders of the node."""

    def __init__(self) -> None:
        self._committed: dict[ContainerResource, AllocationRecord] = {}
        self._reserved: dict[ContainerResource, set[str]] = {}
        self._kept: dict[str, set[str]] = {}

    def get(self, holder: ContainerResource) -> AllocationRecord | None:
        """The committed record of a holder."""
        return self._committed.get(holder)

    def of_container(self, pod_uid: str, container: str) -> dict[str, AllocationRecord]:
        """Resource -> committed record of one container, sorted by resource."""
        return {
            holder.resource: record
            for holder, record in sorted(self._committed.items(), key=itemgetter(0))
            if holder.pod_uid == pod_uid and holder.container == container
        }

    def pods(self) -> frozenset[str]:
        """UIDs with committed records."""
        return frozenset(holder.pod_uid for holder in self._committed)

    def pod_with(self, device_id: str, resource: str | None) -> str | None:
        """UID of the first pod that holds ``device_id``, of any resource if ``resource`` is None."""
        for holder, record in self._committed.items():
            if resource in (None, holder.resource) and device_id in record.ids:
                return holder.pod_uid
        return None

    def taken(self, resource: str) -> frozenset[str]:
        """Ids that are not free: recorded, reserved, or kept by a released kubelet's mistake."""
        ids = set(self._kept.get(resource, ()))
        for holder, record in self._committed.items():
            if holder.resource == resource:
                ids |= record.ids
        for holder, reserved in self._reserved.items():
            if holder.resource == resource:
                ids |= reserved
        return frozenset(ids)

    def resources(self) -> frozenset[str]:
        """Resources of which something is taken."""
        held = {holder.resource for holder in (*self._committed, *self._reserved)}
        return frozenset(held | {resource for resource, ids in self._kept.items() if ids})

    def reserve(self, holder: ContainerResource) -> None:
        """Open a reservation; raises ``DeviceAllocationError`` while another one of the same holder is open."""
        if holder in self._reserved:
            raise DeviceAllocationError(
                holder.resource,
                f"pod {holder.pod_uid} container {holder.container} is already being given {holder.resource}",
            )
        self._reserved[holder] = set()

    def take(self, holder: ContainerResource, ids: Iterable[str]) -> None:
        """Add ids to an open reservation."""
        self._reserved[holder].update(ids)

    def commit(self, holder: ContainerResource, record: AllocationRecord) -> None:
        """Turn a reservation into a record."""
        del self._reserved[holder]
        self._committed[holder] = record

    def release(self, holder: ContainerResource, *, keep: bool = False) -> None:
        """Give a reservation up; with ``keep`` its ids stay taken until ``rebuild``. Without one: nothing to do."""
        ids = self._reserved.pop(holder, set())
        if keep:
            self._kept.setdefault(holder.resource, set()).update(ids)

    def rebuild(self) -> None:
        """Forget ids that only a mistake keeps taken."""
        self._kept.clear()

    def drop_all_but(self, active: Collection[str]) -> None:
        """Drop the records of every pod that is not in ``active``; rebuild if there was one."""
        gone = self.pods() - set(active)
        if gone:
            self._committed = {
                holder: record for holder, record in self._committed.items() if holder.pod_uid not in gone
            }
            self.rebuild()

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take over the records of a checkpoint; an entry whose answer cannot be parsed is left out, as in kubelets."""
        for (pod_uid, container, resource), entry in checkpoint.held().items():
            try:
                answer = api_pb2.ContainerAllocateResponse.FromString(entry.response or b"")
            except DecodeError as error:
                log.warning(
                    "an entry of the checkpoint is left out, because its Allocate response cannot be read",
                    extra={"pod": pod_uid, "container": container, "resource": resource, "error": str(error)},
                )
                continue
            buckets = {node: ids or () for node, ids in (entry.devices or {}).items()}
            self._committed[ContainerResource(pod_uid, container, resource)] = AllocationRecord(buckets, answer)

    def entries(self) -> tuple[CheckpointEntry, ...] | None:
        """Committed records for the checkpoint; None when there are none, which a kubelet writes as null."""
        entries = tuple(
            CheckpointEntry(
                holder.pod_uid, holder.container, holder.resource, record.buckets, record.answer.SerializeToString()
            )
            for holder, record in sorted(self._committed.items(), key=itemgetter(0))
        )
        return entries or None


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """A device node: path on the host and in the container, permissions of ``r``, ``w``, ``m``."""

    host_path: str
    container_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount; the kubelet names it after its container path and never relabels it."""

    host_path: str
    container_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class OptionConflict:
    """Two answers want different things under one key; ``kept`` won over ``dropped``.

    ``is_logged``: a real kubelet logs it, too. It passes over devices and mounts that differ in nothing but their
    permissions.
    """

    artefact: Literal["env", "device", "mount", "annotation"]
    key: str
    kept: str
    dropped: str
    resource: str
    is_logged: bool = True

    def __str__(self) -> str:
        return f"{self.artefact} {self.key!r}: {self.kept!r} kept, {self.dropped!r} of {self.resource} dropped"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options added to a container, and the conflicts met on the way."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    conflicts: tuple[OptionConflict, ...] = ()


def merge(answers: Mapping[str, api_pb2.ContainerAllocateResponse], *, with_cdi_devices: bool = True) -> RunOptions:
    """Merge the answers (resource -> answer) for one container; old kubelets leave their CDI devices out."""
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, DeviceInfo] = {}
    cdi: dict[str, None] = {}
    conflicts: list[OptionConflict] = []
    for resource in sorted(answers):
        answer = answers[resource]
        for name, value in sorted(answer.envs.items()):
            if envs.setdefault(name, value) != value:
                conflicts.append(OptionConflict("env", name, envs[name], value, resource))
        for spec in answer.devices:
            device = DeviceInfo(spec.host_path, spec.container_path, spec.permissions)
            kept = devices.setdefault(spec.container_path, device)
            if kept != device:
                moved = kept.host_path != device.host_path
                key = spec.container_path
                conflicts.append(OptionConflict("device", key, _node(kept), _node(device), resource, moved))
        for mount in answer.mounts:
            wanted = Mount(mount.host_path, mount.container_path, mount.read_only)
            first = mounts.setdefault(mount.container_path, wanted)
            if first != wanted:
                moved = first.host_path != wanted.host_path
                key = mount.container_path
                conflicts.append(OptionConflict("mount", key, _mount(first), _mount(wanted), resource, moved))
        for name, value in sorted(answer.annotations.items()):
            if annotations.setdefault(name, value) != value:
                conflicts.append(OptionConflict("annotation", name, annotations[name], value, resource))
        if with_cdi_devices:
            cdi.update((device.name, None) for device in answer.cdi_devices)
    return RunOptions(envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(cdi), tuple(conflicts))


def _node(device: DeviceInfo) -> str:
    return f"{device.host_path} ({device.permissions})"


def _mount(mount: Mount) -> str:
    return f"{mount.host_path} ({'ro' if mount.read_only else 'rw'})"
