"""The plugin manager: keeps the registered plugins equal to the sockets in ``plugins_registry/``.

A reconciler compares the existing sockets (path and stamp) with the registered ones, once per tick: first it
deregisters sockets that are gone or were created again, then it registers the missing ones. Operations on one path
never overlap and back off after failures; those of different paths run side by side. A plugin counts as registered from
before its handler is called, so that a removal meanwhile is seen; whether a failure takes that back depends on the
kubelet's generation.

The folder is listed instead of watched: inode and modification time tell a new socket under an old name from the old
one (not the change time, because a chmod creates nothing). The price: a socket that is renamed away counts as removed,
which a real kubelet does not notice, and two changes between two looks are seen as one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NoReturn, Protocol

from node.sockets import MAX_PATH
from protos.pluginregistration.v1 import api_pb2, api_pb2_grpc
from sandbox.kubelet.dialling import DIAL_SECONDS, ready, registry_channel
from sandbox.kubelet.errors import CallFault, PluginError, RegistrationError, shortened
from sandbox.kubelet.events import EventFeed, RegistrationFailed
from sandbox.kubelet.generations import Generation, behaviour_of
from sandbox.kubelet.plugin_calls import PluginCalls, advice

log = logging.getLogger("ostler.sandbox.kubelet")
GET_INFO_SECONDS = 1.0
NOTIFY_SECONDS = 5.0
POLL_SECONDS = 0.1
FIRST_BACKOFF = 0.5
LAST_BACKOFF = 122.0
KEPT_FAILURES = 1000
"""Paths with failures from which on those without a socket are forgotten."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Tells one socket from its successor at the same path."""

    device: int
    inode: int
    modified_ns: int


