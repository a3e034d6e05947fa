"""What happens to holds, counted in plain memory until somebody scrapes it.

``HoldsCounters`` is the observer of the readings of the kubelet (``node.ledger.observer``); conflicts and evictions are
told by whoever sees them. Written by the loop's thread and read by others, which copy a dictionary before they walk
through it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from node.ledger.observer import Outcome
from node.rules import Door
from ostler.metrics.counters import Histogram

PENDING = ("containers", "processes", "looking")
"""What a device that is pending release waits for: containers of a deleted pod, processes that are left, or a look."""
READINGS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds in seconds: from an answer from memory to a kubelet that does not answer."""


class HoldsCounters:
    """``conflicts`` by the door that lost, ``readings`` by outcome, ``looks`` by result (``clean`` or ``process``).

    ``read_at``: Unix seconds at which the last whole reading had been made, 0 before the first. ``evictions``: devices
    on which a taint has asked for the end of pods whose claim could not be served. ``waits``: of Allocate for
    containers of a deleted pod, by what came of them (``given`` or ``refused``).
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self.conflicts = dict.fromkeys(Door, 0)
        self.readings = dict.fromkeys(Outcome, 0)
        self.reading = Histogram.of(READINGS)
        self.read_at = 0.0
        self.looks = {"clean": 0, "process": 0}
        self.evictions = 0
        self.waits = {"given": 0, "refused": 0}

    def waited(self, *, given: bool) -> None:
        """An Allocate has waited for containers of a deleted pod."""
        self.waits["given" if given else "refused"] += 1

    def lost(self, door: Door) -> None:
        """A pod or claim could not be given a device through ``door``, because the other door has given it out."""
        self.conflicts[door] += 1

    def read(self, outcome: Outcome, seconds: float) -> None:
        """The kubelet was asked what containers have."""
        self.readings[outcome] += 1
        self.reading.add(seconds)
        if outcome is Outcome.WHOLE:
            self.read_at = self._clock()

    def looked(self, processes: int) -> None:
        """A free device was looked at."""
        self.looks["process" if processes else "clean"] += 1

    def evicted(self) -> None:
        """The taint of a contested device asks for the end of the pods that lost it."""
        self.evictions += 1
