"""The registrations at the standalone kubelet, by its events: resources of device plugins, and DRA drivers.

A resource is ready when it has sent a list since it registered last, a driver when it is connected.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping

from sandbox.kubelet.events import DriverConnection, KubeletEvent, ListReceived, PluginDeregistered, PluginRegistered


class Registrations:
    """``connected``: name -> socket -> door, of those that are registered now."""

    def __init__(self) -> None:
        self.connected: dict[str, dict[str, str]] = {}
        self._ready: set[str] = set()
        self._counts: Counter[str] = Counter()
        self._drivers: set[str] = set()
        self._changed = asyncio.Event()

    def note(self, event: KubeletEvent) -> None:
        """Take an event over."""
        match event:
            case PluginRegistered(name, socket, door):
                self._counts[name] += 1
                self._ready.discard(name)
                self.connected.setdefault(name, {})[socket] = door
            case PluginDeregistered(name, socket):
                sockets = self.connected.get(name, {})
                sockets.pop(socket, None)
                if not sockets:
                    self.connected.pop(name, None)
                    self._ready.discard(name)
            case DriverConnection(name, connected=True):
                self._drivers.add(name)
                self._ready.add(name)
            case DriverConnection(name):
                self._ready.discard(name)
            case ListReceived(name):
                self._ready.add(name)
        self.wake()

    def lose_all(self) -> None:
        """Forget what is registered: the kubelet ends, without an event for every driver."""
        self.connected = {}
        self._ready = set()

    def wake(self) -> None:
        """Have everybody who waits check the condition again."""
        self._changed.set()

    async def until(self, condition: Callable[[], object], seconds: float) -> None:
        """Wait for a condition that events make true; raises TimeoutError."""
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def names(self) -> list[str]:
        """Everything that is registered, sorted."""
        return sorted(self.connected)

    def sockets(self) -> Iterator[tuple[str, str]]:
        """Each name with each of its sockets."""
        for name, sockets in self.connected.items():
            for socket in sockets:
                yield name, socket

    def counts(self) -> dict[str, int]:
        """What is ready -> how often it has registered."""
        return {name: self._counts[name] for name in self._ready}

    def is_newer(self, earlier: Mapping[str, int]) -> bool:
        """Whether something has become ready that was not, or registered less often, in earlier ``counts``."""
        return any(count > earlier.get(name, 0) for name, count in self.counts().items())

    def missing(self, expected: Collection[str]) -> list[str]:
        """Those of ``expected`` that are not ready, sorted."""
        return sorted(set(expected) - self._ready)

    def drivers(self) -> list[str]:
        """DRA drivers that are connected, sorted."""
        return sorted(self._drivers & self._ready)
