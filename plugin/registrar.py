"""Keeps one resource registered with the kubelet, whatever happens to either side.

Level-triggered: ``run`` looks at what is (our socket, the kubelet's socket, open device streams, what the kubelet last
said), does the one thing that is missing, and sleeps until something changes. Truth is the open ListAndWatch stream:
as long as one is open nothing is done, because a second registration beside a live stream makes kubelets up to 1.36
disconnect the wrong one. One path of registration at a time: ``plugins_registry`` first, where a restarted kubelet
finds us by itself; Register on ``kubelet.sock`` if a live kubelet does not ask within 5 s.

Every serving has a new socket name: kubelets from 1.37 confuse instances that follow each other under one path.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

import grpc.aio

from node.endpoint import Endpoint
from node.events import EventSink, EventType
from node.sockets import SocketError, is_answered
from plugin.backoff import Backoff
from plugin.foreign import foreign_sockets
from plugin.kubelet import KubeletFolders, RegisterRefused, RegistrationPath, register
from plugin.listing import Listing
from plugin.observer import Observer
from plugin.registration import Memory, RegistrationState, RegistrationStatus, socket_name
from plugin.servicer import OPTIONS, DevicePluginServicer
from plugin.watcher_service import RegistrationServicer
from protos.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from protos.pluginregistration.v1 import api_pb2 as registration_pb2
from protos.pluginregistration.v1 import api_pb2_grpc as registration_pb2_grpc

log = logging.getLogger("ostler.registration")

STREAM_PATIENCE = 5.0
"""Seconds in which a kubelet that took a registration has to open the device stream."""
CHECK = 10.0
"""Seconds between looks when nothing happens, in case an event was missed."""
GRACE = {RegistrationPath.REGISTRY: 2.0, RegistrationPath.REGISTER: 0.5}
"""Seconds after the end of a stream in which the kubelet may open a new one by itself."""
FIGHT_WINDOW = 60.0
"""Seconds within which a second loss to another registration means that there is a fight."""


class Registrar:
    """Serves ``servicer`` on a socket of its own and keeps it registered as ``resource``."""

    def __init__(
        self,
        resource: str,
        folders: KubeletFolders,
        listing: Listing,
        servicer: DevicePluginServicer,
        *,
        events: EventSink,
        observer: Observer,
        clock: Callable[[], float],
        random: Callable[[], float],
    ) -> None:
        self.resource = resource
        self.status = RegistrationStatus(path=folders.paths[0])
        self._folders = folders
        self._listing = listing
        self._servicer = servicer
        self._events = events
        self._observer = observer
        self._clock = clock
        self._path = folders.paths[0]
        self._endpoint: Endpoint | None = None
        self._gave_up_registry = False
        self._woken = asyncio.Event()
        self._seen = Memory()
        self._serve_backoff = Backoff(1.0, 30.0, random)
        self._register_backoff = Backoff(0.05, 30.0, random)
        self._refused_backoff = Backoff(5.0, 300.0, random)
        self._contest_backoff = Backoff(60.0, 600.0, random)

    def wake(self) -> None:
        """Look again: something may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Serve and stay registered until cancelled; then the socket is removed and every stream ended."""
        try:
            while True:
                self._woken.clear()
                delay = await self._look()
                # Not wait_for: before Python 3.12 it can swallow a cancellation that meets the event.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(delay, 0.01)):
                        await self._woken.wait()
        finally:
            if self._endpoint is not None:
                await self._endpoint.stop()

    async def _look(self) -> float:
        """Do the one thing that is missing; return the seconds after which to look again if nothing happens."""
        now = self._clock()
        self._see_kubelet(now)
        if self._endpoint is None or not self._endpoint.intact:
            delay = await self._serve(now)
            if delay:
                return delay
        if self._listing.streams:
            return self._settle()
        self._see_stream_end(now)
        if self._seen.kubelet is None or not is_answered(self._folders.socket):
            self._say(RegistrationState.WAITING, f"no kubelet answers at {self._folders.socket}")
            if self._seen.kubelet is None:
                return CHECK
            # A socket that was just made is about to be listened on; one that stays silent belongs to a dead kubelet.
            return 0.02 if now - self._seen.kubelet_since < STREAM_PATIENCE else 1.0
        if now < self._seen.contested_until and any(path.exists() for path in self._seen.foreign):
            return min(self._seen.contested_until - now, CHECK)
        if await self._lost_again(now):
            return CHECK
        if self._path is RegistrationPath.REGISTRY:
            return await self._await_question(now)
        return await self._register(now)

    def _see_kubelet(self, now: float) -> None:
        kubelet = self._folders.socket_id()
        if kubelet != self._seen.kubelet:
            if self._seen.kubelet is not None and kubelet is not None:
                log.info("the kubelet was restarted", extra={"resource": self.resource})
            if kubelet is not None:
                self._observer.kubelet_seen(kubelet)
            self._seen.kubelet = kubelet
            self._seen.kubelet_since = now
            self._seen.not_before = 0.0
            self._register_backoff.reset()
            if self._prefers_registry():
                self._reopen()

    def _prefers_registry(self) -> bool:
        """Whether a registry folder came up after we had to serve without it, and nothing was registered yet."""
        return (
            self._path is RegistrationPath.REGISTER
            and self._folders.paths[0] is RegistrationPath.REGISTRY
            and not self._gave_up_registry
            and self._seen.registered_with is None
            and self._folders.registry.is_dir()
        )

    def _see_stream_end(self, now: float) -> None:
        if self._seen.streaming:
            self._seen.streaming = False
            self._seen.stream_ended = now
            log.info("the kubelet's device stream ended", extra={"resource": self.resource})
            self._say(RegistrationState.OFFERED, "the kubelet ended the device stream")

    def _settle(self) -> float:
        seen = self._seen
        if not seen.streaming:
            seen.streaming = True
            seen.registered_with = seen.kubelet
            seen.refusal, seen.unanswered, seen.foreign = "", 0, ()
            for backoff in (self._register_backoff, self._refused_backoff, self._serve_backoff):
                backoff.reset()
            self._observer.registered(self.resource, self._path.value)
            log.info("registered", extra={"resource": self.resource, "path": self._path.value})
        self._say(RegistrationState.REGISTERED)
        return CHECK

    async def _serve(self, now: float) -> float:
        """Serve on a new socket; 0 on success, else the seconds after which to try again."""
        old = self._endpoint
        if old is not None:
            log.info("serving on a new socket", extra={"resource": self.resource, "old": str(old.path)})
        try:
            endpoint = await self._start_endpoint()
        except SocketError as error:
            if self.status.detail != str(error):
                log.warning("the socket cannot be served", extra={"resource": self.resource, "reason": str(error)})
                self._events.emit(EventType.WARNING, "SocketFailed", f"{self.resource}: {error}")
            self._observer.failed(self.resource, self._path.value)
            self._say(RegistrationState.FAILED, str(error))
            return self._serve_backoff.delay()
        self._endpoint = endpoint
        self._seen.served_at = now
        self._seen.refusal = ""
        self._seen.registered_with = None
        self._seen.streaming = False
        self._say(RegistrationState.OFFERED)
        if old is not None:
            had_stream = self._listing.streams > 0
            await old.stop()
            if had_stream:
                # Kubelets up to 1.36 that see the old stream end after a new registration disconnect the new one.
                self._seen.not_before = self._clock() + 0.1
        return 0.0

    async def _start_endpoint(self) -> Endpoint:
        self._path = self._choose_path()
        directory = self._folders.directory(self._path)
        services = [
            api_pb2.DESCRIPTOR.services_by_name["DevicePlugin"].full_name,
            registration_pb2.DESCRIPTOR.services_by_name["Registration"].full_name,
        ]
        endpoint = Endpoint(directory, socket_name(self.resource, directory), services, self._add_services)
        await endpoint.start()
        return endpoint

    def _choose_path(self) -> RegistrationPath:
        paths = self._folders.paths
        if len(paths) == 1:
            return paths[0]
        if self._gave_up_registry or not self._folders.registry.is_dir():
            return RegistrationPath.REGISTER
        return RegistrationPath.REGISTRY

    def _add_services(self, server: grpc.aio.Server) -> None:
        watcher = RegistrationServicer(self.resource, self._asked, self._notified)
        api_pb2_grpc.add_DevicePluginServicer_to_server(self._servicer, server)
        registration_pb2_grpc.add_RegistrationServicer_to_server(watcher, server)

    def _asked(self) -> None:
        self._seen.asked_at = self._clock()
        self._observer.attempted(self.resource, self._path.value)
        self.wake()

    def _notified(self, refusal: str) -> None:
        self._seen.refusal = refusal
        self._seen.refused_at = self._clock()
        if refusal:
            self._observer.failed(self.resource, self._path.value)
            log.warning("the kubelet refused the registration", extra={"resource": self.resource, "reason": refusal})
            self._events.emit(EventType.WARNING, "RegistrationRefused", f"{self.resource}: {refusal}")
        self.wake()

    async def _await_question(self, now: float) -> float:
        """The registry path: the kubelet has to come; see that it does."""
        seen = self._seen
        if seen.refusal:
            # Kubelets from 1.36 try again by themselves; older ones only when they see a new socket.
            return await self._serve_again(now, seen.refused_at, seen.refusal)
        waiting_since = max(seen.served_at, seen.kubelet_since, seen.asked_at)
        if seen.stream_ended > waiting_since:
            patience = GRACE[RegistrationPath.REGISTRY]
            waiting_since = seen.stream_ended
        else:
            patience = self._folders.patience
        left = waiting_since + patience - now
        if left > 0:
            self._say(RegistrationState.OFFERED, "waiting for the kubelet to ask")
            return left
        self._observer.failed(self.resource, self._path.value)
        asked = seen.asked_at >= max(seen.served_at, seen.kubelet_since)
        if asked and seen.unanswered < 2:
            seen.unanswered += 1
            self._reopen()
            return 0.0
        return self._give_up_registry(asked)

    def _give_up_registry(self, asked: bool) -> float:
        reason = "asked but opened no device stream" if asked else f"did not ask within {self._folders.patience:g} s"
        if RegistrationPath.REGISTER not in self._folders.paths:
            self._say(RegistrationState.FAILED, f"the kubelet {reason} ({self._folders.registry})")
            self._reopen()
            return self._refused_backoff.delay()
        log.warning(
            "the kubelet %s, registering by Register instead",
            reason,
            extra={"resource": self.resource, "registry": str(self._folders.registry)},
        )
        self._gave_up_registry = True
        self._reopen()
        return 0.0

    async def _serve_again(self, now: float, since: float, reason: str) -> float:
        self._say(RegistrationState.FAILED, reason)
        if self._seen.not_before <= since:
            self._seen.not_before = since + self._refused_backoff.delay()
        if now < self._seen.not_before:
            return self._seen.not_before - now
        return await self._serve(now)

    def _reopen(self) -> None:
        """Have the next look serve on a new socket, which makes the kubelet start over."""
        if self._endpoint is not None:
            self._endpoint.withdraw()

    async def _register(self, now: float) -> float:
        """The Register path: tell the kubelet, unless it was told and is about to open the stream."""
        seen = self._seen
        told = seen.registered_with == seen.kubelet and seen.registered_at > seen.stream_ended
        quiet = seen.registered_at + STREAM_PATIENCE if told else seen.not_before
        if not told and seen.stream_ended and seen.registered_with == seen.kubelet:
            quiet = max(quiet, seen.stream_ended + GRACE[RegistrationPath.REGISTER])
        if now < quiet:
            return quiet - now
        endpoint, kubelet = self._endpoint, seen.kubelet
        if endpoint is None:
            return 0.0
        if told:
            self._observer.failed(self.resource, self._path.value)
        self._observer.attempted(self.resource, self._path.value)
        try:
            await register(self._folders.socket, self.resource, endpoint.path.name, OPTIONS)
        except RegisterRefused as error:
            self._observer.failed(self.resource, self._path.value)
            if self.status.detail != error.reason:
                log.warning("Register failed", extra={"resource": self.resource, "reason": error.reason})
            self._say(RegistrationState.FAILED, error.reason)
            delay = self._register_backoff.delay()
            seen.not_before = self._clock() + delay
            return delay
        seen.registered_with, seen.registered_at = kubelet, self._clock()
        if not self._listing.streams:
            self._say(RegistrationState.OFFERED, "registered, waiting for the kubelet to open the device stream")
        return STREAM_PATIENCE

    async def _lost_again(self, now: float) -> bool:
        """Count a stream that a live, unchanged kubelet ended; True when another plugin is found behind it."""
        seen = self._seen
        grace = GRACE[self._path]
        if not seen.stream_ended or seen.registered_with != seen.kubelet or now < seen.stream_ended + grace:
            return False
        if seen.losses and seen.losses[-1] == seen.stream_ended:
            return False
        seen.losses.append(seen.stream_ended)
        if len(seen.losses) < 2 or seen.losses[1] - seen.losses[0] > FIGHT_WINDOW:
            return False
        own = [self._endpoint.path] if self._endpoint is not None else []
        folders = (self._folders.device_plugins, self._folders.registry)
        foreign = await foreign_sockets(folders, self.resource, self._listing.devices, own)
        if not foreign:
            return False
        seen.foreign = tuple(foreign)
        seen.contested_until = self._clock() + self._contest_backoff.delay()
        names = ", ".join(str(path) for path in foreign)
        message = f"{self.resource}: another plugin serves it at {names}; remove that plugin, ostler waits meanwhile"
        log.error("another plugin takes the resource", extra={"resource": self.resource, "foreign": names})
        self._events.emit(EventType.WARNING, "ForeignPlugin", message)
        self._observer.contested(self.resource)
        self._say(RegistrationState.CONTESTED, message)
        return True

    def _say(self, state: RegistrationState, detail: str = "") -> None:
        socket = self._endpoint.path if self._endpoint is not None else None
        self.status = RegistrationStatus(state, self._path, socket, detail)
