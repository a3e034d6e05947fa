"""What the container that is being admitted has been given so far: its GPUs and NICs are chosen near each other.

The kubelet never says which container a call is for, and takes the resources of a container in random order. But it
admits one container at a time, and asks once for each of its resources: so a resource that is given once more begins
another container, and so does one that is asked for after a pause. Everything in between is one container's. That is a
guess where containers of different kinds follow each other within the pause: one with GPUs alone and then one whose
NICs come first look like one container. Then devices are near the wrong ones, and nothing worse comes of it. Certainty
needs a DRA claim for both. Nothing is stored: after a restart nothing is recent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from node.topology.model import Place
from node.values import Value, value
from plugin.expected import ExpectedGpus

PAUSE = 1.0
"""Seconds without a grant after which a container is over.

A kubelet takes 1 to 20 ms from one resource of a container to the next. The rest is for machines that are short of
CPU, and for plugins of others that are asked in between; pods that are started one by one are farther apart.
"""


@value
class _Grant(Value):
    gpus: Mapping[str, Place]
    nics: Mapping[str, Place]


class RecentGrants:
    """The memory shared by all resources of a door; ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float], pause: float = PAUSE) -> None:
        self.expected = ExpectedGpus()
        self._clock = clock
        self._pause = pause
        self._until = 0.0
        self._grants: dict[str, _Grant] = {}

    def given(self, resource: str, gpus: Mapping[str, Place], nics: Mapping[str, Place]) -> None:
        """A container got devices of this resource: where the GPUs are that they are or belong to, and the NICs."""
        if not gpus and not nics:
            return
        if self._over(resource):
            self._grants.clear()
        self._grants[resource] = _Grant(gpus, nics)
        self._until = self._clock() + self._pause
        everything = self._grants.values()
        if gpus:
            self.expected.given(resource, gpus, [id_ for grant in everything for id_ in grant.nics])
        if nics:
            self.expected.joined([id_ for grant in everything for id_ in grant.gpus], nics)

    def gpus(self, resource: str) -> tuple[Place, ...]:
        """The GPUs of the container that asks for this resource; empty when it has none, or not yet."""
        if self._over(resource):
            return ()
        return tuple({place.name: place for grant in self._grants.values() for place in grant.gpus.values()}.values())

    def nics(self, resource: str) -> tuple[Place, ...]:
        """The NICs of the container that asks for this resource, virtual functions by their physical one."""
        if self._over(resource):
            return ()
        return tuple({place.name: place for grant in self._grants.values() for place in grant.nics.values()}.values())

    def _over(self, resource: str) -> bool:
        """Whether a call for this resource is another container's than the newest grant was for."""
        return resource in self._grants or self._clock() >= self._until
