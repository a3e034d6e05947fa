"""The slices of all nodes as a watch shows them; a thread of its own reads it, also across the server's absence."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.kubelet import NothingCame
from tests.cluster.dra.claims import SLICES
from tests.cluster.rig.api import ApiRefused, Object, RigApi

AGAIN = 0.1
"""Seconds between attempts to reach the server."""


@dataclass(frozen=True, slots=True)
class WatchedPool:
    """A node's devices, those with a taint, and the Unix time at which the watch showed it."""

    devices: tuple[str, ...]
    tainted: frozenset[str]
    seen: float


class PoolWatch:
    """The pool of each driver and node, whose slices are one each."""

    def __init__(self, api: RigApi) -> None:
        self._api = api
        self._pools: dict[tuple[str, str], WatchedPool] = {}
        self._names: dict[str, tuple[str, str]] = {}
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, name="pools", daemon=True).start()

    def pool(self, driver: str, node: str) -> WatchedPool | None:
        """What a node has now."""
        with self._changed:
            return self._pools.get((driver, node))

    def wait(self, what: str, condition: Callable[[], bool], within: float) -> float:
        """The Unix time at which a condition of ``pool`` holds; raises ``NothingCame``."""
        deadline = time.monotonic() + within
        while not condition():
            with self._changed:
                self._changed.wait(0.05)
            if time.monotonic() > deadline:
                raise NothingCame(f"not within {within:g} s: {what}")
        return time.time()

    def close(self) -> None:
        """The thread ends with the next event or its time-out."""
        self._ended = True

    def _read(self) -> None:
        while not self._ended:
            with contextlib.suppress(OSError, http.client.HTTPException, ApiRefused, ValueError):
                listed = self._api.get(SLICES)
                with self._changed:
                    self._pools.clear()
                    self._names.clear()
                for each in listed["items"]:
                    self._take("ADDED", each)
                for kind, each in self._api.watch(SLICES, 600, resourceVersion=listed["metadata"]["resourceVersion"]):
                    if kind == "ERROR":
                        break
                    self._take(kind, each)
            time.sleep(AGAIN)

    def _take(self, kind: str, found: Object) -> None:
        name, spec = found["metadata"]["name"], found["spec"]
        with self._changed:
            if kind == "DELETED":
                self._pools.pop(self._names.pop(name, ("", "")), None)
            else:
                key = self._names[name] = (spec["driver"], spec.get("nodeName", ""))
                devices = spec.get("devices", ())
                self._pools[key] = WatchedPool(
                    tuple(device["name"] for device in devices),
                    frozenset(device["name"] for device in devices if device.get("taints")),
                    time.time(),
                )
            self._changed.notify_all()


@contextlib.contextmanager
def pools_of(api: RigApi) -> Iterator[PoolWatch]:
    """Such a watch, ended afterwards."""
    watch = PoolWatch(api)
    try:
        yield watch
    finally:
        watch.close()
