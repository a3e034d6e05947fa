"""How long pods take from their creation until the API server shows them running, by a watch.

The kinds take turns, so that what else the machine does hits all alike. The next pod is created only when the kubelet
has cleaned up after the last one, and its claim is gone.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from bench.cluster.figures import KINDS
from bench.cluster.stage import BenchStage, manifest
from tests.cluster.dra.claims import CLAIMS
from tests.cluster.rig.api import RigApi
from tests.cluster.rig.pods import PODS, RigPods, phase
from tests.cluster.rig.processes import wait_until

AT_ONCE = 50
CLIENTS = 8
"""Threads that create the pods of a burst."""
LIMIT = 600.0
"""Seconds that pods may take, on a machine that has much else to do."""


class PodFailed(Exception):
    """A pod ended, or did not run in time."""


class RunningWatch:
    """When each pod was first seen running, on the monotonic clock; a thread reads the watch."""

    def __init__(self, api: RigApi) -> None:
        self._api = api
        self._seen: dict[str, float] = {}
        self._failed: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait(self, names: list[str]) -> Mapping[str, float]:
        """Return when all of these pods were seen running; raises ``PodFailed``."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._failed or set(names) <= self._seen.keys(), LIMIT)
            if self._failed or not done:
                missing = sorted(set(names) - self._seen.keys())
                raise PodFailed(f"failed: {self._failed}; not running after {LIMIT:g} s: {missing}")
            return {name: self._seen.pop(name) for name in names}

    def close(self) -> None:
        """The thread ends with the next message or its time-out."""
        self._ended = True

    def _read(self) -> None:
        while not self._ended:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for _, pod in self._api.watch(PODS, timeout=600):
                    self._see(pod["metadata"]["name"], phase(pod))

    def _see(self, name: str, state: str) -> None:
        with self._changed:
            if state == "Running":
                self._seen.setdefault(name, time.monotonic())
            elif state == "Failed":
                self._failed.append(name)
            self._changed.notify_all()


@contextlib.contextmanager
def _watching(api: RigApi) -> Iterator[RunningWatch]:
    watch = RunningWatch(api)
    try:
        yield watch
    finally:
        watch.close()


def one_by_one(
    stage: BenchStage, count: int, say: Callable[[str], None], kinds: Sequence[str] = KINDS
) -> dict[str, list[float]]:
    """Seconds of ``count`` pods of each kind, each alone on the node; one more before them warms up."""
    taken: dict[str, list[float]] = {kind: [] for kind in kinds}
    with _watching(stage.cluster.api) as watch:
        for number in range(-1, count):
            for kind in kinds:
                say(f"pods one by one: {max(number, 0)} of {count}")
                seconds = _burst(stage, watch, kind, [number + 1])
                if number >= 0:
                    taken[kind].append(seconds)
    return taken


def at_once(stage: BenchStage, rounds: int, say: Callable[[str], None], pods: int = AT_ONCE) -> dict[str, list[float]]:
    """Seconds until the last of so many pods runs, per round, for each kind."""
    taken: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with _watching(stage.cluster.api) as watch:
        for number in range(rounds):
            for kind in KINDS:
                say(f"{pods} pods at once: round {number + 1} of {rounds}, {kind}")
                first = 1000 * (number + 1)
                taken[kind].append(_burst(stage, watch, kind, list(range(first, first + pods))))
    return taken


def _burst(stage: BenchStage, watch: RunningWatch, kind: str, numbers: list[int]) -> float:
    """Seconds from the first creation until the last pod runs; none of them is left."""
    pods = RigPods(stage.cluster.api)
    manifests = [manifest(kind, number) for number in numbers]
    names = [str(one["metadata"]["name"]) for one in manifests]
    with ThreadPoolExecutor(min(CLIENTS, len(names))) as clients:
        began = time.monotonic()
        list(clients.map(pods.create, manifests))
        ended = max(watch.wait(names).values())
        list(clients.map(pods.delete, names))
    wait_until("the kubelet has cleaned up", lambda: not pods.on_disk(stage.node), LIMIT)
    wait_until("the claims are gone", lambda: not stage.cluster.api.items(CLAIMS), LIMIT)
    return ended - began
