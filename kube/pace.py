"""When a reflector asks again, and what: the pure part of ``kube.reflector``.

A watch that lived for a while and ended is normal, and is begun anew at once. Everything that ended soon counts as a
failure, whatever the server said, also a stream that it opened and closed in good order: so no answer, and no
combination of answers, makes us ask faster than the policy's waits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kube.backoff import Backoff, BackoffPolicy
from kube.errors import Gone, RequestError, ServerFault, TooManyRequests, Unreachable

_PATIENCE = 3
"""Watches that the server refuses or ends at once, one after the other, before it is asked for a list again."""
_SILENCE = 150.0
"""Seconds without one word, where servers send a bookmark each minute.

Whoever asks for a version that is still to come, because the server's data was restored from a backup, gets a watch
without an error that says nothing until the versions have caught up.
"""


@dataclass(frozen=True, slots=True)
class Next:
    """Seconds to wait, and whether the next thing is a list (else: a watch from where we are)."""

    wait: float
    list_first: bool


class Pace:
    """``settled``: seconds after which a watch counts as one that worked."""

    def __init__(self, policy: BackoffPolicy, random: Callable[[], float], settled: float) -> None:
        self._backoff = Backoff(policy, random)
        self._settled = settled
        self._failures = 0
        self._may_list_at_once = True

    def after(self, fault: Exception | None, lived: float, *, heard: bool = True) -> Next:
        """What to do after a turn that ended by ``fault``, None for in good order.

        Its watch ``lived`` seconds, and ``heard`` of changes or bookmarks.
        """
        worked = lived >= self._settled
        if worked:
            self._backoff.reset()
            self._failures = 0
            self._may_list_at_once = True
            if fault is None or isinstance(fault, Unreachable):
                return Next(0.0, list_first=lived >= _SILENCE and not heard)
        if is_too_old(fault) and self._may_list_at_once:
            self._may_list_at_once = False
            return Next(0.0, list_first=True)
        self._failures += 1
        wait = self._backoff.delay(fault.retry_after if isinstance(fault, RequestError) else None)
        if isinstance(fault, (Unreachable, TooManyRequests)):
            # An outage of all nodes at once must not end in a list by all of them.
            return Next(wait, list_first=False)
        if fault is None or (isinstance(fault, ServerFault) and not is_too_old(fault)):
            return Next(wait, list_first=self._failures >= _PATIENCE)
        return Next(wait, list_first=True)


def is_too_old(fault: Exception | None) -> bool:
    """Whether there is no watch from our resource version: it is forgotten, or (a restored server) still to come."""
    if isinstance(fault, Gone):
        return True
    return isinstance(fault, ServerFault) and fault.message.startswith("Too large resource version")
