"""Another plugin has the resource: what ostler knows about it, and when the conflict is over.

ostler does not fight it. Each registration makes the node's devices unhealthy for a moment, and the end of our stream
would make a kubelet up to 1.36 disconnect whichever plugin is in the slot by then. So our stream stays open, unused,
while the other plugin lives. ostler holds back lists of its devices, because the kubelet would accept them and ask the
other plugin for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from node.clocks import Clocks
from node.events import EventRecorder, EventType
from node.sockets import is_answered
from plugin.kubelet import KubeletFolders, KubeletView
from plugin.listing import DeviceListing
from plugin.observer import PluginObserver
from plugin.registration import RegistrationDelay
from plugin.slot_ownership import Loss, foreign_sockets, sockets_of_others

log = logging.getLogger("ostler.registration")

RECENT = 600.0
"""Seconds within which ostler does not register at once after a second loss without a found plugin."""


class Conflict:
    """At most one at a time; ``sockets`` are the other plugin's, empty if none was found, ``message`` is for people."""

    def __init__(
        self,
        folders: KubeletFolders,
        listing: DeviceListing,
        view: KubeletView,
        *,
        events: EventRecorder,
        observer: PluginObserver,
        clocks: Clocks,
    ) -> None:
        self.begun = False
        self.sockets: tuple[Path, ...] = ()
        self.message = ""
        self._resource = listing.resource
        self._folders = folders
        self._listing = listing
        self._view = view
        self._events = events
        self._observer = observer
        self._clock = clocks.monotonic
        self._until = 0.0
        self._lost_at = -RECENT
        self._patience = RegistrationDelay(60.0, 600.0, clocks)
        self._unfound = RegistrationDelay(5.0, 3600.0, clocks)

    async def find(self, own: Sequence[Path], taken: frozenset[str]) -> tuple[Path, ...]:
        """Sockets of others that serve the resource, its devices or those ``taken``; asks every possible one."""
        candidates = sockets_of_others(self._folders.plugin_folders, own)
        return tuple(await foreign_sockets(candidates, self._resource, self._listing.devices, taken))

    def begin(self, sockets: tuple[Path, ...], *, hold: bool) -> None:
        """``sockets`` have the resource; ``hold``: hold back our lists from the kubelet meanwhile."""
        self.begun, self.sockets = True, sockets
        self._until = self._clock() + self._patience.delay()
        if hold:
            self._listing.hold()
        names = ", ".join(str(path) for path in sockets)
        self.message = (
            f"{self._resource}: another plugin serves it at {names}; remove that plugin, ostler waits meanwhile"
        )
        log.error("another plugin takes the resource", extra={"resource": self._resource, "foreign": names})
        self._events.emit(EventType.WARNING, "ForeignPlugin", self.message)
        self._observer.contested(self._resource)

    def begin_unfound(self, loss: Loss) -> float:
        """No other plugin was found; returns seconds until registering again, none the first time."""
        now = self._clock()
        if now - self._lost_at >= RECENT:
            self._unfound.reset()
            delay = 0.0
        else:
            delay = self._unfound.delay()
        self._lost_at = now
        self.begun, self.sockets = True, ()
        self._until = now + delay
        when = f"in {delay:.0f} s" if delay else "now"
        others = ", and no other plugin is found that serves it" if loss.theirs else ""
        self.message = (
            f"{self._resource}: the kubelet has other devices than ostler shows ({loss.words}){others}; "
            f"ostler registers again {when}"
        )
        self._events.emit(EventType.WARNING, "RegistrationLost", self.message)
        return delay

    def end(self) -> None:
        """No other plugin has the resource any more, or the kubelet was restarted and asks every plugin again."""
        self.begun, self.sockets = False, ()
        self._listing.release()

    def is_over(self) -> bool:
        """Whether ostler should take the resource back."""
        if self.sockets and not any(is_answered(path, 0.1) for path in self.sockets):
            self._patience.reset()
            return True
        now = self._clock()
        if now < self._until:
            return False
        if not self.sockets:
            return True
        # It lives, but may have lost the resource as well without noticing, as most plugins do.
        answer = self._view.answer
        if answer is None or not answer.ids.get(self._resource):
            return True
        self._until = now + self._patience.delay()
        return False
