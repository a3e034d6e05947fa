"""NVML's events: a thread that waits for what the driver reports, so that an XID is known the moment it happens.

The thread serves one session and ends with it: the event set is freed before nvmlShutdown, which waits for that inside
``Binding.detach``. A wait cannot be interrupted, so it lasts at most ``WAIT``; shorter waits would cost more while
nothing happens, longer ones would let a quiesce wait. Single-bit errors are corrected by the memory and not listened
to.

A GPU without events stays unmonitored, which the status names and which is no fault. A lost GPU fails the wait for all:
the set is then made anew without the lost ones, which are tried again now and then.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

from node.clocks import until_tick
from node.inventory.nvidia.nvml_binding import Binding, CallFailed, Handle, NvmlEvent
from node.inventory.nvidia.nvml_calls import GPU_GONE, NEVER, SESSION_ENDED
from node.inventory.nvidia.signals.gpus import Gpu, GpuId, SessionGpus
from node.values import Value, value

log = logging.getLogger("ostler.nvml")

WAIT = 3600
"""Milliseconds of one wait: so long a quiesce or a reloaded driver may have to wait for the thread. A lost GPU is seen
sooner by the pulses of the polls."""
RETRY = 10.0
"""Seconds until a GPU that could not be registered, or a set that could not be made, is tried again."""
LOST_PAUSE = 1.0
"""Seconds between two sets when waits fail at once."""

DOUBLE_BIT, XID, UNAVAILABLE, RECOVERY_ACTION = 0x2, 0x8, 0x4000, 0x8000
"""Types of events (nvmlEventType...)."""
WANTED = DOUBLE_BIT | XID | UNAVAILABLE | RECOVERY_ACTION


@value
class GpuEvent(Value):
    """Something that happened to a GPU; ``kind`` is NVML's type, ``data`` the XID of that kind."""

    gpu: GpuId
    kind: int
    data: int
    gpu_instance: int
    compute_instance: int


class EventReceiver(Protocol):
    """The receiver; all calls come from the thread of the watch and must return at once."""

    def on_event(self, event: GpuEvent) -> None:
        """An event."""

    def on_fault(self) -> None:
        """A GPU is lost, or the driver does not answer: look at all GPUs."""

    def on_unmonitored(self, gpus: dict[GpuId, str]) -> None:
        """Note that these GPUs report no events, with the reason; the others do."""


class EventWatch:
    """Waits for the events of one session; ``watch`` runs in a thread of its own until the session ends."""

    def __init__(self, binding: Binding, receiver: EventReceiver, ended: threading.Event, wait: int = WAIT) -> None:
        self._binding = binding
        self._receiver = receiver
        self._over = ended
        self._wait = wait
        self._listed = SessionGpus(binding)
        self._gpus: dict[int, Gpu] = {}
        self._missing: dict[int, str] = {}
        self._reported: dict[GpuId, str] | None = None
        self.waiting: float | None = None
        """Since when it is in a wait, by the monotonic clock."""

    @property
    def _ended(self) -> bool:
        return self._binding.ending or self._over.is_set()

    def watch(self) -> None:
        """Serve the session; never raises for faults of the driver."""
        try:
            with self._binding.shared():
                while not self._ended:
                    self._binding.pause(self._serve())
        except CallFailed:
            return  # The session had ended before; the next one has a watch of its own.

    def _serve(self) -> float:
        """Serve one event set until its end; returns the seconds until the next may be made."""
        try:
            event_set = self._binding.handle("nvmlEventSetCreate")
        except CallFailed as failed:
            if failed.error in SESSION_ENDED:
                self._receiver.on_fault()
            self._report(dict.fromkeys((GpuId(),), f"{failed.call} says {failed.error}"))
            return RETRY
        began = time.monotonic()
        try:
            return self._listen(event_set)
        except CallFailed as failed:
            if not self._ended:
                log.warning("NVML's events failed", extra={"call": failed.call, "error": failed.error})
                self._receiver.on_fault()
            if failed.error not in GPU_GONE:
                return RETRY
            # At once, because the others may have events; but not in a busy loop.
            return 0.0 if time.monotonic() - began > LOST_PAUSE else LOST_PAUSE
        finally:
            self._free(event_set)

    def _listen(self, event_set: Handle) -> float:
        self._gpus = {gpu.handle.address: gpu for gpu in self._listed.listed()}
        self._missing = dict.fromkeys(self._gpus, "")
        wait = self._binding.events("nvmlEventSetWait_v2", event_set)
        due = 0.0
        while not self._ended:
            if self._missing and time.monotonic() >= due:
                self._register(event_set)
                due = time.monotonic() + RETRY
            if len(self._missing) == len(self._gpus):
                # This set could never deliver an event.
                return RETRY
            event = self._next(wait)
            if event is not None:
                self._receiver.on_event(event)
        return 0.0

    def _next(self, wait: Callable[[int], NvmlEvent | None]) -> GpuEvent | None:
        self.waiting = time.monotonic()
        # A wait that ended just before its tick would be followed by one of no length.
        longest = 1 + math.floor(1000 * until_tick(self._wait / 1000, self.waiting))
        try:
            event = wait(longest)
        finally:
            self.waiting = None
        if event is None:
            return None
        gpu = self._gpus.get(event.address)
        if gpu is None:
            log.warning("an event of a GPU that NVML does not list", extra={"kind": event.kind, "data": event.data})
            return None
        return GpuEvent(gpu.id, event.kind, event.data, event.gpu_instance, event.compute_instance)

    def _register(self, event_set: Handle) -> None:
        """Register every GPU that is not registered yet."""
        for address in list(self._missing):
            reason = self._missing[address]
            if reason in NEVER:
                continue
            try:
                self._register_one(event_set, self._gpus[address].handle)
            except CallFailed as failed:
                if failed.error in SESSION_ENDED:
                    raise
                self._missing[address] = failed.error
            else:
                del self._missing[address]
        self._report({self._gpus[address].id: reason for address, reason in self._missing.items()})

    def _register_one(self, event_set: Handle, gpu: Handle) -> None:
        binding = self._binding
        try:
            # A lost GPU can be registered and would fail every wait.
            binding.field("nvmlDeviceGetMemoryInfo", "total", gpu)
        except CallFailed as failed:
            if failed.error in GPU_GONE or failed.error in SESSION_ENDED:
                raise
        wanted = WANTED & binding.number("nvmlDeviceGetSupportedEventTypes", gpu)
        if not wanted & XID:
            raise CallFailed("nvmlDeviceGetSupportedEventTypes", "NOT_SUPPORTED")
        binding.do("nvmlDeviceRegisterEvents", gpu, wanted, event_set)

    def _report(self, missing: dict[GpuId, str]) -> None:
        if missing != self._reported:
            self._reported = missing
            self._receiver.on_unmonitored(missing)

    def _free(self, event_set: Handle) -> None:
        try:
            self._binding.give_back("nvmlEventSetFree", event_set)
        except CallFailed as failed:
            # It ends with the session; an error of a driver that is gone is no news.
            log.debug("an event set could not be freed", extra={"error": failed.error})
