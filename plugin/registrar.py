"""Keeps one resource registered with the kubelet, whatever happens to either side.

Level-triggered: ``run`` checks the current state (our socket, the kubelet's socket, open device streams, the last
answer of the kubelet), does the one missing thing, and sleeps until something changes. The truth is the devices that
the kubelet reports (``SlotOwnership``). Once this kubelet has accepted our registration, an open ListAndWatch stream
counts as registered until the kubelet contradicts, and while one is open nothing is done: a second registration beside
a live stream makes kubelets up to 1.36 disconnect the wrong one. The registrar does not fight a plugin that takes the
resource over, but waits for its end (``Conflict``). It uses one path of registration at a time: first
``plugins_registry``, where a restarted kubelet finds us by itself; Register on ``kubelet.sock`` if a live kubelet does
not ask within 5 s.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from node.clocks import SELDOM, Clocks, until_tick
from node.events import EventBus, EventRecorder, EventType
from node.sockets import SocketError, is_answered
from node.tasks import Alarm
from plugin.conflict import Conflict
from plugin.kubelet import KubeletFolders, KubeletView, QuestionPace, RegisterRefused, RegistrationPath, register
from plugin.listing import DeviceListing
from plugin.observer import PluginObserver
from plugin.registration import (
    PluginRegistrationState,
    PluginRegistrationStatus,
    Predecessors,
    RegistrarMemory,
    RegistrationBegun,
    RegistrationDelay,
)
from plugin.servicer import OPTIONS, DevicePluginServicer
from plugin.serving import Serving
from plugin.slot_ownership import Loss, SlotOwnership

log = logging.getLogger("ostler.registration")

STREAM_PATIENCE = 5.0
"""Seconds within which a kubelet that accepted a registration must open the device stream."""
GRACE = {RegistrationPath.REGISTRY: 2.0, RegistrationPath.REGISTER: 0.5}
"""Seconds after the end of a stream within which the kubelet may open a new one by itself."""
FIGHT_WINDOW = 60.0
"""Seconds within which a second loss to another registration counts as a conflict."""


class Registrar:
    """Serves ``servicer`` on a socket of its own and keeps it registered as ``resource``.

    Publishes ``RegistrationBegun`` on ``bus`` whenever the kubelet is about to use the socket.
    """

    def __init__(
        self,
        resource: str,
        folders: KubeletFolders,
        listing: DeviceListing,
        servicer: DevicePluginServicer,
        *,
        bus: EventBus,
        events: EventRecorder,
        observer: PluginObserver,
        clocks: Clocks,
        view: KubeletView,
        pace: QuestionPace,
        predecessors: Predecessors,
    ) -> None:
        self.resource = resource
        self.status = PluginRegistrationStatus(path=folders.paths[0])
        self._folders = folders
        self._listing = listing
        self._bus = bus
        self._events = events
        self._observer = observer
        self._clock = clocks.monotonic
        self._serving = Serving(folders, listing, servicer, registrant=self, predecessors=predecessors)
        self._hands_over = False
        self._woken = Alarm()
        self._seen = RegistrarMemory()
        self._serve_backoff = RegistrationDelay(1.0, 30.0, clocks)
        self._register_backoff = RegistrationDelay(0.05, 30.0, clocks)
        self._refused_backoff = RegistrationDelay(5.0, 300.0, clocks)
        self._pace = pace
        self._possession = SlotOwnership(listing, folders, view, pace=pace, woken=self._woken)
        self._contest = Conflict(folders, listing, view, events=events, observer=observer, clocks=clocks)

    def wake(self) -> None:
        """Check again: something may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Serve and stay registered until cancelled; then remove the socket and end every stream.

        After ``hand_over``, a stream that the kubelet opened through its registry stays open until ``stop``.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                self._woken.clear()
                delay = await self._look()
                await self._woken.wait_until(loop.time() + max(delay, 0.01))
        finally:
            self._possession.forget()
            # In a conflict the slot belongs to the other plugin, and emptying it would hide that plugin's end.
            if self._hands_over and not self._contest.begun:
                await self._serving.leave()
            else:
                await self.stop()

    def hand_over(self) -> None:
        """Let the end of ``run`` leave the kubelet's stream open, so that a successor can take over."""
        self._hands_over = True

    async def relieved(self) -> None:
        """Wait until the kubelet has switched to a successor."""
        await self._serving.wait_name_gone()
        while self._serving.endpoint is not None and self._listing.streams:
            self._woken.clear()
            await self._woken.wait()

    async def stop(self) -> None:
        """Remove the socket and end every stream."""
        await self._serving.stop()

    async def _look(self) -> float:
        """Do the one missing thing; returns the seconds until the next check if nothing happens."""
        now = self._clock()
        self._see_kubelet(now)
        if self._contest.begun:
            if not self._contest.is_over():
                return self._pace.alive
            await self._take_back()
        if not self._serving.intact:
            delay = await self._serve(now)
            if delay:
                return delay
        if self._listing.streams and self._seen.accepted:
            self._serving.relieve()
            return await self._settle(now)
        self._see_stream_end(now)
        if self._seen.kubelet is None or not is_answered(self._folders.socket):
            self._set_state(PluginRegistrationState.WAITING, f"no kubelet answers at {self._folders.socket}")
            if self._seen.kubelet is None:
                return SELDOM
            # The kubelet is about to listen on a new socket; one that stays silent belongs to a dead kubelet.
            return 0.02 if now - self._seen.kubelet_since < STREAM_PATIENCE else 1.0
        if await self._lost_again(now):
            return self._pace.alive
        if self._serving.path is RegistrationPath.REGISTRY:
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
            if kubelet is not None and kubelet != self._seen.registered_with:
                # Streams that are still open do not belong to this kubelet: people open some too.
                self._seen.accepted = False
            self._contest.end()
            self._register_backoff.reset()
            if self._seen.registered_with is None and self._serving.prefers_registry():
                self._serving.reopen()

    def _see_stream_end(self, now: float) -> None:
        if self._seen.streaming:
            self._seen.streaming = False
            self._seen.stream_ended = now
            self._possession.ended(GRACE[self._serving.path])
            log.info("the kubelet's device stream ended", extra={"resource": self.resource})
            self._set_state(PluginRegistrationState.OFFERED, "the kubelet ended the device stream")

    async def _settle(self, now: float) -> float:
        seen = self._seen
        if not seen.streaming:
            seen.streaming = True
            seen.refusal, seen.unanswered = "", 0
            for backoff in (self._register_backoff, self._refused_backoff, self._serve_backoff):
                backoff.reset()
            self._observer.registered(self.resource, self._serving.path.value)
            log.info("registered", extra={"resource": self.resource, "path": self._serving.path.value})
            self._possession.registered(now)
        lost = self._possession.look(now)
        if lost:
            return await self._lose(lost)
        if self._possession.found:
            # If the devices are the same, the kubelet may keep receiving our list.
            return self._begin_contest(self._possession.found, hold=not self._possession.agrees)
        self._set_state(PluginRegistrationState.REGISTERED)
        return until_tick(SELDOM, now)

    async def _serve(self, now: float) -> float:
        """Serve on a new socket; returns 0 on success, else the seconds until the next attempt."""
        for path in self._serving.own:
            log.info("serving on a new socket", extra={"resource": self.resource, "old": str(path)})
        try:
            old = await self._serving.start()
        except SocketError as error:
            if self.status.detail != str(error):
                log.warning("cannot serve the socket", extra={"resource": self.resource, "reason": str(error)})
                self._events.emit(EventType.WARNING, "SocketFailed", f"{self.resource}: {error}")
            self._observer.failed(self.resource, self._serving.path.value)
            self._set_state(PluginRegistrationState.FAILED, str(error))
            return self._serve_backoff.delay()
        self._seen.served_at = now
        self._seen.refusal = ""
        self._seen.registered_with = None
        self._seen.accepted = False
        self._seen.streaming = False
        self._possession.forget()
        self._set_state(PluginRegistrationState.OFFERED)
        if old is not None:
            had_stream = self._listing.streams > 0
            await old.stop()
            if had_stream:
                # Kubelets up to 1.36 that see the old stream end after a new registration disconnect the new one.
                self._seen.not_before = self._clock() + 0.1
        return 0.0

    def kubelet_asked(self) -> None:
        """The plugin watcher has found the socket and asked what it serves; see ``Registrant``."""
        self._seen.asked_at = self._clock()
        self._begin()
        self.wake()

    def kubelet_decided(self, refusal: str) -> None:
        """The plugin watcher has accepted or refused the registration; see ``Registrant``."""
        self._seen.refusal = refusal
        self._seen.refused_at = self._clock()
        if not refusal:
            # Read again: this may be a new kubelet that no check has seen yet.
            self._seen.accepted, self._seen.registered_with = True, self._folders.socket_id()
        else:
            self._observer.failed(self.resource, self._serving.path.value)
            log.warning("the kubelet refused the registration", extra={"resource": self.resource, "reason": refusal})
            self._events.emit(EventType.WARNING, "RegistrationRefused", f"{self.resource}: {refusal}")
        self.wake()

    async def _await_question(self, now: float) -> float:
        """The registry path: wait for the kubelet's call, and give the registry up if none comes."""
        seen = self._seen
        if seen.refusal:
            # Kubelets since 1.36 try again by themselves; older ones only for a new socket.
            return await self._serve_again(now, seen.refused_at, seen.refusal)
        waiting_since = max(seen.served_at, seen.kubelet_since, seen.asked_at)
        if seen.stream_ended > waiting_since:
            patience = GRACE[RegistrationPath.REGISTRY]
            waiting_since = seen.stream_ended
        else:
            patience = self._folders.patience
        left = waiting_since + patience - now
        if left > 0:
            self._set_state(PluginRegistrationState.OFFERED, "waiting for the kubelet to ask")
            return left
        self._observer.failed(self.resource, self._serving.path.value)
        asked = seen.asked_at >= max(seen.served_at, seen.kubelet_since)
        if asked and seen.unanswered < 2:
            seen.unanswered += 1
            self._serving.reopen()
            return 0.0
        return self._give_up_registry(asked)

    def _give_up_registry(self, asked: bool) -> float:
        reason = "asked but opened no device stream" if asked else f"did not ask within {self._folders.patience:g} s"
        if RegistrationPath.REGISTER not in self._folders.paths:
            self._set_state(PluginRegistrationState.FAILED, f"the kubelet {reason} ({self._folders.registry})")
            self._serving.reopen()
            return self._refused_backoff.delay()
        log.warning(
            "the kubelet %s, registering by Register instead",
            reason,
            extra={"resource": self.resource, "registry": str(self._folders.registry)},
        )
        self._serving.give_up_registry()
        return 0.0

    async def _serve_again(self, now: float, since: float, reason: str) -> float:
        self._set_state(PluginRegistrationState.FAILED, reason)
        if self._seen.not_before <= since:
            self._seen.not_before = since + self._refused_backoff.delay()
        if now < self._seen.not_before:
            return self._seen.not_before - now
        return await self._serve(now)

    async def _register(self, now: float) -> float:
        """The Register path: call Register, unless the kubelet was called and is about to open the stream."""
        seen = self._seen
        is_called = seen.registered_with == seen.kubelet and seen.registered_at > seen.stream_ended
        quiet = seen.registered_at + STREAM_PATIENCE if is_called else seen.not_before
        if not is_called and seen.stream_ended and seen.registered_with == seen.kubelet:
            quiet = max(quiet, seen.stream_ended + GRACE[RegistrationPath.REGISTER])
        if now < quiet:
            return quiet - now
        endpoint = self._serving.endpoint
        if endpoint is None:
            return 0.0
        if is_called:
            self._observer.failed(self.resource, self._serving.path.value)
        self._begin()
        try:
            await register(self._folders.socket, self.resource, endpoint.path.name, OPTIONS)
        except RegisterRefused as error:
            self._observer.failed(self.resource, self._serving.path.value)
            if self.status.detail != error.reason:
                log.warning("Register failed", extra={"resource": self.resource, "reason": error.reason})
            self._set_state(PluginRegistrationState.FAILED, error.reason)
            delay = self._register_backoff.delay()
            seen.not_before = self._clock() + delay
            return delay
        # Read again: a new kubelet that no check has seen yet may have answered. From 1.37 on it refuses a second call.
        seen.accepted, seen.registered_with, seen.registered_at = True, self._folders.socket_id(), self._clock()
        if not self._listing.streams:
            self._set_state(
                PluginRegistrationState.OFFERED, "registered, waiting for the kubelet to open the device stream"
            )
        return STREAM_PATIENCE

    def _begin(self) -> None:
        self._observer.attempted(self.resource, self._serving.path.value)
        self._bus.publish(RegistrationBegun(self.resource))

    async def _lost_again(self, now: float) -> bool:
        """Count a stream that the same, live kubelet ended; returns whether another plugin is the cause.

        One loss is enough if the kubelet has devices of the resource without us.
        """
        seen = self._seen
        grace = GRACE[self._serving.path]
        if not seen.stream_ended or seen.registered_with != seen.kubelet or now < seen.stream_ended + grace:
            return False
        if seen.losses and seen.losses[-1] == seen.stream_ended:
            return False
        seen.losses.append(seen.stream_ended)
        taken = self._possession.taken_since(seen.stream_ended)
        if not taken and (len(seen.losses) < 2 or seen.losses[1] - seen.losses[0] > FIGHT_WINDOW):
            return False
        foreign = await self._contest.find(self._serving.own, taken)
        if foreign:
            self._begin_contest(foreign, hold=False)
        return bool(foreign)

    async def _lose(self, loss: Loss) -> float:
        """The kubelet has other devices although our stream is open; returns the seconds until the next check."""
        log.error("the kubelet has other devices", extra={"resource": self.resource, "difference": loss.words})
        self._observer.lost(self.resource)
        # If the kubelet has no devices at all, no other plugin has the resource.
        foreign = await self._contest.find(self._serving.own, loss.taken) if loss.theirs else ()
        if foreign:
            return self._begin_contest(foreign, hold=True)
        delay = self._contest.begin_unfound(loss)
        self._set_state(PluginRegistrationState.CONTESTED, self._contest.message)
        return delay

    def _begin_contest(self, foreign: tuple[Path, ...], *, hold: bool) -> float:
        self._possession.forget()
        self._contest.begin(foreign, hold=hold)
        self._set_state(PluginRegistrationState.CONTESTED, self._contest.message)
        return self._pace.alive

    async def _take_back(self) -> None:
        """End the rest of our registration, so that the kubelet sees its end before the new one."""
        log.info("taking the resource back", extra={"resource": self.resource})
        seen = self._seen
        ended = self._listing.streams > 0
        await self.stop()
        self._contest.end()
        seen.losses.clear()
        if ended:
            seen.not_before = self._clock() + 0.1

    def _set_state(self, state: PluginRegistrationState, detail: str = "") -> None:
        (socket,) = self._serving.own or (None,)
        self.status = PluginRegistrationStatus(state, self._serving.path, socket, detail)
