"""The device plugin folder and the kubelet's own socket in it: clean-up at start, and the Register call.

Errors are plain texts with status UNKNOWN, as in kubelets. Dialling back and asking for options happen inside the
call and are bounded by its deadline, so a plugin must be able to answer while it waits for Register.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import grpc
import grpc.aio

from node.rules import is_extended_resource_name
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.errors import KubeletError, RegistrationError
from sandbox.kubelet.events import Door, EventFeed, RegistrationFailed

SOCKET_NAME = "kubelet.sock"
VERSION = "v1beta1"


class Connector(Protocol):
    """Connects plugins."""

    async def connect(self, resource: str, socket: str, door: Door) -> None:
        """Connect a plugin that came through ``door``; raises ``RegistrationError``."""


def check_resource_name(name: str) -> None:
    """Raise ``RegistrationError`` unless ``name`` is an extended resource name."""
    if not is_extended_resource_name(name):
        raise RegistrationError(f"the ResourceName {_quoted(name)} is invalid")


def check_registration(version: str, resource: str) -> None:
    """Raise ``RegistrationError`` with the text a Register call gets, the version before the name."""
    if version != VERSION:
        raise RegistrationError(
            f"requested API version {_quoted(version)} is not supported by kubelet. "
            f"Supported version is [{_quoted(VERSION)}]"
        )
    check_resource_name(resource)


def check_plugin(name: str, versions: Sequence[str]) -> None:
    """Raise ``RegistrationError`` with the text a plugin of the plugin watcher gets, the version before the name."""
    if VERSION not in versions:
        raise RegistrationError(
            f"manager version, {VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
        )
    try:
        check_resource_name(name)
    except RegistrationError as error:
        raise RegistrationError(f"invalid name of device plugin socket: {error}") from error


def joined(directory: Path, endpoint: str) -> str:
    """The socket a Register call names: joined and cleaned as text, so an absolute path ends up in the folder too."""
    return os.path.normpath(f"{directory}/{endpoint}")


def remove_sockets(directory: Path) -> None:
    """Remove every socket, hidden ones and links to sockets included, from the top of the folder; raises OSError."""
    for path in sorted(directory.iterdir()):
        try:
            status = path.stat()
        except OSError:
            continue  # A dangling link stays, as does what cannot be looked at.
        if stat.S_ISSOCK(status.st_mode):
            path.unlink()


class RegistrationService(api_pb2_grpc.RegistrationServicer):
    """Register, in the folder ``directory``; ``calls`` counts the calls per resource before any check."""

    def __init__(self, directory: Path, connector: Connector, feed: EventFeed) -> None:
        self.calls: Counter[str] = Counter()
        self._directory = directory
        self._connector = connector
        self._feed = feed

    async def Register(  # noqa: N802 - the name is the protocol's
        self,
        request: api_pb2.RegisterRequest,
        context: grpc.aio.ServicerContext[api_pb2.RegisterRequest, api_pb2.Empty],
    ) -> api_pb2.Empty:
        """Connect the plugin at the endpoint; its options are asked for, those of the request are not looked at."""
        self.calls[request.resource_name] += 1
        socket = joined(self._directory, request.endpoint)
        try:
            check_registration(request.version, request.resource_name)
            await self._connector.connect(request.resource_name, socket, "register")
        except KubeletError as error:
            self._feed.emit(RegistrationFailed(request.resource_name, socket, "register", str(error)))
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api_pb2.Empty()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
