"""The kubelet as the door sees it: its folders, its socket, and the Register call.

``device-plugins/`` is where it is whatever the kubelet's root folder is; ``plugins_registry/`` follows that root. So
they are two settings.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import grpc
import grpc.aio

from node.kubelet.podresources import socket_below
from node.sockets import FileId, is_socket
from node.values import Value, value
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"
REGISTER_TIMEOUT = 10.0
"""Seconds for Register: the kubelet dials back (10 s at most) inside the call and within its deadline."""


class RegistrationPath(StrEnum):
    """How the kubelet learns of a plugin."""

    REGISTRY = "registry"
    """The plugin watcher finds the socket in ``plugins_registry/``; a restarted kubelet finds it again by itself."""
    REGISTER = "register"
    """The plugin calls Register on ``kubelet.sock``, and again after every restart of the kubelet."""


class RegisterRefused(Exception):
    """The kubelet did not take a registration; ``reason`` is its own text."""

    def __init__(self, resource: str, reason: str) -> None:
        super().__init__(f"the kubelet refused to register {resource}: {reason}")
        self.resource = resource
        self.reason = reason


@value
class KubeletFolders(Value):
    """Where the kubelet's sockets are; ``paths`` are the ways to register that may be tried, the first one first.

    ``patience``: seconds a live kubelet gets to ask for a socket in its registry; it looks every second.
    """

    device_plugins: Path
    registry: Path
    paths: tuple[RegistrationPath, ...] = (RegistrationPath.REGISTRY, RegistrationPath.REGISTER)
    patience: float = 5.0

    @property
    def socket(self) -> Path:
        """The kubelet's registration socket; its presence tells that a kubelet is there."""
        return self.device_plugins / KUBELET_SOCKET

    @property
    def pod_resources(self) -> Path:
        """Where the kubelet tells which devices it has; the folder follows its root, as the registry does."""
        return socket_below(self.registry.parent)

    @property
    def plugin_folders(self) -> tuple[Path, Path]:
        """Where plugins have their sockets, ours and those of others."""
        return self.device_plugins, self.registry

    def directory(self, path: RegistrationPath) -> Path:
        """The folder that a plugin's socket must be in for this way of registering."""
        return self.registry if path is RegistrationPath.REGISTRY else self.device_plugins

    def socket_id(self) -> FileId | None:
        """Identity of the kubelet's socket: a new one means that the kubelet was restarted. None: not there."""
        return FileId.of(self.socket) if is_socket(self.socket) else None


async def register(socket: Path, resource: str, endpoint: str, options: api_pb2.DevicePluginOptions) -> None:
    """Tell the kubelet to dial ``endpoint`` (a file name in its folder); raises ``RegisterRefused``.

    The kubelet calls GetDevicePluginOptions on that endpoint before it answers, so the loop must be free.
    """
    request = api_pb2.RegisterRequest(version=VERSION, endpoint=endpoint, resource_name=resource, options=options)
    # A channel of its own: connections to a predecessor of the same path are never reused.
    local = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=local) as channel:
        try:
            await api_pb2_grpc.RegistrationStub(channel).Register(request, timeout=REGISTER_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            raise RegisterRefused(resource, error.details() or error.code().name) from error
