"""Polls what has no event: a thread looks at every GPU at an interval, and at some at once on request.

Between looks it asks each GPU one question. So a GPU that stops answering is known within three seconds, even without
an event, and one that answers again is looked at until that has lasted.

It runs beside scans, which NVML allows, and serves one session as the watch for events does. What was known before
(counters, links that were up) is handed from session to session, since a reload of the driver heals no link. The MIG
mode may turn links off and on, so that with another one it is not known any more which have to be up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from node.clocks import SELDOM, until_ahead
from node.health.signal import Condition
from node.inventory.nvidia.nvml_binding import Binding, CallFailed
from node.inventory.nvidia.signals.conditions import conditions
from node.inventory.nvidia.signals.gpus import GpuId, SessionGpus
from node.inventory.nvidia.signals.vitals import Vitals, VitalsReader
from node.values import replace

PAUSE = 0.25
"""Least seconds between two requested looks, so that a storm of events causes no storm of looks."""
PULSE = SELDOM / 4
"""Seconds between two questions whether a GPU answers."""
WATCHED = 15.0
"""Seconds for which a GPU that answers again is looked at with each of these questions."""


class LookReceiver(Protocol):
    """The receiver; called from the thread of the polls, must return at once."""

    def on_look(
        self, found: Mapping[GpuId, tuple[Condition, ...]], vitals: Mapping[GpuId, Vitals], seconds: float
    ) -> None:
        """The conditions and vitals of each GPU looked at, and how long the look took."""


class LookMemory:
    """The memory of earlier looks; used by one thread at a time."""

    def __init__(self) -> None:
        self._before: dict[GpuId, Vitals] = {}
        self._up: dict[GpuId, frozenset[int]] = {}
        self._unchanged: dict[GpuId, tuple[Vitals, tuple[Condition, ...]]] = {}
        """The vitals of a GPU whose last two looks were equal, and what followed: the next equal one says the same."""

    def concluded(self, gpu: GpuId, now: Vitals) -> tuple[Condition, ...]:
        """The conditions of the GPU; remembers its vitals."""
        before = self._before.get(gpu, Vitals())
        unchanged = self._unchanged.get(gpu)
        if unchanged is not None and now == unchanged[0]:
            return unchanged[1]
        other_mode = None not in (now.mig, before.mig) and now.mig != before.mig
        up = frozenset() if other_mode else self._up.get(gpu, frozenset())
        found = conditions(now, before, up)
        if now.gone is None:
            self._before[gpu] = _answered(now, before)
            # Links may follow the mode a moment later.
            self._up[gpu] = up if other_mode else up | {link for link, active in now.links if active}
        self._unchanged.pop(gpu, None)
        if now == before:
            self._unchanged[gpu] = now, found
        return found


def _answered(now: Vitals, before: Vitals) -> Vitals:
    """With what is compared with the next look; what was not answered this time stands as it stood."""
    mig = before.mig if now.mig is None else now.mig
    volatile = before.ecc_volatile if now.ecc_volatile is None else now.ecc_volatile
    errors = dict(before.link_errors) | dict(now.link_errors)
    return replace(now, ecc_volatile=volatile, mig=mig, link_errors=tuple(errors.items()))


class NvmlPolls:
    """Looks at the GPUs of one session; ``poll`` runs in a thread of its own until the session ends."""

    def __init__(
        self,
        binding: Binding,
        receiver: LookReceiver,
        memory: LookMemory,
        ended: threading.Event,
        *,
        interval: float = SELDOM,
        pulse: float = PULSE,
    ) -> None:
        self._binding = binding
        self._receiver = receiver
        self._memory = memory
        self._over = ended
        self._interval = interval
        self._pulse = pulse
        self._gone: set[GpuId] = set()
        self._back: dict[GpuId, float] = {}
        """When those were first seen back that answer again."""
        self._reader = VitalsReader(binding)
        self._gpus = SessionGpus(binding)
        self._asked: set[GpuId] = set()
        self._bell = threading.Event()
        binding.ring(self._bell)
        self.looking: float | None = None
        """Since when a look is under way, by the monotonic clock."""

    @property
    def _ended(self) -> bool:
        return self._binding.ending or self._over.is_set()

    def look(self, gpus: Iterable[GpuId] = ()) -> None:
        """Look soon at these, or at all of them; safe to call from any thread."""
        self._asked.update(gpus or (GpuId(),))
        self._bell.set()

    def wake(self) -> None:
        """Check whether everything has ended; from any thread."""
        self._bell.set()

    def poll(self) -> None:
        """Serve the session; never raises for what the driver does."""
        due = pulse = time.monotonic()
        while True:
            self._bell.clear()
            if self._ended:
                return
            asked = self._taken()
            now = time.monotonic()
            whole = GpuId() in asked or now >= due
            if whole:
                due = now + until_ahead(self._interval, now)
            wanted = asked | self._changed(now) if now >= pulse and not whole else asked
            if whole or now >= pulse:
                pulse = now + until_ahead(self._pulse, now)
            if whole or wanted:
                self._look(None if whole else wanted)
            if asked:
                time.sleep(PAUSE)
            self._bell.wait(max(0.0, min(due, pulse) - time.monotonic()))

    def _changed(self, now: float) -> set[GpuId]:
        """GPUs that no longer answer, or answer again only for a short time."""
        gone: set[GpuId] = set()
        self.looking = time.monotonic()
        try:
            with self._binding.shared():
                for gpu in self._gpus.known:
                    if self._binding.ending:
                        return set()
                    if self._reader.is_gone(gpu):
                        gone.add(gpu.id)
        except CallFailed:
            return set()  # As for a look: the scan reports that the driver does not answer.
        finally:
            self.looking = None
        self._back = {gpu: since for gpu, since in self._back.items() if now - since < WATCHED}
        return (gone ^ self._gone) | (self._back.keys() - gone)

    def _note(self, vitals: Mapping[GpuId, Vitals]) -> None:
        """Note which GPUs answer, according to a look."""
        for gpu, now in vitals.items():
            if now.gone is not None:
                self._gone.add(gpu)
                self._back.pop(gpu, None)
            elif gpu in self._gone:
                self._gone.remove(gpu)
                self._back[gpu] = time.monotonic()

    def _taken(self) -> set[GpuId]:
        # One by one: another thread may add meanwhile, and what it adds rings the bell again.
        asked = set()
        while self._asked:
            asked.add(self._asked.pop())
        return asked

    def _look(self, only: set[GpuId] | None) -> None:
        began = self.looking = time.monotonic()
        vitals: dict[GpuId, Vitals] = {}
        try:
            with self._binding.shared():
                for gpu in self._gpus.listed():
                    if self._binding.ending:
                        return
                    if only is None or gpu.id in only:
                        vitals[gpu.id] = self._reader.read(gpu)
        except CallFailed:
            return  # The driver does not answer at all, which the scan reports: no GPU was read.
        finally:
            self.looking = None
        self._note(vitals)
        found = {gpu: self._memory.concluded(gpu, now) for gpu, now in vitals.items()}
        self._receiver.on_look(found, vitals, time.monotonic() - began)
