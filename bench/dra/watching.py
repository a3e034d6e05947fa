"""Our slices as somebody sees them who watches: how many slices and devices there are, from when on.

A thread of its own reads the watch. Times are ``time.perf_counter`` seconds, taken when an event has arrived.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.kubelet import WITHIN, NothingCame
from tests.cluster.dra.claims import SLICES
from tests.cluster.rig.api import Api, Object

TYPES = ("ADDED", "MODIFIED", "DELETED")


@dataclass(frozen=True, slots=True)
class Shown:
    """What there was after an event, and how many events of its kind there had been by then."""

    at: float
    slices: int
    devices: int
    added: int
    modified: int
    deleted: int


class SliceWatch:
    """Follows the slices of one driver from now on."""

    def __init__(self, api: Api, driver: str) -> None:
        self._api = api
        self._driver = driver
        self._slices: dict[str, tuple[str, ...]] = {}
        self._counts = dict.fromkeys(TYPES, 0)
        self._shown: list[Shown] = [Shown(time.perf_counter(), 0, 0, 0, 0, 0)]
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._read, name="watch", daemon=True).start()

    @property
    def now(self) -> Shown:
        """The last of it."""
        with self._changed:
            return self._shown[-1]

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of all devices, sorted."""
        with self._changed:
            return tuple(sorted(device for devices in self._slices.values() for device in devices))

    def wait(self, what: str, condition: Callable[[Shown], bool], after: float = 0.0) -> Shown:
        """The first state after a time that meets a condition; raises ``NothingCame``."""

        def first() -> Shown | None:
            return next((shown for shown in self._shown if shown.at >= after and condition(shown)), None)

        with self._changed:
            found = self._changed.wait_for(first, WITHIN)
        if found is None:
            raise NothingCame(f"not within {WITHIN:g} s: {what}; it is {self.now}")
        return found

    def close(self) -> None:
        """The thread ends with the next event or its time-out."""
        self._ended = True

    def _read(self) -> None:
        while not self._ended:
            with contextlib.suppress(OSError, http.client.HTTPException):
                for kind, found in self._api.watch(SLICES, 600, fieldSelector=f"spec.driver={self._driver}"):
                    self._see(time.perf_counter(), kind, found)

    def _see(self, at: float, kind: str, found: Object) -> None:
        if kind not in TYPES:
            return
        name = found["metadata"]["name"]
        with self._changed:
            self._counts[kind] += 1
            if kind == "DELETED":
                self._slices.pop(name, None)
            else:
                self._slices[name] = tuple(device["name"] for device in found["spec"].get("devices", ()))
            devices = sum(map(len, self._slices.values()))
            self._shown.append(Shown(at, len(self._slices), devices, *self._counts.values()))
            self._changed.notify_all()


@contextlib.contextmanager
def watching(api: Api, driver: str) -> Iterator[SliceWatch]:
    """Such a watch, ended afterwards."""
    watch = SliceWatch(api, driver)
    try:
        yield watch
    finally:
        watch.close()


def delete_slices(api: Api, driver: str, node: str) -> None:
    """Delete a driver's slices of a node as its kubelet does: the collection, chosen by fields."""
    api.request("DELETE", f"{SLICES}?fieldSelector=spec.driver%3D{driver}%2Cspec.nodeName%3D{node}")
