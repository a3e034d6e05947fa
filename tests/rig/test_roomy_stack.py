"""Calls at any depth are calls alone: none of them gets memory from the kernel and gives it back."""

from __future__ import annotations

import resource
import threading

from tests.making.roomy_stack import call_with_room

CALLS, DEPTHS = 200, 300


def _nothing() -> None:
    pass


def _faults(depth: int) -> int:
    """Pages that the kernel gave to this thread during a loop of calls at this depth."""
    if depth:
        return _faults(depth - 1)
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        _nothing()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def most_faults() -> int:
    """Of the loops at all these depths; about ``CALLS`` if a chunk of the stack ends there."""
    return max(_faults(depth) for depth in range(DEPTHS))


def test_below_a_frame_with_room_no_loop_of_calls_gets_memory_with_every_call() -> None:
    """In a thread, which has a stack of its own: that of the worker has room already."""
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(call_with_room(most_faults)))
    thread.start()
    thread.join()
    assert found[0] < CALLS // 2
