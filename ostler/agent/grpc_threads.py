"""Starts gRPC's threads in such a way that they take the processor from nobody when they wake.

That is what the policy SCHED_BATCH says. No setting of gRPC does it, but a thread has the policy of the one that starts
it. Two kinds of threads have it:

- The thread that reads the connections of servers (``ostler.cli.main:GRPC_SETTINGS``) wakes the event loop, and is
  woken by it, several times in each call. Without interruptions both take less time. The price: while more threads want
  a processor than there are, it waits longer for one.
- The event engine has a few worker threads, and timers of its own. Every second the worker that waits for these hands
  the wait on to whoever takes it first: itself, or the worker that it wakes. One that gave it away looks for other work
  after 15 ms, 20 ms, 26 ms and so on. A worker that interrupts nobody seldom takes it.

No thread of gRPC may get a timer slack in the same way, which would let it wake less often, too: waits for a lock that
is taken would end late as well, and a first connection has taken twice the slack.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import grpc.aio


class GrpcThreads:
    """gRPC's threads, from now on until ``release``; make it in the event loop, before any server and channel."""

    def __init__(self) -> None:
        with _without_preemption():
            # It starts the thread that reads connections; the first server starts the workers.
            grpc.aio.init_grpc_aio()
            engine = grpc.aio.server()
        self._kept: grpc.aio.Server | None = engine
        """Nothing uses it. gRPC ends its threads with the last of its objects, and would start others later."""

    def release(self) -> None:
        """Let the threads end with the last server and channel."""
        self._kept = None


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
