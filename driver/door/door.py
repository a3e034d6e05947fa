"""Door two: the DRA driver's sockets, its registration with the kubelet, and the handover to a successor.

Level-triggered like door one: ``run`` checks the state (our sockets, the kubelet's last verdict), does the one missing
thing, and sleeps until something changes. The kubelet finds us only by its registry, so a restarted one needs nothing
from us. New sockets are served only if ours are gone, if the kubelet refused (kubelets up to 1.35 do not try again), or
if it never asked (it lost an event).

A handover keeps claims without a gap and without two keepers. From the call of ``hand_over`` the ending instance leaves
every call to its successor (``ClaimCalls``, ``Successor``). Kubelets take the newest connected instance, so once the
kubelet has accepted the successor, nothing new comes here; the successor says so by removing the name of our socket for
claims, which no kubelet looks at. Then the pending calls end, and only then our name in the kubelet's registry is
removed: that makes the kubelet drop the connection at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from pathlib import Path

from driver.claims.contracts import ClaimPreparer
from driver.devices.view import DoorView
from driver.door.claim_calls import ClaimCalls, ClaimReporter
from driver.door.health_stream import HealthReports
from driver.door.registration import (
    DoorOptions,
    DoorStatus,
    DraDoorObserver,
    RegistrationChanged,
    RegistrationState,
    claim_sockets,
    registration_sockets,
    sweep,
)
from driver.door.serving import DoorSockets
from driver.door.successor import Successor
from node.clocks import SELDOM, SYSTEM, Clocks, until_tick
from node.directories import DirectoryWatcher
from node.events import EventBus, EventRecorder, EventType
from node.sockets import SocketError, is_answered
from node.tasks import Alarm

log = logging.getLogger("ostler.driver")

GRACE = 2.0
"""Seconds for pending calls at the end without a successor, and on sockets that are replaced."""
LAST_WORDS = 0.5
"""Seconds for health streams and calls to end properly; the kubelet's log does not mention streams cut off."""
LOOK = 0.05
"""Seconds between checks whether a successor has taken over; nothing reports a removed file."""
PREDECESSORS = 1.0
"""Seconds between checks whether a predecessor's sockets are still served."""
FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0
"""Seconds until new sockets are served, growing from one failure to the next."""


