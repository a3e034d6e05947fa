"""The embedded kubelet's events about plugins, by callback or as an async iterator.

A stream keeps at most ``KEPT`` events for a slow reader; the oldest go first. Events are facts for
people and tests; the kubelet itself decides nothing by them.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sandbox.kubelet.errors import CallFault
from sandbox.kubelet.pod_devices import OptionConflict

log = logging.getLogger("ostler.sandbox.kubelet")

KEPT = 10_000

Door = Literal["register", "watcher"]


@dataclass(frozen=True, slots=True)
class PluginRegistered:
    """A plugin is connected; ``door`` is how it came: its Register call or the plugin watcher.

    For a DRA driver ``resource`` is its name, here and below, and its connection is yet to come.
    """

    resource: str
    socket: str
    door: Door


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """A registration was refused or failed; ``message`` is the kubelet's text, ``resource`` may be unknown.

    ``fault`` is the call to the plugin that failed, if it was one.
    """

    resource: str
    socket: str
    door: Door
    message: str
    fault: CallFault | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class PluginDeregistered:
    """A plugin's connection is gone; ``devices_lost``: its devices turned unhealthy by that.

    ``reason`` says how the connection ended.
    """

    resource: str
    socket: str
    devices_lost: bool
    reason: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class PluginCallPending:
    """A plugin has not answered a call yet, and somebody waits for it."""

    fault: CallFault

    def __str__(self) -> str:
        return f"no answer yet: {self.fault}"


@dataclass(frozen=True, slots=True)
class PluginCallFailed:
    """A call to a registered plugin failed; ``error`` is the kubelet's text."""

    fault: CallFault
    error: str

    def __str__(self) -> str:
        return f"{self.error} ({self.fault})"


@dataclass(frozen=True, slots=True)
class CheckpointFailed:
    """The checkpoint at ``path`` could not be read at the start, which continues without state, or could not be
    written.
    """

    path: str
    error: str
    action: Literal["read", "written"]

    def __str__(self) -> str:
        if self.action == "read":
            return (
                f"the checkpoint {self.path} cannot be read: {self.error}; the kubelet starts without its records, so "
                "the devices of running pods count as free; restore the file, or end those pods"
            )
        return (
            f"the checkpoint {self.path} cannot be written: {self.error}; pods that need devices are refused until it "
            "can be; see whether the folder is writable and the disk has room"
        )


@dataclass(frozen=True, slots=True)
class RunOptionsConflict:
    """The plugins of two resources want different things for one container; the first one won."""

    pod_uid: str
    container: str
    conflict: OptionConflict


@dataclass(frozen=True, slots=True)
class ListReceived:
    """A ListAndWatch message arrived; ``number`` counts the messages of this resource from 1."""

    resource: str
    number: int
    healthy: int
    unhealthy: int


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """A device's health string differs from the message before."""

    resource: str
    device: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class DriverConnection:
    """The connection to an instance of a DRA driver is there or lost."""

    driver: str
    endpoint: str
    connected: bool


@dataclass(frozen=True, slots=True)
class DriverHealth:
    """A health report of a DRA driver arrived (``changed``: how many devices differ), or its stream ended."""

    driver: str
    changed: int
    ended: bool = False


@dataclass(frozen=True, slots=True)
class PodWarning:
    """A warning event about a pod, as ``kubectl describe`` shows it."""

    pod_uid: str
    reason: str
    message: str


KubeletEvent = (
    PluginRegistered
    | RegistrationFailed
    | PluginDeregistered
    | PluginCallPending
    | PluginCallFailed
    | CheckpointFailed
    | RunOptionsConflict
    | ListReceived
    | HealthChanged
    | DriverConnection
    | DriverHealth
    | PodWarning
)


class EventStream:
    """Events from its creation on; ends when it or the kubelet is closed. Use it with ``async for``."""

    def __init__(self, feed: EventFeed) -> None:
        self._feed = feed
        self._events: deque[KubeletEvent] = deque(maxlen=KEPT)
        self._wake = asyncio.Event()
        self._closed = False

    def put(self, event: KubeletEvent) -> None:
        """Add an event."""
        self._events.append(event)
        self._wake.set()

    def close(self) -> None:
        """End the iteration after what is still there."""
        self._closed = True
        self._feed.forget(self)
        self._wake.set()

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> KubeletEvent:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._events.popleft()


class EventFeed:
    """Hands every event to all callbacks and streams, in the order they happen."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[KubeletEvent], None]] = []
        self._streams: list[EventStream] = []

    def emit(self, event: KubeletEvent) -> None:
        """Pass an event to all of them; a callback that fails is logged, and the others and the kubelet go on."""
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except Exception:
                log.exception("a callback for the kubelet's events failed")
        for stream in self._streams:
            stream.put(event)

    def subscribe(self, callback: Callable[[KubeletEvent], None]) -> Callable[[], None]:
        """Call ``callback`` with every event from now on; returns what ends that."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)

    def stream(self) -> EventStream:
        """A new stream of events from now on."""
        stream = EventStream(self)
        self._streams.append(stream)
        return stream

    def forget(self, stream: EventStream) -> None:
        """Stop feeding a stream."""
        if stream in self._streams:
            self._streams.remove(stream)

    def close(self) -> None:
        """End all streams."""
        for stream in tuple(self._streams):
            stream.close()
