"""Live hardware as one object: uevents, link notifications and polls, each supervised, together one stream of hints.

A part that fails never takes the agent with it: it is logged once, shown in the status, tried again with growing
pauses, and meanwhile replaced by comparing folders; the inventory's full rescan goes on below all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from node.inventory.live import signatures
from node.inventory.live.links import LinkMonitor
from node.inventory.live.polls import Polls
from node.inventory.live.reach import EventState, Reach, look
from node.inventory.live.udev_stream import UdevStream, UeventStream, UeventsUnavailable
from node.inventory.live.uevent import Relevance
from node.inventory.live.uevents import UeventMonitor
from node.inventory.live.wakeups import Wakeups
from node.inventory.model import SourceState, SourceStatus
from node.values import Value, value

log = logging.getLogger("ostler.live")

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
"""Seconds before a failed part is tried again."""
_WELL = 10.0
"""Seconds of running after which a part counts as well and its pauses begin anew."""


@value
class LiveCounts(Value):
    """For metrics: all only grow."""

    uevents: int
    uevent_overflows: int
    link_messages: int
    link_overflows: int
    polled_changes: int
    wakeups: int


class Part(Protocol):
    """Something that runs until cancelled and may fail."""

    name: str

    async def run(self) -> None:
        """Run until cancelled; raises when it cannot go on."""
        ...


class LiveHardware:
    """Calls ``wake`` (on the loop) soon after hardware may have changed.

    ``sys``, ``proc`` and ``dev_root`` are the inventory's roots. ``reach`` and ``open_stream`` decide where uevents
    come from. pyudev is loaded and sockets are opened by ``run``, which may be started late: it wakes once when it
    begins to listen. All methods belong to the thread of the loop.
    """

    name = "events"

    def __init__(
        self,
        wake: Callable[[], None],
        *,
        sys: Path = Path("/sys"),
        proc: Path = Path("/proc"),
        dev_root: Path = Path("/"),
        reach: Callable[[], Reach] = look,
        open_stream: Callable[[EventState], UeventStream] = UdevStream,
    ) -> None:
        self._wakeups = Wakeups(wake)
        hint = self._wakeups.hint
        self._uevents = UeventMonitor(hint, Relevance(str(sys)), reach=reach, open_stream=open_stream)
        self._links = LinkMonitor(hint)
        self._polls = Polls(
            hint,
            (
                signatures.infiniband_ports(str(sys)),
                signatures.mig_instances(str(proc)),
                signatures.nvidia_module(str(sys), str(proc)),
                signatures.compute_partitions(str(sys)),
                signatures.device_files(str(dev_root).rstrip("/")),
            ),
            (
                (self._without_uevents, signatures.hardware(str(sys))),
                (lambda: not self._links.listening, signatures.interfaces(str(sys))),
            ),
        )
        self._faults: dict[str, str] = {}
        self._running = False

    @property
    def state(self) -> EventState:
        """From where events of hardware that comes and goes are had at the moment."""
        return self._uevents.state

    @property
    def counts(self) -> LiveCounts:
        """What was counted so far."""
        return LiveCounts(
            uevents=self._uevents.events,
            uevent_overflows=self._uevents.overflows,
            link_messages=self._links.messages,
            link_overflows=self._links.overflows,
            polled_changes=self._polls.changes,
            wakeups=self._wakeups.count,
        )

    def status(self, *, interfaces: bool = True) -> SourceStatus:
        """How it is, for people: failed means that some changes are seen late, and says how to better it.

        ``interfaces``: whether changes of network interfaces matter to anybody.
        """
        if not self._running:
            return SourceStatus(self.name, SourceState.WAITING, "not listening yet")
        trouble = list(self._faults.values())
        uevents = self._uevents
        if uevents.missed and (interfaces or uevents.state is not EventState.KERNEL):
            trouble.append(f"{uevents.missed}; set {uevents.hint}" if uevents.hint else uevents.missed)
        if self._polls.stalled:
            trouble.append("a device does not answer when its state is read")
        if trouble:
            return SourceStatus(
                self.name, SourceState.FAILED, f"hardware changes may be seen late: {'; '.join(trouble)}"
            )
        return SourceStatus(self.name, SourceState.OK, f"from {uevents.state}, rtnetlink and polls")

    async def run(self) -> None:
        """Listen until cancelled."""
        self._running = True
        try:
            async with asyncio.TaskGroup() as group:
                for part in (self._uevents, self._links, self._polls):
                    group.create_task(self._supervise(part), name=f"live {part.name}")
        finally:
            self._running = False
            self._wakeups.close()

    def _without_uevents(self) -> bool:
        return self._uevents.state is EventState.POLLING or bool(self._uevents.missed)

    async def _supervise(self, part: Part) -> None:
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            began = loop.time()
            watch = loop.call_later(_WELL, self._faults.pop, part.name, None)
            try:
                await part.run()
            except Exception as error:  # noqa: BLE001 - the log and the status tell; polling goes on in its place
                self._failed(part.name, error)
            finally:
                watch.cancel()
            if loop.time() - began > _WELL:
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _failed(self, name: str, error: Exception) -> None:
        text = str(error) if isinstance(error, UeventsUnavailable) else f"{name}: {str(error) or type(error).__name__}"
        if self._faults.get(name) == text:
            return
        self._faults[name] = text
        log.warning("live hardware: a part failed, folders are compared instead", extra={"part": name, "error": text})
