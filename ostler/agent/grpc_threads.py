"""Starts gRPC's threads in such a way that they seldom wake while nothing happens.

No setting of gRPC makes them wake less often, but a thread has what the kernel knows of the one that starts it:

- The **timer** thread wakes every second, for timers that gRPC has moved to its event engine. The kernel may end a
  thread's waits late by its timer slack. No other thread may have a long one, because a wait for a lock that is taken
  would end late as well: the first connection would take as long.
- The **event engine** has a few worker threads, and timers of its own. Every second the worker that waits for these
  hands the wait on to whoever takes it first: itself, or the worker that it wakes. One that gave it away looks for
  other work after 15 ms, 20 ms, 26 ms and so on. So a worker that wakes must not take the processor from the one that
  has woken it, which is what the policy SCHED_BATCH says. The connections of servers are read by another thread
  (``ostler.cli.main:GRPC_SETTINGS``), which has the usual policy.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc
import grpc.aio

TIMER_SLACK = 9.5
"""Seconds by which the waits of gRPC's timer thread may end late."""
_SET_TIMER_SLACK = 29
"""PR_SET_TIMERSLACK of prctl(2): nanoseconds; 0 stands for what the calling thread was started with."""


class GrpcThreads:
    """gRPC's threads, from now on until ``release``; make it in the event loop, before any server and channel."""

    def __init__(self) -> None:
        with _late_waits():
            timer = grpc.local_server_credentials()
        # It starts the thread that waits for calls.
        grpc.aio.init_grpc_aio()
        with _without_preemption():
            engine = grpc.aio.server()
        self._kept: tuple[object, ...] = timer, engine
        """Nothing uses them. gRPC ends its threads with the last of its objects, and would start others later."""

    def release(self) -> None:
        """Let the threads end with the last server and channel."""
        self._kept = ()


@contextmanager
def _late_waits() -> Iterator[None]:
    """Waits of threads that are started inside may end late; does nothing if the C library cannot do that."""
    set_slack = None
    with suppress(OSError, AttributeError):
        set_slack = ctypes.CDLL(None).prctl
    if set_slack is not None:
        set_slack(_SET_TIMER_SLACK, ctypes.c_ulong(round(TIMER_SLACK * 1e9)), 0, 0, 0)
    try:
        yield
    finally:
        if set_slack is not None:
            set_slack(_SET_TIMER_SLACK, ctypes.c_ulong(0), 0, 0, 0)


@contextmanager
def _without_preemption() -> Iterator[None]:
    """Threads that are started inside interrupt no others when they wake; unless a person has chosen a policy."""
    usual = False
    with suppress(OSError):
        usual = os.sched_getscheduler(0) == os.SCHED_OTHER
        if usual:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        if usual:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
