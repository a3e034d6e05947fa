"""Keeps one replica active: the holder of a Lease of coordination.k8s.io acts, all others wait.

The rules are those of Kubernetes' own components, so that their tools show it. A holder renews every ``retry``
seconds. Whoever waits measures with its own clock how long the Lease has not changed, so clocks may differ. A holder
that could not renew for ``renewal`` seconds has lost it: it must stop, and it does so before anybody else may begin,
because ``renewal`` is shorter than ``duration``. Every binding asks ``may_act`` first.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from kube.bodies import Json, JsonObject, object_at, path_of, text_at
from kube.errors import KubeError, NotFound
from node.clocks import SYSTEM, Clocks

log = logging.getLogger("ostler.extender")

GROUP = "coordination.k8s.io"


class LeaseClient(Protocol):
    """A client as far as a Lease needs it."""

    def get(self, path: str, *, attempts: int | None = None) -> JsonObject:
        """Read an object."""

    def create(self, path: str, body: JsonObject, *, attempts: int | None = None) -> JsonObject:
        """Create an object in a collection."""

    def replace(self, path: str, body: JsonObject, *, attempts: int | None = None) -> JsonObject:
        """Put an object in the place of one."""


@dataclass(frozen=True, slots=True)
class LeaseTiming:
    """Seconds; see the module."""

    duration: float = 15.0
    renewal: float = 10.0
    retry: float = 2.0


@dataclass(frozen=True, slots=True)
class LeaseName:
    """Where the Lease is."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ActiveReplica(Protocol):
    """This replica, for the parts that write or answer only while it is the active one."""

    def may_act(self) -> bool:
        """Whether it may write now."""

    def why_not(self) -> str:
        """Why it does not answer now, empty if it does."""


class LeaseHolder:
    """Acquires the Lease and keeps it, in a thread of its own from ``start`` to ``release``; one-way.

    ``acquired`` is set once it is ours. ``lost`` is set when it no longer is, which is the end of this holder.
    """

    def __init__(
        self,
        client: LeaseClient,
        name: LeaseName,
        identity: str,
        *,
        timing: LeaseTiming = LeaseTiming(),
        clocks: Clocks = SYSTEM,
    ) -> None:
        self.acquired = threading.Event()
        self.lost = threading.Event()
        self.name = name
        self.identity = identity
        self._client = client
        self._timing = timing
        self._monotonic = clocks.monotonic
        self._clock = clocks.clock
        self._stopped = threading.Event()
        self._seen: tuple[JsonObject, float] = ({}, clocks.monotonic())
        self._renewed = 0.0
        self._failing = ""
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    @property
    def holder(self) -> str:
        """Who holds it as far as is known, empty for nobody."""
        return text_at(self._seen[0], "holderIdentity")

    @property
    def failing(self) -> str:
        """Why the last attempt failed, empty if it worked."""
        return self._failing

    def may_act(self) -> bool:
        """Whether this replica is the active one at this moment."""
        is_ours = self.acquired.is_set() and not self.lost.is_set()
        return is_ours and self._monotonic() - self._renewed < self._timing.renewal

    def release(self) -> None:
        """Stop, and release the Lease for those that wait; one attempt."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(self._timing.renewal)
        if not self.acquired.is_set() or self.lost.is_set():
            return
        self.lost.set()
        try:
            lease = self._client.get(self._path(), attempts=1)
            spec = object_at(lease, "spec")
            if spec.get("holderIdentity") == self.identity:
                lease["spec"] = {**spec, "holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
                self._client.replace(self._path(), lease, attempts=1)
        except KubeError as error:
            log.info(
                "cannot release the lease; it expires by itself", extra={"lease": str(self.name), "error": str(error)}
            )

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._turn()
            if self.lost.is_set():
                return
            self._stopped.wait(self._timing.retry)

    def _turn(self) -> None:
        """One attempt to acquire or renew."""
        begun = self._monotonic()
        try:
            is_ours = self._tried()
        except KubeError as error:
            is_ours = False
            if str(error) != self._failing:
                log.warning("the lease cannot be read or written", extra={"lease": str(self.name), "error": str(error)})
            self._failing = str(error)
        else:
            self._failing = ""
        if is_ours:
            # From before the request: the server may have written it at any moment since.
            self._renewed = begun
            if not self.acquired.is_set():
                log.info("this replica is active", extra={"lease": str(self.name), "identity": self.identity})
                self.acquired.set()
        elif self.acquired.is_set() and (not self._failing or not self.may_act()):
            log.error("the lease is lost", extra={"lease": str(self.name), "holder": self.holder})
            self.lost.set()

    def _tried(self) -> bool:
        try:
            lease = self._client.get(self._path(), attempts=1)
        except NotFound:
            lease = {
                "apiVersion": f"{GROUP}/v1",
                "kind": "Lease",
                "metadata": {"name": self.name.name, "namespace": self.name.namespace},
                "spec": self._spec({}),
            }
            made = self._client.create(self._path(collection=True), lease, attempts=1)
            self._seen = object_at(made, "spec"), self._monotonic()
            return True
        spec = object_at(lease, "spec")
        if spec != self._seen[0]:
            self._seen = spec, self._monotonic()
        if text_at(spec, "holderIdentity") not in ("", self.identity) and not self._is_over(spec):
            return False
        # The resource version of what was read makes sure that nobody else was faster.
        written = self._client.replace(self._path(), {**lease, "spec": self._spec(spec)}, attempts=1)
        self._seen = object_at(written, "spec"), self._monotonic()
        return True

    def _is_over(self, spec: JsonObject) -> bool:
        seconds = spec.get("leaseDurationSeconds")
        duration = float(seconds) if isinstance(seconds, int) and 0 < seconds < 3600 else self._timing.duration
        return self._monotonic() - self._seen[1] >= duration

    def _spec(self, before: JsonObject) -> JsonObject:
        now = self._now()
        is_ours = before.get("holderIdentity") == self.identity
        transitions = before.get("leaseTransitions")
        count = transitions if isinstance(transitions, int) else 0
        acquired: Json = before.get("acquireTime") if is_ours else now
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": count if is_ours or not before else count + 1,
        }

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def _path(self, *, collection: bool = False) -> str:
        base = ("apis", GROUP, "v1", "namespaces", self.name.namespace, "leases")
        return path_of(*base) if collection else path_of(*base, self.name.name)
