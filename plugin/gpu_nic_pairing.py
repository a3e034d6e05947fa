"""Pairs the GPUs and NICs of one container: remembers what it got, and guesses which GPUs it will get.

The kubelet never says which container a call is for, and asks for the resources of a container in random order. But it
admits one container at a time, and asks once for each of its resources: so a second call for the same resource begins
another container, and so does a call after a pause. Everything in between belongs to one container. That is a guess if
containers of different kinds follow each other within the pause: one with GPUs alone and then one whose NICs come first
look like one container. Then devices are near the wrong ones, and nothing worse happens. Certainty needs a DRA claim
for both. Nothing is stored: after a restart nothing is recent.

If a container's NICs come first, its GPUs are guessed (``ExpectedGpus``): those that would be preferred for as many
GPUs as NICs, among the GPUs that are free as far as this process knows. A GPU is free if this process has not allocated
it, or the kubelet has called it available since, or has called NICs of the same container available. Pods end without
notice, so this errs towards held; the kubelet's next question corrects it. The choice of the GPUs themselves does not
rely on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from node.clocks import Clocks
from node.topology.model import Place
from node.values import Value, quick, value
from plugin.preferred import Preference

PAUSE = 1.0
"""Seconds without a grant after which a container is complete.

A kubelet takes 1 to 20 ms from one resource of a container to the next. The rest is for machines that are short of CPU,
and for other plugins that it asks in between; pods that are started one by one are farther apart.
"""


@quick
@value
class _Grant(Value):
    gpus: Mapping[str, Place]
    nics: Mapping[str, Place]


class RecentGrants:
    """The memory shared by all resources of a door."""

    def __init__(self, clocks: Clocks) -> None:
        self.expected = ExpectedGpus()
        self._clock = clocks.monotonic
        self._until = 0.0
        self._grants: dict[str, _Grant] = {}

    def granted(self, resource: str, gpus: Mapping[str, Place], nics: Mapping[str, Place]) -> None:
        """A container got devices of this resource: the places of their GPUs, and the NICs."""
        if not gpus and not nics:
            return
        if self._over(resource):
            self._grants.clear()
        self._grants[resource] = _Grant(gpus, nics)
        self._until = self._clock() + PAUSE
        everything = self._grants.values()
        if gpus:
            self.expected.granted(resource, gpus, [id_ for grant in everything for id_ in grant.nics])
        if nics:
            self.expected.joined([id_ for grant in everything for id_ in grant.gpus], nics)

    def gpus(self, resource: str) -> tuple[Place, ...]:
        """The GPUs of the container that asks for this resource; empty if it has none, or none yet."""
        if self._over(resource):
            return ()
        return tuple({place.name: place for grant in self._grants.values() for place in grant.gpus.values()}.values())

    def nics(self, resource: str) -> tuple[Place, ...]:
        """The NICs of the container that asks for this resource, virtual functions by their physical one."""
        if self._over(resource):
            return ()
        return tuple({place.name: place for grant in self._grants.values() for place in grant.nics.values()}.values())

    def _over(self, resource: str) -> bool:
        """Whether a call for this resource belongs to another container than the newest grant."""
        return resource in self._grants or self._clock() >= self._until


MOST = 4096
"""Most GPUs remembered as held; GPUs that are divided again and again have ever new ids of instances."""


class ExpectedGpus:
    """The known state of the GPUs of all resources of a door."""

    def __init__(self) -> None:
        self._preferences: dict[str, Preference] = {}
        self._asked = ""
        # By the GPU's id, the ids of the NICs that its container also has.
        self._held: dict[str, set[str]] = {}

    def offered(self, resource: str, preference: Preference) -> None:
        """A resource has these devices now."""
        if preference.gpus:
            self._preferences[resource] = preference
        else:
            self.withdrawn(resource)

    def withdrawn(self, resource: str) -> None:
        """A resource is no longer offered."""
        self._preferences.pop(resource, None)

    def granted(self, resource: str, gpus: Iterable[str], nics: Iterable[str]) -> None:
        """A container got GPUs by these ids of this resource, and has these NICs."""
        self._asked = resource
        for id_ in gpus:
            self._held.pop(id_, None)
            self._held[id_] = set(nics)
        while len(self._held) > MOST:
            del self._held[next(iter(self._held))]

    def joined(self, gpus: Iterable[str], nics: Collection[str]) -> None:
        """A container with these GPUs got these NICs."""
        for id_ in gpus:
            if id_ in self._held:
                self._held[id_].update(nics)

    def free(self, ids: Collection[str]) -> None:
        """The kubelet has called these GPUs or NICs available: nobody holds them, or what belongs to them."""
        named = set(ids)
        for id_ in [id_ for id_, nics in self._held.items() if id_ in named or not named.isdisjoint(nics)]:
            del self._held[id_]

    def gpus(self, count: int, near: Sequence[Place]) -> tuple[Place, ...]:
        """The probable places of ``count`` GPUs, or of fewer if there are not as many; ``near``: NICs given before.

        Of several resources the one that was allocated last counts. If no GPU seems free, any may be.
        """
        resource = self._asked if self._asked in self._preferences else min(self._preferences, default="")
        if not resource:
            return ()
        preference = self._preferences[resource]
        free = [id_ for id_ in preference.gpus if id_ not in self._held]
        chosen = preference.prefer(free or preference.gpus, (), count, near)
        return tuple({(place := preference.gpus[id_]).name: place for id_ in chosen}.values())
