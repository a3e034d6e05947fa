"""Which GPUs a container will probably get whose NICs are asked for first, so that these can be near them.

The answer is what would be preferred for a container that asked for as many GPUs as it asks for NICs, among the GPUs
that are free as far as this process knows: it has not given them, or the kubelet has named them as available since, or
it has named the NICs as available that the same container got. Pods end without a word, so this is a guess; it errs
towards held, and is put right by the kubelet's next question. Choosing the GPUs afterwards does not rely on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from node.topology.model import Place
from plugin.preferred import Preference

MOST = 4096
"""GPUs that are remembered as held; instances of GPUs that are divided anew again and again have ever new ids."""


class ExpectedGpus:
    """What is known of the GPUs of all resources of a door."""

    def __init__(self) -> None:
        self._preferences: dict[str, Preference] = {}
        self._asked = ""
        # By the GPU's id the ids of NICs that its container has, too.
        self._held: dict[str, set[str]] = {}

    def offered(self, resource: str, preference: Preference) -> None:
        """A resource has these devices now."""
        if preference.gpus:
            self._preferences[resource] = preference
        else:
            self.withdrawn(resource)

    def withdrawn(self, resource: str) -> None:
        """A resource is not offered any more."""
        self._preferences.pop(resource, None)

    def given(self, resource: str, gpus: Iterable[str], nics: Iterable[str]) -> None:
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
        """The kubelet has named these GPUs, or these NICs, as available: nobody holds them, or what goes with them."""
        named = set(ids)
        for id_ in [id_ for id_, nics in self._held.items() if id_ in named or not named.isdisjoint(nics)]:
            del self._held[id_]

    def gpus(self, count: int, near: Sequence[Place]) -> tuple[Place, ...]:
        """Where ``count`` GPUs, or fewer where there are not as many, will probably be; ``near``: NICs given before.

        Of several resources it is the one that was given last. Where no GPU is thought to be free, any may be.
        """
        resource = self._asked if self._asked in self._preferences else min(self._preferences, default="")
        if not resource:
            return ()
        preference = self._preferences[resource]
        free = [id_ for id_ in preference.gpus if id_ not in self._held]
        chosen = preference.prefer(free or preference.gpus, (), count, near)
        return tuple({(place := preference.gpus[id_]).name: place for id_ in chosen}.values())
