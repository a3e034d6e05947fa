"""What the kubelet has of our resources, asked of the kubelet itself.

An open device stream does not tell: when another plugin registers the same resource, kubelets up to 1.36 overwrite
their slot of that name and leave our stream open, and people's tools open streams as well. So the kubelet is asked
which devices it has: once for all resources, a moment after anything that may have changed it, and every minute, unless
whoever keeps the holds has asked the same meanwhile. Where the pod resources API is absent or refuses, nothing is known
and nothing is concluded.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from node.kubelet.podresources import PodResourcesRefused, by_resource, healthy_ids
from node.sockets import is_socket
from node.values import Value, value

log = logging.getLogger("ostler.registration")


@value
class Pace(Value):
    """Seconds of the looks at what the kubelet has, in the order in which they matter."""

    soon: float = 1.0
    """From a registration, or another plugin's socket, to the question: the kubelet dials and lists in between."""
    again: float = 1.0
    """Between questions while the answer differs from what we show."""
    sure: float = 2.0
    """How long it has to differ: a list may be on its way, and a kubelet that is busy cannot answer either."""
    every: float = 60.0
    """Between questions when nothing happens."""
    alive: float = 1.0
    """Between looks whether a plugin that took a resource is still there."""


@value
class Answer(Value):
    """Healthy ids by resource; ``number`` counts the answers, ``asked_at`` is of the injected clock."""

    number: int
    asked_at: float
    ids: Mapping[str, frozenset[str]]


class KubeletView:
    """Asks at ``socket`` while ``run`` runs and calls ``told`` after each answer; ``answer`` is None while none holds.

    Nothing is asked, or taken from others, before the first ``want``.
    """

    def __init__(self, socket: Path, told: Callable[[], None], *, clock: Callable[[], float], pace: Pace) -> None:
        self.answer: Answer | None = None
        self._socket = socket
        self._told = told
        self._clock = clock
        self._pace = pace
        self._wanted = math.inf
        self._regular = math.inf
        """When it is to be asked: for a reason, and without any."""
        self._answers = 0
        self._problem = ""
        self._woken = asyncio.Event()

    def want(self, seconds: float) -> None:
        """Have the kubelet asked in so many seconds at the latest."""
        due = self._clock() + seconds
        if due < min(self._wanted, self._regular):
            self._woken.set()
        self._wanted = min(self._wanted, due)

    def heard(self, asked_at: float, healthy: Iterable[tuple[str, str]]) -> None:
        """Somebody else has asked at this time (of ``clock``): resource and id of every healthy device.

        It stands in for the next question without a reason, if that is near enough.
        """
        if self._wanted == math.inf and asked_at + self._pace.every / 2 >= self._regular:
            self._regular = asked_at + self._pace.every
            self._take(asked_at, by_resource(healthy))

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            self._woken.clear()
            left = min(self._wanted, self._regular) - self._clock()
            if left > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if left == math.inf else left):
                        await self._woken.wait()
            else:
                await self._ask()

    async def _ask(self) -> None:
        now = self._clock()
        self._wanted, self._regular = math.inf, now + self._pace.every
        self.answer = None
        if not is_socket(self._socket):
            return
        try:
            ids = await healthy_ids(self._socket)
        except PodResourcesRefused as error:
            if error.passing:
                self.want(self._pace.every / 12)
            if str(error) != self._problem:
                self._problem = str(error)
                log.info("the kubelet does not tell which devices it has", extra={"reason": self._problem})
            return
        self._take(now, ids)

    def _take(self, asked_at: float, ids: Mapping[str, frozenset[str]]) -> None:
        self._answers += 1
        self._problem = ""
        self.answer = Answer(self._answers, asked_at, ids)
        self._told()
