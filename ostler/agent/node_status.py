"""Writes the number of allocatable devices into the Node's status at once, if the settings ask for it.

The kubelet reports that number every ten seconds (``nodeStatusUpdateFrequency``). Until then the scheduler sends pods
to a node whose device a claim has just got, and the kubelet rejects one after the other.

The kubelet remains the author. The agent writes the number that the kubelet reports next: the healthy devices of the
list that it follows. The kubelet compares its own view with the Node and patches the difference, so it corrects what an
agent that ended has left. The two never overwrite each other in turns: the agent writes only after a change of a list,
and only if the Node has another number. It writes ``status.allocatable`` of resources whose list the kubelet follows,
on the Node that is this machine; never capacity, and never more than the capacity that the kubelet has reported. It
writes a lower number at once. A higher one waits a moment, because a pod that comes before the kubelet has the list is
rejected.

A part of its own, like ``ostler.agent.node_events``: one daemon thread, since the transport blocks, and devices are
served whatever the API server does.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kube.bodies import JsonObject, count_of, object_at, text_at
from node.events import EventRecorder, EventType
from ostler.agent.api_server import ApiEnvironment, api_client, in_daemon_thread, node_check
from ostler.agent.event_log import EventsFromThreads
from plugin.door import ResourceStatus
from plugin.registration import PluginRegistrationState

if TYPE_CHECKING:
    from kube.client import Client
    from kube.errors import KubeError
    from ostler.config.settings import Settings

log = logging.getLogger("ostler.kubernetes")

LEFT = "the Node's allocatable is left to the kubelet, which reports it later"
"""The beginning of the agent's status line while the agent cannot write."""
NOT_WRITTEN = "AllocatableNotWritten"
"""The event's reason if the API server does not let the agent write."""
RISE = 1.0
"""Seconds for which a higher number must remain before it is written."""
_RIGHT = (
    "; let the agent patch nodes/status of its Node (the chart's patchAllocatable does), or set"
    " kubernetes.patchAllocatable to off"
)
BURST, INTERVAL = 3, 1.0
"""Reads of the Node, each with at most one write: this many at once, and one more every ``INTERVAL`` seconds."""


def followed(resources: Iterable[ResourceStatus]) -> dict[str, int]:
    """Healthy devices of each resource whose list the kubelet follows; none of one that another plugin serves."""
    return {
        resource.name: resource.healthy
        for resource in resources
        if resource.streams and resource.registration.state is not PluginRegistrationState.CONTESTED
    }


def differing(node: JsonObject, counts: Mapping[str, int]) -> dict[str, str]:
    """The numbers in ``status.allocatable`` of the Node that must change.

    Left to the kubelet: a resource that it has not reported yet, and a number above the capacity that it has reported.
    """
    capacity, allocatable = (object_at(node, "status", key) for key in ("capacity", "allocatable"))
    found = {}
    for name, count in sorted(counts.items()):
        most, reported = count_of(text_at(capacity, name)), count_of(text_at(allocatable, name))
        if most is not None and reported is not None and count != reported and count <= most:
            found[name] = str(count)
    return found


class AllocatablePlan:
    """Which numbers to compare with the Node, and when. Pure; all times are of one clock, whichever it is.

    Only the newest number of a resource counts; how often it changed before its turn does not matter. ``rise``: seconds
    for which a higher number must remain.
    """

    def __init__(self, rise: float = RISE) -> None:
        self._rise = rise
        self._counts: dict[str, int] = {}
        self._due: dict[str, float] = {}
        self._level, self._at = float(BURST), 0.0

    def show(self, counts: Mapping[str, int], now: float) -> None:
        """Take the present lists; a resource that is not among them is left to the kubelet."""
        for name in self._due.keys() - counts.keys():
            del self._due[name]
        for name, count in counts.items():
            before = self._counts.get(name)
            if count != before:
                self._due[name] = now if before is not None and count < before else now + self._rise
        self._counts = dict(counts)

    def wait(self, now: float) -> float | None:
        """Seconds until there is something to do, None if there is nothing."""
        if not self._due:
            return None
        return max(0.0, min(self._due.values()) - now, (1.0 - self._filled(now)) * INTERVAL)

    def take(self, now: float) -> dict[str, int]:
        """The numbers whose turn it is; empty if ``wait`` is not over."""
        if self.wait(now) != 0.0:
            return {}
        self._level, self._at = self._filled(now) - 1.0, now
        taken = sorted(name for name, due in self._due.items() if due <= now)
        for name in taken:
            del self._due[name]
        return {name: self._counts[name] for name in taken}

    def again(self, names: Iterable[str], now: float) -> None:
        """Note that these could not be compared or written: their newest numbers are due again."""
        for name in names:
            if name in self._counts:
                self._due.setdefault(name, now)

    def _filled(self, now: float) -> float:
        return min(float(BURST), self._level + (now - self._at) / INTERVAL)


