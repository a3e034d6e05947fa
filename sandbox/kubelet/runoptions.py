"""What a container gets from the answers of all its plugins, merged as the kubelet does. Pure.

The first answer wins and no conflict ever fails a container; a real kubelet picks the first at random and logs some of
the conflicts. Here resources are taken in the order of their names and each conflict is reported as a value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from protos.deviceplugin.v1beta1 import api_pb2


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
    """Two answers want different things under one key; ``kept`` won over ``dropped``."""

    artefact: Literal["env", "device", "mount", "annotation"]
    key: str
    kept: str
    dropped: str
    resource: str

    def __str__(self) -> str:
        return f"{self.artefact} {self.key!r}: {self.kept!r} kept, {self.dropped!r} of {self.resource} dropped"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What is added to a container, and the conflicts met on the way."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceInfo, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()
    conflicts: tuple[OptionConflict, ...] = ()


def merge(answers: Mapping[str, api_pb2.ContainerAllocateResponse]) -> RunOptions:
    """Merge the answers (resource -> answer) for one container."""
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
                conflicts.append(OptionConflict("device", spec.container_path, _node(kept), _node(device), resource))
        for mount in answer.mounts:
            wanted = Mount(mount.host_path, mount.container_path, mount.read_only)
            first = mounts.setdefault(mount.container_path, wanted)
            if first != wanted:
                conflicts.append(OptionConflict("mount", mount.container_path, _mount(first), _mount(wanted), resource))
        for name, value in sorted(answer.annotations.items()):
            if annotations.setdefault(name, value) != value:
                conflicts.append(OptionConflict("annotation", name, annotations[name], value, resource))
        cdi.update((device.name, None) for device in answer.cdi_devices)
    return RunOptions(envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(cdi), tuple(conflicts))


def _node(device: DeviceInfo) -> str:
    return f"{device.host_path} ({device.permissions})"


def _mount(mount: Mount) -> str:
    return f"{mount.host_path} ({'ro' if mount.read_only else 'rw'})"