class DraDoor:
    """Serves claims and health for as long as ``run`` runs; for the event loop only."""

    def __init__(
        self,
        options: DoorOptions,
        claims: ClaimPreparer,
        *,
        events: EventRecorder,
        observer: DraDoorObserver,
        clocks: Clocks = SYSTEM,
        bus: EventBus,
        is_alive: Callable[[], bool] = lambda: True,
        reporter: ClaimReporter | None = None,
    ) -> None:
        """``bus``: gets ``RegistrationChanged``. ``is_alive``: whether the inventory still scans its devices.

        While it does not, their health is not repeated and decays to unknown at the kubelet. ``reporter``: gets
        prepared claims.
        """
        self._options = options
        self._events = events
        self._observer = observer
        self._clocks = clocks
        self._random = clocks.random
        self._bus = bus
        self._calls = ClaimCalls(claims, observer, clocks=clocks, reporter=reporter)
        self._reports = HealthReports(options.pool, clocks=clocks, is_alive=is_alive, observer=observer)
        self._serving: DoorSockets | None = None
        self._old: list[DoorSockets] = []
        self._stopping: set[asyncio.Task[None]] = set()
        self._predecessors: tuple[Path, ...] = ()
        self._state = RegistrationState.WAITING
        self._detail = ""
        self._reported = ""
        self._since = 0.0
        self._delay = FIRST_DELAY
        self._handing_over = False
        self._woken = Alarm()

    def apply(self, view: DoorView) -> None:
        """Report the health of these devices to the kubelet."""
        self._reports.apply(view)

    async def run(self) -> None:
        """Serve until cancelled; sockets are gone afterwards, unless handed over.

        Only for the holder of the instance lock: sockets that nobody answers count as a dead predecessor's.
        """
        options = self._options
        for path in sweep(options):
            log.info("dead socket of a predecessor removed", extra={"path": str(path)})
        # The remaining sockets answer: they belong to an instance that hands over to this one.
        self._predecessors = (*claim_sockets(options.folder), *registration_sockets(options))
        watcher = DirectoryWatcher((options.folder, options.registry_dir), self._woken.set)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as group:
                await self._look()
                group.create_task(watcher.run(), name="driver directories")
                while True:
                    self._woken.clear()
                    delay = await self._look()
                    await self._woken.wait_until(loop.time() + delay)
        finally:
            if not self._handing_over:
                await self._end()

    def hand_over(self) -> None:
        """Leave calls to a successor from now on, and let the end of ``run`` keep the sockets; ``leave`` follows."""
        if self._serving is None or not self._serving.named:
            return
        self._handing_over = True
        self._calls.hand_over(Successor(self._options.folder, self._serving.made, self._clocks))
        self._set_state(RegistrationState.LEAVING, "calls are passed to the instance that takes over")

    async def leave(self, seconds: float) -> bool:
        """Whether a successor has taken over within ``seconds``; no socket is left afterwards."""
        if not self._handing_over:
            await self._end()
            return True
        try:
            async with asyncio.timeout(seconds):
                while self._serving is not None and self._serving.named:  # noqa: ASYNC110  # a file tells nobody
                    await asyncio.sleep(LOOK)
                await self._calls.idle()
        except TimeoutError:
            self._calls.give_up_handover()
            return False
        finally:
            await self._stop()
        return True

    def status(self) -> DoorStatus:
        """The state of the registration."""
        serving = self._serving
        return DoorStatus(
            self._state,
            serving.socket if serving is not None else None,
            serving.registration_socket if serving is not None else None,
            self._reports.streams,
            self._detail,
        )

    def waiting_for(self) -> tuple[str, ...]:
        """Why the door is not ready: one sentence, or none."""
        if self._state is RegistrationState.REGISTERED:
            return ()
        detail = f": {self._detail}" if self._detail else ""
        return (f"DRA driver {self._options.driver_name} is {self._state}{detail}",)

    def kubelet_asked(self, sockets: DoorSockets) -> None:
        """See ``RegisteredDoor``; questions on older sockets do not concern the newest registration."""
        if sockets is self._serving and not self._handing_over:
            self._observer.asked()
            if self._state is RegistrationState.REGISTERED and self._reports.streams:
                return  # The kubelet is connected: another client asked, such as grpcurl.
            self._since = self._clocks.monotonic()
            self._set_state(
                RegistrationState.OFFERED, "the kubelet has asked and has not said yet whether it accepts the driver"
            )

    def kubelet_decided(self, sockets: DoorSockets, refusal: str) -> None:
        """See ``RegisteredDoor``."""
        if sockets is not self._serving or self._handing_over:
            return
        self._since = self._clocks.monotonic()
        if refusal:
            self._observer.failed()
            self._grow()
            self._report("DriverRegistrationRefused", f"the kubelet refused the DRA driver: {refusal}")
            self._set_state(RegistrationState.FAILED, refusal)
        else:
            self._observer.registered()
            log.info("registered", extra={"driver": self._options.driver_name, "socket": str(sockets.socket)})
            self._set_state(RegistrationState.REGISTERED)
        self._woken.set()

    async def _look(self) -> float:
        """Do what is missing; returns seconds until the next check at the latest."""
        now = self._clocks.monotonic()
        self._remove_dead_predecessors()
        if self._serving is None or not self._serving.intact:
            if self._state is RegistrationState.FAILED and now < self._since + self._delay:
                return self._since + self._delay - now
            return await self._serve(now)
        if self._state is RegistrationState.REGISTERED:
            self._relieve()
            return PREDECESSORS if self._predecessors else min(self._options.patience, until_tick(SELDOM, now))
        patience = self._delay if self._state is RegistrationState.FAILED else self._options.patience + self._delay
        if now < self._since + patience:
            return self._since + patience - now
        if self._state is not RegistrationState.FAILED:
            self._observer.failed()
        self._grow()
        log.info("serving on new sockets: the kubelet did not accept the old ones", extra={"reason": self._detail})
        return await self._serve(now)

    async def _serve(self, now: float) -> float:
        """Serve new sockets; the old ones are removed when the kubelet has accepted the new ones."""
        serving = DoorSockets(self._options, self._calls, self._reports, self)
        self._since = now
        try:
            await serving.start()
        except SocketError as error:
            self._observer.failed()
            self._grow()
            self._report("DriverSocketFailed", str(error))
            self._set_state(RegistrationState.FAILED, str(error))
            return self._delay
        if self._serving is not None:
            self._old.append(self._serving)
        self._serving = serving
        self._set_state(RegistrationState.WAITING, f"no kubelet has asked yet in {self._options.registry_dir}")
        return self._options.patience

    def _relieve(self) -> None:
        """The kubelet has accepted our registration: older sockets may be removed."""
        self._delay = FIRST_DELAY
        self._reported = ""
        for path in self._predecessors:
            if path.parent == self._options.folder:
                _remove(path)
        while self._old:
            # In a task of its own: if this check is cancelled, half an end would leave a server running.
            stopping = asyncio.create_task(self._old.pop().stop(GRACE), name="old sockets")
            self._stopping.add(stopping)
            stopping.add_done_callback(self._has_stopped)

    def _has_stopped(self, stopping: asyncio.Task[None]) -> None:
        self._stopping.discard(stopping)
        # Streams have ended with the sockets, and kubelets up to 1.36 have forgotten the reported health.
        self._reports.repeat()

    def _remove_dead_predecessors(self) -> None:
        """Remove the dead names of an instance that was killed during its handover."""
        before, self._predecessors = self._predecessors, tuple(path for path in self._predecessors if path.exists())
        if len(self._predecessors) < len(before):
            self._reports.repeat()
        for path in self._predecessors:
            if not is_answered(path):
                _remove(path)

    def _grow(self) -> None:
        self._delay = min(2 * self._delay, LONGEST_DELAY) * (1 - self._random() / 4)

    def _report(self, reason: str, message: str) -> None:
        """Emit an event and log a line, once for each text."""
        if message != self._reported:
            self._reported = message
            log.warning(message, extra={"driver": self._options.driver_name})
            self._events.emit(EventType.WARNING, reason, message)

    def _set_state(self, state: RegistrationState, detail: str = "") -> None:
        if (state, detail) != (self._state, self._detail):
            self._state, self._detail = state, detail
            self._bus.publish(RegistrationChanged())

    async def _end(self) -> None:
        """Without a successor: give pending calls a moment, refuse new ones."""
        self._calls.refuse_new()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                await self._calls.idle()
        await self._stop()

    async def _stop(self) -> None:
        self._reports.end()
        servings = [*self._old, *([self._serving] if self._serving is not None else [])]
        self._old, self._serving = [], None
        await asyncio.gather(*self._stopping, *(serving.stop(LAST_WORDS) for serving in servings))
        await self._calls.close()


def _remove(path: Path) -> None:
    # What cannot be removed now is tried again at the next check; until then the kubelet only dials in vain.
    with contextlib.suppress(OSError):
        path.unlink()
