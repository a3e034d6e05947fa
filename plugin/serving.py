"""The socket on which one resource is served, and how it passes to a successor.

Every serving has a new socket name: kubelets from 1.37 confuse instances that follow each other under one path.

A handover to another process is the only time when two of them answer for a resource. The ending process first leaves
the kubelet's slot (``Slot``), and then only answers from memory until the kubelet has found the other. For kubelets
with a client per socket it keeps its stream and marks its socket (``staying_mark``): the kubelet has both plugins for a
moment, until the successor removes the old name. If the kind of the kubelet is unknown, the successor removes the old
name at the moment at which it publishes its own: the kubelet checks every second, and then disconnects the one and
connects the other at once. Only the kubelet's registry allows all this; with Register the old process just ends. The
kubelet's calls show its kind by the version of their gRPC library (``SLOT_ENDS``).

Kubelets up to 1.36 keep one client per resource name, the slot. Whenever a stream or a socket of the resource ends,
they disconnect the client in the slot at that moment and mark all its devices unhealthy, so every order of leaving and
arriving has a gap. But an empty slot has nobody to disconnect. So the ending process empties it first, by a
registration that fails (inside Register the kubelet asks for options, and gets an error). After that the end of the old
stream, and of the old socket, disconnects nobody: until the next, ordinary registration, the kubelet still shows the
devices, and asks the old plugin for them on its existing connection.

Kubelets from 1.37 on keep a client per socket. A failed registration makes them forget the owner of the socket's
stream, so that they never notice its end: they show the devices for ever and ask a dead plugin for them. So ostler does
this neither to them nor to a kubelet of unknown kind.

The price: if both the old and the new plugin are killed in this second, the kubelet shows the devices until the next
plugin comes, and pods that get one fail as they would without devices.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import grpc.aio

from node.endpoint import Endpoint, SocketLimits
from node.kubelet.watcher_service import SERVICE, Registrant, RegistrationServicer
from plugin.kubelet import VERSION, KubeletFolders, RegisterRefused, RegistrationPath, register
from plugin.listing import DeviceListing
from plugin.registration import Predecessors, socket_name, staying_mark
from plugin.servicer import OPTIONS, DevicePluginServicer
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

KUBELET_LOOK = 1.5
"""Seconds in which a kubelet finds a new socket in its registry and connects to it; it looks every second."""
LIMITS = SocketLimits(message=8 << 20)
"""GetPreferredAllocation has all free ids twice, and the kubelet accepts lists of at most 4 MiB."""
SERVICES = (
    api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"].full_name,
    SERVICE,
)


class Serving:
    """At most one socket at a time; ``path``: the way of registering for which it was made."""

    def __init__(
        self,
        folders: KubeletFolders,
        listing: DeviceListing,
        servicer: DevicePluginServicer,
        *,
        registrant: Registrant,
        predecessors: Predecessors,
    ) -> None:
        """``registrant`` learns what the kubelet does on the registry path; ``predecessors``' sockets are replaced."""
        self.endpoint: Endpoint | None = None
        self.path = folders.paths[0]
        self._gave_up_registry = False
        self._resource = listing.resource
        self._folders = folders
        self._listing = listing
        self._servicer = servicer
        self._registrant = registrant
        self._predecessors = predecessors
        self._left: Slot | None = None
        self._staying: tuple[Path, ...] = ()

    @property
    def intact(self) -> bool:
        """Whether the socket exists and is ours."""
        return self.endpoint is not None and self.endpoint.intact

    @property
    def own(self) -> tuple[Path, ...]:
        """The socket's path, if there is one."""
        return (self.endpoint.path,) if self.endpoint is not None else ()

    def prefers_registry(self) -> bool:
        """Whether a registry folder appeared after we had to serve without it."""
        return (
            self.path is RegistrationPath.REGISTER
            and self._folders.paths[0] is RegistrationPath.REGISTRY
            and not self._gave_up_registry
            and self._folders.registry.is_dir()
        )

    async def start(self) -> Endpoint | None:
        """Serve on a new socket; the caller stops the returned old one. Raises ``SocketError``."""
        old = self.endpoint
        self.path = self._choose_path()
        directory = self._folders.directory(self.path)
        endpoint = Endpoint(directory, socket_name(self._resource, directory), SERVICES, self._add_services, LIMITS)
        registry = self.path is RegistrationPath.REGISTRY
        await endpoint.start(replacing=self._predecessors.of(self._resource) if registry else ())
        self._staying = self._predecessors.staying(self._resource)
        self.endpoint = endpoint
        return old

    def reopen(self) -> None:
        """Remove the socket's name, so that the next check serves on a new one and the kubelet starts over."""
        if self.endpoint is not None:
            self.endpoint.withdraw()

    def give_up_registry(self) -> None:
        """Use Register from the next socket on, which the next check makes: the kubelet does not ask here."""
        self._gave_up_registry = True
        self.reopen()

    async def leave(self) -> None:
        """Leave the kubelet a socket that a successor can take over; nothing without streams of its registry."""
        if self.path is not RegistrationPath.REGISTRY or not self._listing.streams or self.endpoint is None:
            await self.stop()
            return
        if not self._servicer.kubelet_has_slot:
            if self._servicer.kubelet_is_known:
                with contextlib.suppress(OSError):
                    # Without it the successor replaces the socket at once, which costs milliseconds.
                    staying_mark(self.endpoint.path).touch(mode=0o600)
            return
        slot = Slot(self._resource, self.endpoint.path, self._folders, self._listing, self._servicer)
        self._left = slot if await slot.empty() else None

    async def wait_name_gone(self) -> None:
        """After ``leave``: return when a successor has replaced our socket and the kubelet has noticed."""
        if self._left is not None:
            while self.intact:  # noqa: ASYNC110  # a file that goes tells nobody
                await asyncio.sleep(0.05)
            await asyncio.sleep(KUBELET_LOOK)

    async def stop(self) -> None:
        """Remove the socket and end every stream."""
        endpoint, self.endpoint = self.endpoint, None
        if endpoint is not None:
            if self._left is not None and endpoint.intact:
                await self._left.fill()
            await endpoint.stop()
            with contextlib.suppress(OSError):
                staying_mark(endpoint.path).unlink(missing_ok=True)

    def relieve(self) -> None:
        """The kubelet has our stream: remove the sockets that predecessors kept until now."""
        staying, self._staying = self._staying, ()
        for path in staying:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                staying_mark(path).unlink(missing_ok=True)

    def _choose_path(self) -> RegistrationPath:
        paths = self._folders.paths
        if len(paths) == 1:
            return paths[0]
        if self._gave_up_registry or not self._folders.registry.is_dir():
            return RegistrationPath.REGISTER
        return RegistrationPath.REGISTRY

    def _add_services(self, server: grpc.aio.Server) -> None:
        # Without an endpoint the kubelet uses the socket that it found, by the path that it knows: nothing has to be
        # said about how the agent's mounts differ from the host's.
        info = registration_pb2.PluginInfo(type="DevicePlugin", name=self._resource, supported_versions=[VERSION])
        watcher = RegistrationServicer(info, self._registrant)
        api_pb2_grpc.add_DevicePluginServicer_to_server(self._servicer, server)
        registration_pb2_grpc.add_RegistrationServicer_to_server(watcher, server)


