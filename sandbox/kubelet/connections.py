"""The plugins that are connected: one slot per resource name up to kubelet 1.36, one per socket from 1.37 on.

Up to 1.36 a second instance overwrites the slot of the first without closing it. When the first one's stream ends,
the clean-up disconnects whatever is in the slot by then, that is the second; and a failed second registration empties
the slot, so that the end of the first is never noticed and it goes on to be asked. Both are reproduced, for plugins
have to live with them.

From 1.37 on instances coexist, each message of any of them replaces the list, the one connected last is asked to
allocate, and only the end of the last one makes the devices unhealthy.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Literal, Protocol

from protos.deviceplugin.v1beta1 import api_pb2
from sandbox.kubelet.endpoint import PluginEndpoint
from sandbox.kubelet.errors import RegistrationError

Generation = Literal["1.35", "1.36", "1.37"]

Key = tuple[str, str]


class PluginListener(Protocol):
    """Who learns of plugins that come, speak and go."""

    def connected(self, endpoint: PluginEndpoint) -> None:
        """The plugin answered and is the one to ask from now on."""
        ...

    def received(self, resource: str, message: api_pb2.ListAndWatchResponse) -> None:
        """A ListAndWatch message arrived."""
        ...

    def disconnected(self, endpoint: PluginEndpoint, survivor: PluginEndpoint | None) -> None:
        """The plugin is gone; ``survivor`` is another instance that takes its place."""
        ...


class Connections:
    """Client slots and the tasks that read the plugins' streams."""

    def __init__(self, listener: PluginListener, generation: Generation, call_seconds: float | None) -> None:
        self._listener = listener
        self._per_socket = generation == "1.37"
        self._call_seconds = call_seconds
        self._slots: dict[Key, PluginEndpoint] = {}
        self._streams: dict[PluginEndpoint, asyncio.Task[None]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._abandoned: list[PluginEndpoint] = []

    async def connect(self, resource: str, socket: str, dial_seconds: float) -> None:
        """Connect a plugin and start to read its list; raises ``RegistrationError``."""
        key = self._key(resource, socket)
        if self._per_socket and key in self._slots:
            raise RegistrationError(f"device plugin already connected: {socket}")
        endpoint = PluginEndpoint(resource, socket, self._call_seconds)
        self._slots[key] = endpoint
        try:
            await endpoint.connect(dial_seconds)
        except BaseException:  # Whoever awaits learns of it; the slot is emptied first, whoever sits there by now.
            self._slots.pop(key, None)
            raise
        self._listener.connected(endpoint)
        self._streams[endpoint] = asyncio.create_task(self._read(endpoint), name=f"list {resource} {socket}")

    def connected(self, resource: str) -> tuple[PluginEndpoint, ...]:
        """Endpoints in the slots of a resource, in the order of connection."""
        return tuple(endpoint for endpoint in self._slots.values() if endpoint.resource == resource)

    def streams(self, resource: str) -> int:
        """Open ListAndWatch streams of a resource, those without a slot included."""
        return sum(endpoint.resource == resource for endpoint in self._streams)

    def disconnect(self, resource: str, socket: str) -> None:
        """Disconnect what is in the slot; up to 1.36 only the resource counts. An empty slot: nothing to do."""
        endpoint = self._slots.get(self._key(resource, socket))
        if endpoint is not None:
            self._drop(endpoint)

    async def close(self) -> None:
        """Disconnect every plugin, those without a slot included, and wait until all connections are closed."""
        for endpoint in tuple(self._slots.values()):
            self._drop(endpoint)
        for endpoint, task in tuple(self._streams.items()):
            del self._streams[endpoint]
            self._leave(self._end(endpoint, task))
        while self._abandoned:
            self._leave(self._abandoned.pop().close())
        while self._leaving:
            await asyncio.gather(*self._leaving)

    async def _read(self, endpoint: PluginEndpoint) -> None:
        async with contextlib.aclosing(endpoint.lists()) as lists:
            async for message in lists:
                if endpoint not in self._streams:
                    return  # Disconnected meanwhile; what was still on its way no longer counts.
                self._listener.received(endpoint.resource, message)
        if self._streams.pop(endpoint, None) is None:
            return
        # By slot and not by instance: this is where a kubelet up to 1.36 hits the wrong one.
        occupant = self._slots.get(self._key(endpoint.resource, endpoint.socket))
        if occupant is not None:
            self._drop(occupant)
        if occupant is not endpoint:
            # Nobody closes its connection: calls go on until another plugin takes the resource.
            self._abandoned.append(endpoint)

    def _drop(self, endpoint: PluginEndpoint) -> None:
        """Empty the endpoint's slot, tell of its end and let its connection close."""
        self._slots.pop(self._key(endpoint.resource, endpoint.socket), None)
        others = [other for other in self.connected(endpoint.resource) if other in self._streams]
        self._listener.disconnected(endpoint, others[-1] if others else None)
        task = self._streams.pop(endpoint, None)
        self._leave(self._end(endpoint, task))

    async def _end(self, endpoint: PluginEndpoint, task: asyncio.Task[None] | None) -> None:
        await endpoint.close()
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _leave(self, closing: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(closing)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _key(self, resource: str, socket: str) -> Key:
        return (resource, socket if self._per_socket else "")
