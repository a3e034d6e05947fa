"""How long devices are free while something waits that would fit. Pure: times are handed in (seconds)."""

from __future__ import annotations

import math


class Idleness:
    """How long each device has been free at a stretch while something that fits waited; ``worst``: seconds."""

    def __init__(self, devices: list[str]) -> None:
        self.worst = 0.0
        self._devices = devices
        self._since: dict[str, float] = {}
        self._waited_since = math.inf

    def nobody_waits(self) -> None:
        """Nothing that fits waits, or nobody could give it a device: what was free until now does not count."""
        self._waited_since = math.inf

    def look(
        self,
        now: float,
        waiting: list[int],
        taken: set[str],
        ended: dict[str, float],
        promised: int = 0,
    ) -> None:
        """At this time pods wait for so many devices each; ``ended``: when each device was last in a container.

        ``promised``: so many more are taken, nobody knows which; those that have been free for longest are meant.
        """
        self._since |= dict.fromkeys(taken, now)
        free = [device for device in self._devices if device not in taken]
        left = len(free) - promised
        # One alone may be on its way; and who wants two does not wait for the one that is free.
        if sum(count <= left for count in waiting) < 2:
            self.nobody_waits()
            return
        self._waited_since = min(self._waited_since, now)
        since = sorted(max(self._since.get(device, 0.0), ended[device], self._waited_since) for device in free)
        self.worst = max(self.worst, now - since[promised])