PATIENCE = 0.3
"""Seconds for a Register call, which takes some milliseconds; the ending process must be quick."""
NOTICE = 0.05
"""Seconds in which the kubelet notices that a stream has ended; a successor comes later."""
EMPTIED = "failed to get device plugin options"
"""The answer of a kubelet that has dialled, asked and been refused."""


class Slot:
    """The kubelet's slot of ``resource``, in which the plugin at ``socket`` is."""

    def __init__(
        self,
        resource: str,
        socket: Path,
        folders: KubeletFolders,
        listing: DeviceListing,
        servicer: DevicePluginServicer,
    ) -> None:
        self._resource = resource
        # The kubelet joins it to its folder, and the result is the path by which it knows the socket already.
        self._endpoint = os.path.relpath(socket, folders.device_plugins)
        self._kubelet = folders.socket
        self._listing = listing
        self._servicer = servicer

    async def empty(self) -> bool:
        """Make the kubelet forget who serves the resource; returns whether it did, and then our streams have ended,
        too.
        """
        self._servicer.refuse_kubelets()
        try:
            async with asyncio.timeout(PATIENCE):
                await register(self._kubelet, self._resource, self._endpoint, OPTIONS)
        except RegisterRefused as refused:
            emptied = EMPTIED in refused.reason
        except TimeoutError:
            # A call that we give up fails in the kubelet as well.
            emptied = True
        else:
            emptied = False
        if emptied:
            await self._end_streams()
        else:
            self._servicer.accept_kubelets()
        return emptied

    async def _end_streams(self) -> None:
        """End our streams while the slot is empty: later, their end would disconnect a successor in it."""
        self._listing.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await self._listing.followed(by_any=False)
        await asyncio.sleep(NOTICE)

    async def fill(self) -> None:
        """Take the slot again, so that the kubelet notices our end; for a plugin without a successor."""
        self._servicer.accept_kubelets()
        self._listing.begin()
        with contextlib.suppress(RegisterRefused, TimeoutError):
            # A kubelet that refuses it is gone or new; then it has no outdated knowledge of us.
            async with asyncio.timeout(PATIENCE):
                await register(self._kubelet, self._resource, self._endpoint, OPTIONS)
                await self._listing.followed()
