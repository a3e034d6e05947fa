"""How device plugins register: the kubelet's own socket and its Register call, and the plugin watcher's handler.

Errors are plain texts with status UNKNOWN, as in kubelets. Dialling back and asking for options happen inside the
call and are bounded by its deadline, so a plugin must be able to answer while it waits for Register. Kubelets up to
1.24 answer at once, dial back in the background and take the options from the request.

A caller may send a name of megabytes. Counters and messages about a name are bounded, so that no caller can make the
kubelet grow.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

import grpc
import grpc.aio

from node.rules import is_extended_resource_name
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.errors import KubeletError, RegistrationError, shortened
from sandbox.kubelet.events import Door, EventFeed, RegistrationFailed
from sandbox.kubelet.metrics import KubeletMetrics

log = logging.getLogger("ostler.sandbox.kubelet")

SOCKET_NAME = "kubelet.sock"
VERSION = "v1beta1"
DEPRECATION_MARKER: Final = "DEPRECATION"
"""An empty file that kubelets up to 1.24 left in the device plugin folder; plugins must ignore it."""

_COUNTED_NAMES: Final = 1000
OTHER_NAMES: Final = "(other names)"
"""Under this name ``calls`` counts what exceeds the number of names it keeps."""


class Connector(Protocol):
    """Connects and disconnects plugins."""

    async def connect(
        self, resource: str, socket: str, door: Door, options: api_pb2.DevicePluginOptions | None = None
    ) -> None:
        """Connect a plugin that came through ``door``; options that are given are not asked for.

        Raises ``RegistrationError``.
        """

    def disconnect(self, resource: str, socket: str) -> None:
        """Disconnect a plugin; an unknown one is no error."""


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
            f"manager version, {VERSION}, is not among plugin supported versions [{shortened(' '.join(versions))}]"
        )
    try:
        check_resource_name(name)
    except RegistrationError as error:
        raise RegistrationError(f"invalid name of device plugin socket: {error}") from error


def joined(directory: Path, endpoint: str) -> str:
    """The socket a Register call names: joined and cleaned as text, so an absolute path ends up in the folder too."""
    return os.path.normpath(f"{directory}/{endpoint}")


def remove_sockets(directory: Path) -> None:
    """Remove every socket, hidden ones and links to sockets included, from the top of the folder.

    Tries all of them; raises OSError with every failure.
    """
    failures = []
    for path in sorted(directory.iterdir()):
        try:
            is_socket = stat.S_ISSOCK(path.stat().st_mode)
        except OSError as error:  # A dangling link stays, and so does an unreadable file.
            log.info("a file of the plugin folder cannot be looked at", extra={"path": str(path), "error": str(error)})
            continue
        if is_socket:
            try:
                path.unlink()
            except OSError as error:
                failures.append(str(error))
    if failures:
        raise OSError(f"cannot remove old sockets: {'; '.join(failures)}")


class RegistrationService(api_pb2_grpc.RegistrationServicer):
    """Register, in the folder ``directory``; ``calls`` counts the calls per resource before any check.

    ``in_background``: answer before the dial-back, as kubelets up to 1.24.
    """

    def __init__(
        self,
        directory: Path,
        connector: Connector,
        feed: EventFeed,
        metrics: KubeletMetrics,
        *,
        in_background: bool = False,
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._metrics = metrics
        self._directory = directory
        self._connector = connector
        self._feed = feed
        self._in_background = in_background
        self._connecting: set[asyncio.Task[None]] = set()

    async def Register(  # noqa: N802 - the name is the protocol's
        self,
        request: api_pb2.RegisterRequest,
        context: grpc.aio.ServicerContext[api_pb2.RegisterRequest, api_pb2.Empty],
    ) -> api_pb2.Empty:
        """Connect the plugin at the endpoint; from 1.25 on kubelets ignore the options of the request."""
        name = shortened(request.resource_name)
        counted = name if name in self.calls or len(self.calls) < _COUNTED_NAMES else OTHER_NAMES
        self.calls[counted] += 1
        self._metrics.registrations.add(counted)
        socket = joined(self._directory, request.endpoint)
        try:
            check_registration(request.version, request.resource_name)
            if self._in_background:
                connecting = asyncio.create_task(self._connect(request, socket), name=f"connect {socket}")
                self._connecting.add(connecting)
                connecting.add_done_callback(self._connecting.discard)
            else:
                await self._connector.connect(request.resource_name, socket, "register")
        except KubeletError as error:
            self._refused(request, socket, error)
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api_pb2.Empty()

    async def close(self) -> None:
        """End the dial-backs under way."""
        connecting = tuple(self._connecting)
        for task in connecting:
            task.cancel()
        if connecting:
            await asyncio.wait(connecting)

    async def _connect(self, request: api_pb2.RegisterRequest, socket: str) -> None:
        try:
            await self._connector.connect(request.resource_name, socket, "register", request.options)
        except KubeletError as error:
            self._refused(request, socket, error)

    def _refused(self, request: api_pb2.RegisterRequest, socket: str, error: KubeletError) -> None:
        fault = error.fault if isinstance(error, RegistrationError) else None
        name = shortened(request.resource_name)
        self._feed.emit(RegistrationFailed(name, shortened(socket), "register", str(error), fault))


class DevicePluginHandler:
    """Handles device plugins for the plugin watcher."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector

    def validate(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Raise ``RegistrationError`` for a version or resource name that a kubelet does not take."""
        check_plugin(name, versions)

    async def register(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Connect the plugin at ``socket`` as it stands, so the path has to be absolute."""
        await self._connector.connect(name, socket, "watcher")

    def deregister(self, name: str, socket: str) -> None:
        """Disconnect the plugin; kubelets up to 1.36 look only at the name."""
        self._connector.disconnect(name, socket)


def _quoted(text: str) -> str:
    escaped = shortened(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
