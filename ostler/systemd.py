"""Telling systemd how the agent is: the notification protocol of sd_notify(3), one datagram a message."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger("ostler.systemd")


class Notifier:
    """Sends to ``$NOTIFY_SOCKET``; does nothing where there is none.

    The variables are taken out of the environment, so that no child sends in our name.
    """

    def __init__(self, environment: dict[str, str] | os._Environ[str] = os.environ) -> None:
        self._address = environment.pop("NOTIFY_SOCKET", "")
        watchdog = environment.pop("WATCHDOG_USEC", "")
        pid = environment.pop("WATCHDOG_PID", "")
        meant_for_us = not pid or pid == str(os.getpid())
        self.watchdog_interval = int(watchdog) / 2_000_000 if watchdog.isdigit() and meant_for_us else None
        """Seconds between signs of life: half of what systemd allows; None when it expects none."""

    def send(self, *lines: str) -> None:
        """Send lines such as ``READY=1``; a manager that does not listen is logged and otherwise ignored."""
        if not self._address:
            return
        # A leading @ is systemd's way of writing an abstract socket.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.connect(address)
                channel.send("\n".join(lines).encode())
        except OSError as error:
            log.warning("systemd could not be told", extra={"lines": lines, "error": error.strerror})
