"""Shows the plugin's log and the kubelet's events between the answers of ``ostler kubelet``."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Protocol

from sandbox.kubelet.events import HealthChanged, KubeletEvent
from sandbox.standalone.event_lines import DETAILS, event_line

LINES_A_SECOND: Final = 200
"""Lines of the plugin's log that are shown of one second."""

MOST_WARNINGS: Final = 100
"""Different warnings of the API server that are shown."""

MOST_CHANGES: Final = 5
"""Changes of devices' health that are shown of one list."""


class Console(Protocol):
    """Shows lines that no command asked for."""

    def aside(self, source: str, text: str) -> None:
        """Show a line of ``source``: the plugin or the kubelet."""


class PluginLog:
    """Shows the plugin's log on ``console``, of a flood only the beginning of each second."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._second = 0
        self._shown = 0
        self._left_out = 0

    def line(self, text: str) -> None:
        """Show a line, unless there were too many in this second."""
        second = int(asyncio.get_running_loop().time())
        if second != self._second:
            self.flush()
            self._second, self._shown = second, 0
        if self._shown < LINES_A_SECOND:
            self._shown += 1
            self._console.aside("plugin", text)
        else:
            self._left_out += 1

    def flush(self) -> None:
        """Say how many lines were left out."""
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._console.aside("plugin", f"... {left_out} more lines within a second; 'log' shows the end")


class ServerLog(logging.Handler):
    """Shows the warnings of the API server's stand-in on ``console``, each text once: clients try again for ever.

    The server has threads of its own; lines are shown on the loop.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console
        self._loop = asyncio.get_running_loop()
        self._seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """See ``logging.Handler``."""
        text = record.getMessage()
        if text not in self._seen and len(self._seen) < MOST_WARNINGS:
            self._seen.add(text)
            self._loop.call_soon_threadsafe(self._console.aside, "apiserver", text)


class EventDisplay:
    """Shows the kubelet's events on ``console``, without ``prefix``, the folder that everything is below.

    While somebody watches, the watcher alone gets them.
    """

    def __init__(self, console: Console, prefix: str) -> None:
        self._console = console
        self._prefix = prefix
        self._watcher: Callable[[KubeletEvent], None] | None = None
        self._changes: list[HealthChanged] = []
        self._silent = False

    def watched_by(self, watcher: Callable[[KubeletEvent], None] | None) -> None:
        """Give every event to ``watcher``, details included; None ends that."""
        self._watcher = watcher

    def silence(self) -> None:
        """Show nothing any more: what happens from now on is our own end."""
        self._silent = True

    def show(self, event: KubeletEvent) -> None:
        """Show an event."""
        if self._watcher is not None:
            self._watcher(event)
        elif isinstance(event, HealthChanged):
            if not self._changes:
                # All changes of one list happen before the loop continues.
                asyncio.get_running_loop().call_soon(self._show_changes)
            self._changes.append(event)
        elif not isinstance(event, DETAILS):
            self.say(event_line(event))

    def say(self, text: str) -> None:
        """Show a line about the kubelet or the plugin's process."""
        if not self._silent:
            self._console.aside("kubelet", self.short(text))

    def short(self, text: str) -> str:
        """The text with paths below the folder."""
        return text.replace(self._prefix, "")

    def _show_changes(self) -> None:
        changes, self._changes = self._changes, []
        for change in changes[:MOST_CHANGES]:
            self.say(event_line(change))
        if len(changes) > MOST_CHANGES:
            self.say(f"{changes[0].resource}: {len(changes) - MOST_CHANGES} more devices changed their health")
