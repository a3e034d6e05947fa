"""Telling systemd how the agent is: the notification protocol of sd_notify(3), one datagram a message."""

from __future__ import annotations

import logging
import os
import socket
import time

log = logging.getLogger("ostler.systemd")

PATIENCE = 0.2
"""Most seconds that a message may wait for room in systemd's queue: the loop stands still meanwhile."""


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; does nothing where there is none.

    The variables are taken out of the environment, so that no child sends in our name.
    """

    def __init__(self, environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        self._stopping = False
        watchdog = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        meant_for_us = not pid or pid == str(os.getpid())
        self.watchdog_interval = int(watchdog) / 2_000_000 if watchdog.isdigit() and meant_for_us else None
        """Seconds between signs of life: half of what systemd allows; None when it expects none."""

    def send(self, *lines: str) -> bool:
        """Send lines such as ``READY=1``; whether they were taken, or nobody wants them.

        A manager that does not listen is logged and otherwise ignored.
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
            log.warning("systemd could not be told", extra={"lines": lines, "error": error.strerror or str(error)})
            return False
        return True

    def reloading(self) -> None:
        """Say that the configuration is being read again; the next ``READY=1`` ends that.

        The time (CLOCK_MONOTONIC, microseconds) is what units of type notify-reload wait for.
        """
        self.send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self) -> None:
        """Say that the process ends; nothing is said after that, least of all how ready its last parts are."""
        self.send("STOPPING=1")
        self._stopping = True
