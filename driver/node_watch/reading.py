"""Which claim of the node's pods is read next, and when: a fair share for every namespace and every pod. Pure.

A pod may name claims that do not exist, and its author may create many such pods. Their reads find nothing, so they
must cost little and delay no other pod:

- Namespaces take turns, then the pods of a namespace, with one claim of a pod at a time. The least recently served goes
  first, and a new pod before all that were served in the last ``HEAD_START`` turns.
- A claim without a reservation waits longer and longer, and so does its pod: a pod that names a hundred missing claims
  is read as rarely as one that names one. A read that finds a reservation ends the pod's wait.
- Failed reads are limited for the whole node (a token bucket). A read that finds a reservation costs nothing there: the
  scheduler has allocated the claim, and it is read once. So a node that starts with hundreds of allocated claims reads
  them as fast as the API server answers.

A claim has an entry from its first turn on, so that a new pod with many names costs nothing. Its users are always all
pods that name it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum

from driver.node_watch.pods import NodePod
from kube.backoff import BackoffPolicy
from node.clocks import Clocks
from node.values import Record, Value, record, value

HEAD_START = 16
"""The latest turns of others that a new pod, or the first pod of a namespace, precedes.

Not all of them: whoever creates pods without end would delay the earlier ones for ever.
"""
_WHOLE = 1.0 - 1e-9
"""A whole token, less the rounding error of sums."""

Key = tuple[str, str]
"""Namespace and name of a claim."""


@value
class ReadPace(Value):
    """How often to read claims that had no reservation. ``per_second``, ``burst``: failed reads for the whole node.

    Waits of a claim: ``absent`` while it does not exist, is not allocated or can hold nothing of ours, ``later`` while
    it cannot be read or no pod of the node may use it. ``pod``: waits of a pod after each of its failed reads.
    """

    per_second: float = 10.0
    burst: int = 50
    absent: BackoffPolicy = BackoffPolicy(first=0.5, most=300.0)
    later: BackoffPolicy = BackoffPolicy(first=0.5, most=60.0)
    pod: BackoffPolicy = BackoffPolicy(first=0.25, most=30.0)


class ReadResult(StrEnum):
    """The outcome of a read."""

    SETTLED = "settled"
    """A pod of the node may use the claim: it is read again only when other pods name it."""
    ABSENT = "absent"
    """There is no such claim, it is not allocated, or it is allocated to other drivers alone."""
    LATER = "later"
    """It cannot be read now, or no pod of the node may use it yet."""


@record
class _Claim(Record):
    """A claim with an entry. ``due``: when it may be read, in monotonic seconds; infinite: not again.

    ``users``: UIDs of the pods that name it, in the order of their arrival.
    """

    key: Key
    users: dict[str, None]
    due: float
    in_vain: int = 0
    answered: bool = False
    """The API server has answered about it."""
    reading: int = 0
    """Number of the turn in which it is read, 0 while it is not."""
    again: bool = False
    """The pods that name it changed since it was asked for."""


@record
class _Namespace(Record):
    """``served``: number of the turn at which one of its claims was last read."""

    served: int
    pods: int = 0


@record
class _Pod(Record):
    """A pod's place in the order. ``due``: none of its claims is due earlier. ``rests``: when it may have a turn after
    failed reads.

    ``begun``: how many of its claims, from the first one on, have an entry. ``reading``: as of a claim.
    """

    claims: tuple[str, ...]
    namespace: str
    served: int
    due: float
    begun: int = 0
    rests: float = -math.inf
    in_vain: int = 0
    reading: int = 0


@value
class ReadTurn(Value):
    """The claim to read now, in the turn of the pod with that UID."""

    number: int
    key: Key
    pod: str


class ReadingOrder:
    """For one thread; times are monotonic seconds."""

    def __init__(self, pace: ReadPace, clocks: Clocks) -> None:
        self._pace = pace
        self._random = clocks.random
        self._claims: dict[Key, _Claim] = {}
        self._pods: dict[str, _Pod] = {}
        self._namespaces: dict[str, _Namespace] = {}
        self._turn = 0
        self._lead = 0.0
        self._tokens = float(pace.burst)
        self._filled = -math.inf

    @property
    def unanswered(self) -> tuple[Key, ...]:
        """Claims about which the API server has not answered yet."""
        named = dict.fromkeys((pod.namespace, name) for pod in self._pods.values() for name in pod.claims)
        return tuple(key for key in named if key not in self._claims or not self._claims[key].answered)

    def users(self, key: Key) -> frozenset[str]:
        """UIDs of the pods that name a claim, none if no pod does any more."""
        claim = self._claims.get(key)
        return frozenset(claim.users) if claim is not None else frozenset()

    def counts(self, turn: ReadTurn) -> bool:
        """Whether the answer still counts: all pods that named the claim may be gone, and others need it read again."""
        claim = self._claims.get(turn.key)
        return claim is not None and claim.reading == turn.number

    def apply(self, pods: Iterable[NodePod], now: float) -> tuple[Key, ...]:
        """Take the pods of the node; returns the claims that were read and that no pod names any more."""
        named = {pod.uid: pod for pod in pods if pod.claims}
        changed: dict[Key, _Claim] = {}
        for uid, known in tuple(self._pods.items()):
            pod = named.get(uid)
            if pod is None or pod.claims != known.claims:
                changed.update((claim.key, claim) for claim in self._leave(uid))
        for uid, pod in named.items():
            if uid not in self._pods:
                changed.update((claim.key, claim) for claim in self._enter(pod, now))
        # Once for each claim, however many pods came or went: a claim's users are updated every time.
        for key, claim in changed.items():
            if claim.users:
                self._renew(claim, now)
            else:
                del self._claims[key]
        return tuple(key for key, claim in changed.items() if not claim.users)

    def set_lead(self, seconds: float, now: float) -> None:
        """Give a pod its first turn only so many seconds after it came, also one that waits for it.

        A pod that names a claim which another pod has named gets it at once, since that claim must be read again.
        """
        self._lead = seconds
        for pod in self._pods.values():
            if not pod.begun:
                pod.due = min(pod.due, now + seconds)

    def take(self, now: float) -> ReadTurn | None:
        """The claim to read now, None if there is none; call ``done`` afterwards."""
        self._fill(now)
        if self._tokens < _WHOLE:
            return None
        while (uid := self._first(now)) is not None:
            pod = self._pods[uid]
            claim = self._begun(pod, now) or min(self._of(pod), key=_due)
            pod.due = _due(claim)
            if pod.due <= now:
                self._turn += 1
                self._tokens -= 1
                self._namespaces[pod.namespace].served = pod.served = self._turn
                claim.reading = pod.reading = self._turn
                return ReadTurn(self._turn, claim.key, uid)
        return None

    def next_at(self, now: float) -> float | None:
        """The time at which ``take`` may return one, None if only new pods or answers can change that."""
        self._fill(now)
        waits = (max(pod.due, pod.rests) for pod in self._pods.values() if not pod.reading)
        at = min(waits, default=math.inf)
        if at == math.inf:
            return None
        missing = 1 - self._tokens
        return max(at, now + missing / self._pace.per_second) if self._tokens < _WHOLE else at

    def done(
        self, turn: ReadTurn, now: float, answer: ReadResult, *, heard: bool, retry_after: float | None = None
    ) -> None:
        """The claim was read; ``heard``: the API server answered, as opposed to no answer or a refusal."""
        settled = answer is ReadResult.SETTLED
        if settled:
            self._tokens = min(self._tokens + 1, float(self._pace.burst))
        claim = self._claims.get(turn.key)
        if claim is not None and claim.reading == turn.number:
            claim.answered |= heard
            self._settle(claim, now, answer, retry_after)
        pod = self._pods.get(turn.pod)
        if pod is not None and pod.reading == turn.number:
            pod.reading = 0
            pod.in_vain = 0 if settled else pod.in_vain + 1
            pod.rests = now if settled else now + self._pace.pod.delay(pod.in_vain - 1, self._random())
            pod.due = now if pod.begun < len(pod.claims) else min(_due(each) for each in self._of(pod))

    def _settle(self, claim: _Claim, now: float, answer: ReadResult, retry_after: float | None) -> None:
        claim.reading = 0
        if claim.again:
            claim.again, claim.in_vain = False, 0
            self._put_off(claim, now)
        elif answer is ReadResult.SETTLED:
            claim.in_vain = 0
            self._put_off(claim, math.inf)
        else:
            policy = self._pace.absent if answer is ReadResult.ABSENT else self._pace.later
            self._put_off(claim, now + policy.delay(claim.in_vain, self._random(), retry_after))
            claim.in_vain += 1

    def _enter(self, pod: NodePod, now: float) -> Sequence[_Claim]:
        """Add the pod; returns its claims that have an entry."""
        first = self._turn - HEAD_START
        self._namespaces.setdefault(pod.namespace, _Namespace(first)).pods += 1
        self._pods[pod.uid] = _Pod(pod.claims, pod.namespace, first, now + self._lead)
        claims = self._of(self._pods[pod.uid])
        for claim in claims:
            claim.users[pod.uid] = None
        return claims

    def _leave(self, uid: str) -> Sequence[_Claim]:
        """Forget the pod; returns its claims that have an entry."""
        pod = self._pods.pop(uid)
        home = self._namespaces[pod.namespace]
        home.pods -= 1
        if not home.pods:
            del self._namespaces[pod.namespace]
        claims = self._of(pod)
        for claim in claims:
            claim.users.pop(uid, None)
        return claims

    def _begun(self, pod: _Pod, now: float) -> _Claim | None:
        """An entry for the pod's first claim without one, None if all have one."""
        while pod.begun < len(pod.claims):
            key = pod.namespace, pod.claims[pod.begun]
            pod.begun += 1
            if key not in self._claims:
                users = (uid for uid, each in self._pods.items() if each.namespace == key[0] and key[1] in each.claims)
                claim = self._claims[key] = _Claim(key, dict.fromkeys(users), now)
                return claim
        return None

    def _renew(self, claim: _Claim, now: float) -> None:
        """Other pods name the claim: its last answer may be outdated."""
        claim.again = claim.reading > 0
        claim.in_vain = 0
        self._put_off(claim, now)

    def _put_off(self, claim: _Claim, until: float) -> None:
        claim.due = until
        for uid in claim.users:
            pod = self._pods.get(uid)
            if pod is not None and until < pod.due:
                pod.due = until

    def _first(self, now: float) -> str | None:
        """The pod whose turn it is, as far as pods know when their claims are due."""
        ready = (
            (self._namespaces[pod.namespace].served, pod.served, uid)
            for uid, pod in self._pods.items()
            if not pod.reading and pod.due <= now and pod.rests <= now
        )
        return min(ready, key=lambda each: each[:2], default=(0, 0, None))[2]

    def _of(self, pod: _Pod) -> list[_Claim]:
        """The entries of the pod's claims."""
        keys = ((pod.namespace, name) for name in pod.claims)
        return [self._claims[key] for key in keys if key in self._claims]

    def _fill(self, now: float) -> None:
        if now > self._filled:
            grown = (now - self._filled) * self._pace.per_second
            self._tokens, self._filled = min(self._tokens + grown, float(self._pace.burst)), now


def _due(claim: _Claim) -> float:
    return math.inf if claim.reading else claim.due
