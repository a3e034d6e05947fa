"""What the kubelet and the API server show while something else happens, looked at all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TypeVar

from tests.cluster.chart.release import Release, ready
from tests.cluster.rig.agent import allocatable
from tests.cluster.rig.node import RigNode
from tests.cluster.rig.podresources import allocatable_ids

PAUSES = (0.01, 0.05)
"""Seconds between two looks at the kubelet, and at the API server."""

_Seen = TypeVar("_Seen")
Seen = list[tuple[float, _Seen]]
"""What was seen, with the seconds of the monotonic clock before the look."""


class Observation:
    """A context: while it is open, threads note what is seen of a resource and of the agents."""

    def __init__(self, release: Release, node: RigNode, resource: str) -> None:
        self.devices: Seen[int] = []
        """How many devices the kubelet knows to be healthy."""
        self.offered: Seen[int] = []
        """How many the Node object offers."""
        self.serving: Seen[int] = []
        """How many agents are ready and not about to end, as the API server has it."""
        self._ended = threading.Event()
        self._faults: list[Exception] = []
        path = f"/api/v1/nodes/{node.name}"
        api = release.api
        self._threads = [
            self._thread(self.devices, PAUSES[0], lambda: len(allocatable_ids(node, resource))),
            self._thread(self.offered, PAUSES[1], lambda: allocatable(api.get(path), resource)),
            self._thread(self.serving, PAUSES[1], lambda: sum(ready(pod) for pod in release.agents())),
        ]

    def __enter__(self) -> Observation:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        if kind is None and self._faults:
            raise self._faults[0]

    def _thread(self, seen: Seen[int], pause: float, look: Callable[[], int]) -> threading.Thread:
        def watch() -> None:
            has_ended = False
            while not has_ended:
                # Once more at the end, so that the last look is at what there is then.
                has_ended = self._ended.wait(pause)
                began = time.monotonic()
                try:
                    seen.append((began, look()))
                except Exception as error:  # noqa: BLE001 - raised again when the observation ends
                    self._faults.append(error)
                    return

        return threading.Thread(target=watch, daemon=True)


def longest_below(seen: Seen[int], full: int) -> float:
    """Seconds of the longest time with fewer than ``full``, from the last good look before it to the next one."""
    longest, good = 0.0, seen[0][0]
    below = False
    for at, count in seen:
        if count >= full:
            longest = max(longest, at - good) if below else longest
            good, below = at, False
        else:
            below = True
    return max(longest, seen[-1][0] - good) if below else longest