class NodeStatus:
    """Writes until cancelled; made on the agent's loop if the settings ask for it. ``written``: writes in all."""

    def __init__(
        self,
        settings: Settings,
        events: EventRecorder,
        environment: ApiEnvironment,
        rise: float = RISE,
    ) -> None:
        self._settings = settings
        self._events = events
        self._environment = environment
        self._check = node_check(settings, environment.etc)
        self._plan = AllocatablePlan(rise)
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._api: Client | None = None
        self._may_write = False
        self._fault = ""
        self._reported = ""
        self.written = 0

    def show(self, resources: Iterable[ResourceStatus]) -> None:
        """Note that the plugin door's lists have changed, or who follows them; does not block."""
        with self._changed:
            self._plan.show(followed(resources), time.monotonic())
            self._changed.notify()

    def reasons(self) -> tuple[str, ...]:
        """The line of the agent's status, none if all is well."""
        return (f"{LEFT}: {self._fault}",) if self._fault else ()

    async def run(self) -> None:
        """Write until cancelled. Returns only if the thread failed, which status and log then report."""
        self._events = EventsFromThreads(self._events, asyncio.get_running_loop())
        try:
            consequence = "the Node's allocatable is no longer written"
            await in_daemon_thread(self._work, "node status", self._stopped, consequence=consequence)
        finally:
            self._closed.set()
            with self._changed:
                self._changed.notify()
            if self._api is not None:
                self._api.close()

    def _stopped(self, fault: str) -> None:
        self._fault = fault

    def _work(self) -> None:
        """The thread: compare and write what is due, and retry later what failed."""
        from kube.backoff import Backoff, BackoffPolicy
        from kube.errors import KubeError, RequestError

        backoff = Backoff(BackoffPolicy(*self._environment.retry), self._environment.random)
        while counts := self._next():
            try:
                self._write(counts)
            except KubeError as error:
                self._failed(error)
                with self._changed:
                    self._plan.again(counts, time.monotonic())
                self._closed.wait(backoff.delay(error.retry_after if isinstance(error, RequestError) else None))
            else:
                backoff.reset()
                self._fault = ""

    def _next(self) -> dict[str, int]:
        """Numbers whose turn has come; empty if closed."""
        with self._changed:
            while not self._closed.is_set():
                if counts := self._plan.take(time.monotonic()):
                    return counts
                self._changed.wait(self._plan.wait(time.monotonic()))
        return {}

    def _write(self, counts: Mapping[str, int]) -> None:
        """Write these numbers to the Node if it has others; raises ``KubeError``."""
        from kube.bodies import path_of
        from kube.client import MERGE_PATCH

        client = self._client()
        path = path_of("api", "v1", "nodes", self._settings.node_name)
        node = client.get(path)
        if self._check is not None:
            self._check(node)
        found = differing(node, counts)
        if not found and self._may_write:
            return
        # With the uid of the Node that was read: the server refuses it for a new Node of the same name.
        uid = text_at(object_at(node, "metadata"), "uid")
        body: JsonObject = {"metadata": {"uid": uid}, "status": {"allocatable": dict(found)}}
        # If there is nothing to write yet, a dry run shows whether the agent may write.
        query = None if found else {"dryRun": "All"}
        client.request("PATCH", f"{path}/status", body=body, query=query, content_type=MERGE_PATCH)
        self._may_write = True
        if found:
            self.written += 1
            log.info("allocatable written on the Node", extra={"allocatable": found})

    def _client(self) -> Client:
        if self._api is None:
            self._api = api_client(self._settings, self._environment, "allocatable is written on the Node")
        return self._api

    def _failed(self, error: KubeError) -> None:
        """Report why nothing is written, each reason once; by an event if somebody has to act."""
        from kube.errors import Forbidden, NodeNotOurs

        if self._closed.is_set():
            return
        self._may_write = False
        self._fault = str(error)
        if self._fault == self._reported:
            return
        self._reported = self._fault
        log.warning("the Node's allocatable cannot be written", extra={"error": self._fault})
        if isinstance(error, (Forbidden, NodeNotOurs)):
            fix = _RIGHT if isinstance(error, Forbidden) else ""
            text = f"cannot write the allocatable of Node {self._settings.node_name}: {self._fault}"
            self._events.emit(EventType.WARNING, NOT_WRITTEN, f"{text}; the kubelet reports it later{fix}")
