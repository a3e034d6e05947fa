"""When a reflector asks again, and whether it lists instead of watching. Pure.

A watch that lived for a while and ended is normal, and the next one begins at once. Everything that ended soon counts
as a failure, whatever the server said, even a stream that it opened and closed in good order: so no answer, and no
combination of answers, makes a reflector ask faster than its policy's waits.

A server that restarts ends the watches of all nodes at the same moment. The reflectors of agents come back at different
times (``Herd``): soon after a watch broke, in case only this connection did, then at a random moment of ``spread``
seconds, and from there about every ``spread`` seconds. With a new random wait after each attempt, many agents would
have a short one left at any moment, and come back together; so each keeps its moment, however long the server is away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kube.backoff import Backoff, BackoffPolicy
from kube.errors import Gone, RequestError, ServerFault, TooManyRequests, Unreachable

_PATIENCE = 3
"""Watches in a row that the server refuses or ends at once before the reflector asks for a list again."""
_SILENCE = 150.0
"""Seconds of silence after which the reflector lists again; servers send a bookmark each minute.

A reflector that asks for a version still to come, because the server's data was restored from a backup, gets a watch
without an error that stays silent until the versions have caught up.
"""


@dataclass(frozen=True, slots=True)
class Herd:
    """How the reflectors of many nodes come back after the server has ended their watches before their time.

    ``soon``: the first attempt comes within so many seconds; ``spread``: after one that found no server, the next comes
    within that many, and each later one after about that many.
    """

    soon: float
    spread: float


AGENTS = Herd(soon=5.0, spread=45.0)
"""Of the agents of a cluster: nine of ten come back over more than half a minute, and the last one within a minute.

A server that is back before the first attempts (``soon``) gets all agents within these seconds: they cannot tell it
from another server behind the same address, to which they should go at once.

Meanwhile an agent does not learn of new pods and of changes of its slices. It reads claims that the kubelet asks for,
and writes its slices, without its watches.
"""
ALONE = Herd(soon=0.0, spread=0.0)
"""Of a reflector that few processes of a cluster have."""
_SHORTER = 0.1
"""The part of ``spread`` by which a later attempt may come earlier: agents that coincide do not stay together."""


@dataclass(frozen=True, slots=True)
class NextRequest:
    """Seconds to wait, and whether a list comes next (else a watch from the current version)."""

    wait: float
    list_first: bool


class WatchPace:
    """Decides how fast to continue. ``settled``: seconds after which a watch counts as one that worked."""

    def __init__(self, policy: BackoffPolicy, random: Callable[[], float], settled: float, herd: Herd = ALONE) -> None:
        self._backoff = Backoff(policy, random)
        self._random = random
        self._settled = settled
        self._herd = herd
        self._failures = 0
        self._may_list_at_once = True
        self._has_worked = False
        """Whether there ever was a watch; agents that start come at different times anyway."""
        self._has_moment = False
        """Whether a random moment was chosen since the server was last there."""

    def after(self, fault: Exception | None, lived: float, *, heard: bool = True, early: bool = False) -> NextRequest:
        """Decide what follows a turn that ended by ``fault``, None if it ended properly.

        Its watch lived for ``lived`` seconds; ``heard``: it delivered changes or bookmarks. ``early``: the server ended
        it before the time for which it was asked.
        """
        worked = lived >= self._settled
        if worked:
            self._backoff.reset()
            self._failures = 0
            self._may_list_at_once = self._has_worked = True
            self._has_moment = False
            if fault is None or isinstance(fault, Unreachable):
                wait = self._herd.soon * self._random() if early else 0.0
                return NextRequest(wait, list_first=lived >= _SILENCE and not heard)
        if is_too_old(fault) and self._may_list_at_once:
            self._may_list_at_once = False
            return NextRequest(0.0, list_first=True)
        self._failures += 1
        wait = self._backoff.delay(fault.retry_after if isinstance(fault, RequestError) else None)
        if isinstance(fault, (Unreachable, TooManyRequests)):
            # An outage of all nodes at once must not end in a list by all of them, nor in a watch at the same moment.
            apart = self._apart(is_away=isinstance(fault, Unreachable)) if self._has_worked else 0.0
            return NextRequest(max(wait, apart), list_first=False)
        if fault is None or (isinstance(fault, ServerFault) and not is_too_old(fault)):
            return NextRequest(wait, list_first=self._failures >= _PATIENCE)
        return NextRequest(wait, list_first=True)

    def _apart(self, *, is_away: bool) -> float:
        """Seconds that keep this agent apart from the others; a busy server shows that they are not."""
        chance = self._random()
        if is_away and self._has_moment:
            return self._herd.spread * (1.0 - _SHORTER * chance)
        self._has_moment = True
        return self._herd.spread * chance


def is_too_old(fault: Exception | None) -> bool:
    """Whether no watch can start from our resource version: it is forgotten, or (a restored server) in the future."""
    if isinstance(fault, Gone):
        return True
    return isinstance(fault, ServerFault) and fault.message.startswith("Too large resource version")
