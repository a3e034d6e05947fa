"""The edges of the process that tests replace, and its signs of life: clocks, randomness, systemd, the heartbeat.

``Notifier`` speaks the notification protocol of sd_notify(3), one datagram a message. The heartbeat of the event loop
is for /livez, for systemd's watchdog, and for metrics.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import field

from node.clocks import SELDOM, chance, until_tick
from node.values import Value, value
from ostler.metrics.counters import LoopMetrics

log = logging.getLogger("ostler.systemd")

PATIENCE = 0.2
"""Most seconds that a message may wait for room in systemd's queue; the loop waits meanwhile."""
ALIVE = "WATCHDOG=1"


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; does nothing if there is none.

    It removes the variables from the environment, so that no child process sends in our name.
    """

    def __init__(self, environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        self._stopping = False
        self._unsent: tuple[str, ...] = ()
        watchdog = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        meant_for_us = not pid or pid == str(os.getpid())
        self.watchdog_interval = int(watchdog) / 2_000_000 if watchdog.isdigit() and meant_for_us else None
        """Seconds between signs of life: half of what systemd allows; None if it expects none."""

    def send(self, *lines: str) -> bool:
        """Send lines such as ``READY=1``; returns whether they were accepted, or there is no service manager.

        A service manager that does not listen is logged and otherwise ignored.
        """
        if not self._address or self._stopping:
            return True
        # A leading @ is systemd's way of writing an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(PATIENCE)
                channel.connect(address)
                channel.send("\n".join(lines).encode())
        except OSError as error:
            if isinstance(error, TimeoutError) and lines != (ALIVE,):
                self._unsent = lines
            log.warning("cannot notify systemd", extra={"lines": lines, "error": error.strerror or str(error)})
            return False
        if lines != (ALIVE,):
            self._unsent = ()
        return True

    def send_unsent(self) -> None:
        """Send the last message again if systemd's queue had no room for it; signs of life replace one another."""
        if self._unsent:
            self.send(*self._unsent)

    def reloading(self) -> None:
        """Report that the configuration is being read again; the next ``READY=1`` ends that.

        Units of type notify-reload wait for the time (CLOCK_MONOTONIC, microseconds).
        """
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Report that the process is ending; nothing follows, least of all about the readiness of its last parts."""
        self.send("STOPPING=1")
        self._stopping = True


@value
class Edges(Value):
    """The clocks, randomness and service manager. ``clock``: Unix seconds. ``random``: numbers in [0, 1)."""

    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    random: Callable[[], float] = chance
    notifier: Notifier = field(default_factory=Notifier)


STUCK = 30.0
"""Seconds without a beat after which the loop counts as hanging; a scan that takes longer hangs as well."""


class Heartbeat:
    """Beats while ``run`` runs."""

    def __init__(self, edges: Edges, metrics: LoopMetrics) -> None:
        self._notifier = edges.notifier
        self._metrics = metrics
        self._clock = edges.clock
        self._monotonic = edges.monotonic
        self._last = edges.monotonic()

    def alive(self) -> bool:
        """Whether the loop was seen lately; safe to call from any thread."""
        return self._monotonic() - self._last < STUCK

    async def run(self) -> None:
        """Beat until cancelled; then notifies systemd that the end has begun, while other parts are still ending."""
        interval = min(SELDOM, self._notifier.watchdog_interval or SELDOM)
        try:
            while True:
                self._last = self._monotonic()
                rest = until_tick(interval, self._last)
                self._metrics.heartbeat.set(self._clock())
                self._notifier.send_unsent()
                if self._notifier.watchdog_interval is not None:
                    self._notifier.send(ALIVE)
                await asyncio.sleep(rest)
                self._metrics.delays.observe(max(0.0, self._monotonic() - self._last - rest))
        finally:
            self._notifier.stopping()