class RegistryFolder:
    """The folder; the first look walks into hidden folders too, later ones only into those of the first look.

    Folders whose path is too long for a socket in them are left out.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._hidden: set[str] | None = None

    def sockets(self) -> dict[str, Stamp]:
        """Path -> stamp of every socket at any depth whose name is not hidden."""
        hidden: set[str] = set()
        found = dict(self._walk(self._root, hidden))
        if self._hidden is None:
            self._hidden = hidden
        return found

    def _walk(self, root: Path, hidden: set[str]) -> Iterator[tuple[str, Stamp]]:
        waiting = [str(root)]
        while waiting:
            try:
                entries = sorted(os.scandir(waiting.pop()), key=attrgetter("name"))
            except OSError:
                continue  # Gone between two looks, or not readable: nothing is there.
            for entry in entries:
                try:
                    status = entry.stat()
                except OSError:
                    continue  # Gone, or a dangling link.
                concealed = entry.name.startswith(".")
                if stat.S_ISDIR(status.st_mode) and not entry.is_symlink():
                    is_new = concealed and self._hidden is not None and entry.path not in self._hidden
                    if is_new or len(os.fsencode(entry.path)) > MAX_PATH:
                        continue
                    if concealed:
                        hidden.add(entry.path)
                    waiting.append(entry.path)
                elif stat.S_ISSOCK(status.st_mode) and not concealed:
                    yield entry.path, Stamp(status.st_dev, status.st_ino, status.st_mtime_ns)


class PluginHandler(Protocol):
    """Handles plugins of one type; ``socket`` is the plugin's own service."""

    def validate(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Raise ``RegistrationError`` unless the plugin can be registered."""

    async def register(self, name: str, socket: str, versions: Sequence[str]) -> None:
        """Register the plugin; raises ``RegistrationError``."""

    def deregister(self, name: str, socket: str) -> None:
        """Forget the plugin; unknown ones are no error."""


@dataclass(frozen=True, slots=True)
class RegisteredPlugin:
    """A plugin that counts as registered."""

    stamp: Stamp
    type: str
    name: str
    socket: str


class OperationBackoff:
    """When an operation may start again: 500 ms after the first failure, then twice that, at most 122 s."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._not_before: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._seconds)

    def may_start(self, path: str, now: float) -> bool:
        """Whether an operation on ``path`` may start at ``now`` (seconds of any clock)."""
        return now >= self._not_before.get(path, now)

    def forget_but(self, paths: Collection[str], now: float) -> None:
        """Forget the failures of paths that are not in ``paths`` and may start again."""
        for path in [each for each in self._seconds if each not in paths and self.may_start(each, now)]:
            self.succeeded(path)

    def failed(self, path: str, now: float) -> None:
        """Note a failure at ``now``."""
        seconds = min(LAST_BACKOFF, self._seconds[path] * 2) if path in self._seconds else FIRST_BACKOFF
        self._seconds[path] = seconds
        self._not_before[path] = now + seconds

    def succeeded(self, path: str) -> None:
        """Forget earlier failures."""
        self._seconds.pop(path, None)
        self._not_before.pop(path, None)


class PluginWatcher:
    """Runs until cancelled; failed registrations go to ``feed``. ``clock`` counts the seconds of the back-off.

    ``here`` turns an endpoint that a plugin names into the path at which the kubelet finds it.
    """

    def __init__(
        self,
        directory: Path,
        handlers: Mapping[str, PluginHandler],
        *,
        generation: Generation,
        feed: EventFeed,
        interval: float = 1.0,
        dial_seconds: float = DIAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        here: Callable[[str], str] = str,
    ) -> None:
        self.registered: dict[str, RegisteredPlugin] = {}
        self._folder = RegistryFolder(directory)
        self._handlers = handlers
        self._undo_failures = behaviour_of(generation).retries_registrations
        self._interval = interval
        self._feed = feed
        self._dial_seconds = dial_seconds
        self._clock = clock
        self._calls = PluginCalls(feed)
        self._here = here
        self._backoff = OperationBackoff()
        self._desired: dict[str, Stamp] = {}
        self._operations: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Look and reconcile until cancelled; operations under way end with it."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                tasks.create_task(self._reconcile())
        finally:
            operations = tuple(self._operations.values())
            for task in operations:
                task.cancel()
            if operations:
                await asyncio.wait(operations)

    async def _look(self) -> None:
        while True:
            self._desired = self._folder.sockets()
            if len(self._backoff) > KEPT_FAILURES:
                self._backoff.forget_but({*self._desired, *self.registered}, self._clock())
            await asyncio.sleep(min(POLL_SECONDS, self._interval))

    async def _reconcile(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            for path, plugin in tuple(self.registered.items()):
                if self._desired.get(path) != plugin.stamp:
                    self._start(path, partial(self._deregister, path, plugin))
            for path, stamp in tuple(self._desired.items()):
                known = self.registered.get(path)
                if known is None or known.stamp != stamp:
                    self._start(path, partial(self._register, path, stamp))

    def _start(self, path: str, operation: Callable[[], Awaitable[None]]) -> None:
        """Start an operation unless one is under way on the path or it failed a moment ago."""
        if path in self._operations or not self._backoff.may_start(path, self._clock()):
            return
        self._operations[path] = asyncio.create_task(self._operate(path, operation), name=f"plugin {path}")

    async def _operate(self, path: str, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await operation()
        except Exception as error:  # noqa: BLE001 - whatever a plugin brings about, the others go on
            log.warning("plugin operation failed", extra={"path": path, "error": str(error)})
            self._backoff.failed(path, self._clock())
            fault = error.fault if isinstance(error, RegistrationError) else None
            self._feed.emit(RegistrationFailed("", path, "watcher", str(error), fault))
        else:
            self._backoff.succeeded(path)
        finally:
            del self._operations[path]

    async def _deregister(self, path: str, plugin: RegisteredPlugin) -> None:
        self.registered.pop(path, None)
        handler = self._handlers.get(plugin.type)
        if handler is not None:
            handler.deregister(plugin.name, plugin.socket)

    async def _register(self, path: str, stamp: Stamp) -> None:
        channel = registry_channel(path)
        try:
            if not await ready(channel, self._dial_seconds):
                raise RegistrationError(
                    f"RegisterPlugin error -- dial failed at socket {path}, err: context deadline exceeded",
                    CallFault("", path, "dial", self._dial_seconds, advice("dial", path, None)),
                )
            plugin = api_pb2_grpc.RegistrationStub(channel)
            try:
                call = plugin.GetInfo(api_pb2.InfoRequest(), timeout=GET_INFO_SECONDS)
                info = await self._calls.run("", path, "GetInfo", call)
            except PluginError as error:
                raise RegistrationError(
                    f"RegisterPlugin error -- failed to get plugin info using RPC GetInfo at socket {path}, "
                    f"err: {error}",
                    error.fault,
                ) from error
            await self._register_info(path, stamp, plugin, info)
        finally:
            await channel.close()

    async def _register_info(
        self, path: str, stamp: Stamp, plugin: api_pb2_grpc.RegistrationStub, info: api_pb2.PluginInfo
    ) -> None:
        handler = self._handlers.get(info.type)
        if handler is None:
            await self._refuse(
                plugin,
                path,
                "RegisterPlugin error -- no handler registered for plugin type: "
                f"{shortened(info.type)} at socket {path}",
            )
        socket = self._here(info.endpoint) if info.endpoint else path
        versions = tuple(info.supported_versions)
        try:
            handler.validate(info.name, socket, versions)
        except RegistrationError as error:
            await self._refuse(
                plugin, path, f"RegisterPlugin error -- plugin validation failed with err: {error}", error
            )
        # Before the handler is called, so that the socket's removal during the call leads to a deregistration.
        self.registered[path] = RegisteredPlugin(stamp, info.type, info.name, socket)
        try:
            await handler.register(info.name, socket, versions)
        except RegistrationError as error:
            if self._undo_failures:
                self.registered.pop(path, None)
            await self._refuse(
                plugin, path, f"RegisterPlugin error -- plugin registration failed with err: {error}", error
            )
        try:
            await self._notify(plugin, path, api_pb2.RegistrationStatus(plugin_registered=True), info.name)
        except PluginError as error:
            # The kubelet wraps an empty text around the cause, hence two colons.
            message = f"RegisterPlugin error -- failed to send registration status at socket {path}, err: : {error}"
            if not self._undo_failures:
                log.warning("the plugin did not get the registration status", extra={"path": path, "error": message})
                return
            self.registered.pop(path, None)
            handler.deregister(info.name, socket)
            raise RegistrationError(message, error.fault) from error

    async def _refuse(
        self, plugin: api_pb2_grpc.RegistrationStub, path: str, message: str, cause: RegistrationError | None = None
    ) -> NoReturn:
        """Tell the plugin and raise ``RegistrationError``."""
        try:
            await self._notify(plugin, path, api_pb2.RegistrationStatus(plugin_registered=False, error=message))
        except PluginError as error:
            log.info("plugin did not take its refusal", extra={"path": path, "error": str(error)})
        raise RegistrationError(message, None if cause is None else cause.fault) from cause

    async def _notify(
        self,
        plugin: api_pb2_grpc.RegistrationStub,
        path: str,
        status: api_pb2.RegistrationStatus,
        name: str = "",
    ) -> None:
        call = plugin.NotifyRegistrationStatus(status, timeout=NOTIFY_SECONDS)
        await self._calls.run(name, path, "NotifyRegistrationStatus", call)
