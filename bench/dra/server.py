"""A real API server (etcd and kube-apiserver) with no other client, and a watch that counts our slices and devices.

A thread of its own reads the watch. Times are ``time.perf_counter`` seconds, taken when an event has arrived.
"""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.kubelet import WITHIN, NothingCame
from tests.cluster.components.build import kubernetes
from tests.cluster.dra.claims import SLICES
from tests.cluster.rig.api import Object, RigApi, RigCredentials
from tests.cluster.rig.cluster import down, new_place
from tests.cluster.rig.control_plane import ControlPlane
from tests.cluster.rig.pki import RigAuthority
from tests.cluster.rig.place import RigPlace, name_of_run
from tests.cluster.rig.prerequisites import check

NODE = "node-1"


@dataclass(frozen=True, slots=True)
class Server:
    """``api`` asks as the administrator, and so does who has ``kubeconfig``."""

    api: RigApi
    kubeconfig: Path


@contextlib.contextmanager
def server_place() -> Iterator[tuple[RigPlace, RigAuthority]]:
    """A place for an API server, with the administrator's certificate; whatever ran there is gone afterwards."""
    check()
    name = name_of_run()
    try:
        place = new_place(name)
        authority = RigAuthority(place)
        authority.create()
        authority.kubeconfig("admin", "/O=system:masters/CN=admin", place.kubeconfig)
        yield place, authority
    finally:
        down(name)


@contextlib.contextmanager
def api_server(version: str = "") -> Iterator[Server]:
    """A new API server with a namespace and one Node that nobody runs; it is gone afterwards."""
    with server_place() as (place, authority):
        ControlPlane(place, authority, kubernetes(version)).start_api()
        api = RigApi(
            place.api,
            authority.certificate,
            RigCredentials(authority.folder / "admin.crt", authority.folder / "admin.key"),
        )
        api.wait("/api/v1/namespaces/default", "exists", lambda _: True)
        api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        yield Server(api, place.kubeconfig)


@dataclass(frozen=True, slots=True)
class Shown:
    """What there was after an event, and how many events of each kind there had been by then."""

    at: float
    slices: int = 0
    devices: int = 0
    added: int = 0
    modified: int = 0
    deleted: int = 0


class WatchedSlices:
    """Slices by name, as a watch tells of them."""

    def __init__(self) -> None:
        self._devices: dict[str, tuple[str, ...]] = {}
        self._counts = {"ADDED": 0, "MODIFIED": 0, "DELETED": 0}

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of all devices, sorted."""
        return tuple(sorted(device for devices in self._devices.values() for device in devices))

    def see(self, at: float, kind: str, found: Object) -> Shown | None:
        """What there is after an event; None for one that is not about a slice."""
        if kind not in self._counts:
            return None
        self._counts[kind] += 1
        name = found["metadata"]["name"]
        if kind == "DELETED":
            self._devices.pop(name, None)
        else:
            self._devices[name] = tuple(device["name"] for device in found["spec"].get("devices", ()))
        return Shown(at, len(self._devices), sum(map(len, self._devices.values())), *self._counts.values())


class SliceWatch:
    """Follows the slices of one driver from now on."""

    def __init__(self, api: RigApi, driver: str) -> None:
        self._api = api
        self._driver = driver
        self._slices = WatchedSlices()
        self._shown = [Shown(time.perf_counter())]
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
            return self._slices.devices

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
                    at = time.perf_counter()
                    with self._changed:
                        shown = self._slices.see(at, kind, found)
                        if shown is not None:
                            self._shown.append(shown)
                            self._changed.notify_all()


@contextlib.contextmanager
def watching(api: RigApi, driver: str) -> Iterator[SliceWatch]:
    """Such a watch, ended afterwards."""
    watch = SliceWatch(api, driver)
    try:
        yield watch
    finally:
        watch.close()


def delete_slices(api: RigApi, driver: str, node: str) -> None:
    """Delete a driver's slices of a node as its kubelet does: the collection, chosen by fields."""
    api.request("DELETE", f"{SLICES}?fieldSelector=spec.driver%3D{driver}%2Cspec.nodeName%3D{node}")
