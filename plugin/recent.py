"""GPUs handed out a moment ago, so that the NICs of the same container can be chosen near them.

The kubelet asks for a container's resources one after the other and never says which container an answer is for. It
admits one pod at a time, though, so the newest grant that a NIC resource has not followed yet is most likely the same
container's. That is a guess: a container may get GPUs and no NIC, or its NIC first (the kubelet takes the resources of
a container in no certain order), and then NICs are chosen near the wrong GPUs or none. Nothing worse comes of it.
Certainty needs a DRA claim for both. Nothing is stored: after a restart nothing is recent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import field

from node.values import Record, record

WINDOW = 10.0
"""Seconds in which a NIC may follow; the kubelet needs milliseconds."""
MOST = 64
"""Grants that are remembered."""


@record
class _Grant(Record):
    gpus: dict[str, str]
    until: float
    followed_by: set[str] = field(default_factory=set)


class RecentGrants:
    """The memory shared by all resources of a door; ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], window: float = WINDOW) -> None:
        self._clock = clock
        self._window = window
        self._grants: deque[_Grant] = deque(maxlen=MOST)

    def given(self, gpus: Mapping[str, str]) -> None:
        """A container got the devices with these ids; the values are the GPUs that they are or belong to."""
        self._forget_old()
        if gpus:
            # Given once more: the kubelet has refused the pod that had them, and no NIC will follow there.
            for grant in [grant for grant in self._grants if not grant.gpus.keys().isdisjoint(gpus)]:
                self._grants.remove(grant)
            self._grants.append(_Grant(dict(gpus), self._clock() + self._window))

    def followed(self, resource: str) -> None:
        """A container got NICs of this resource."""
        grant = self._newest(resource)
        if grant is not None:
            grant.followed_by.add(resource)

    def waiting(self, resource: str) -> tuple[str, ...]:
        """The GPUs of the newest grant that no NIC of this resource has followed yet; empty when there is none."""
        grant = self._newest(resource)
        return tuple(dict.fromkeys(grant.gpus.values())) if grant is not None else ()

    def _newest(self, resource: str) -> _Grant | None:
        self._forget_old()
        return next((grant for grant in reversed(self._grants) if resource not in grant.followed_by), None)

    def _forget_old(self) -> None:
        now = self._clock()
        while self._grants and self._grants[0].until <= now:
            self._grants.popleft()
