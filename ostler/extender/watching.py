"""Follows Nodes and Pods for the tracker: nodes first, so that recovered pods find them healthy.

The two collections are read whole before anything is answered. After that a relist is a comparison, because the
tracker takes complete lists. Of pods that want no cells nothing is kept.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from kube.bodies import JsonObject, text_at
from kube.collection import Collection, ReadClient
from kube.reflector import Reflector, ReflectorLimits, ReflectorStatus
from node.clocks import Clocks
from ostler.extender.pods import FIELDS, NODE_FIELDS, PodReader, ReadPod, is_ready_node
from ostler.extender.tracking import CellTracker

LIMITS = ReflectorLimits()


class _Nodes:
    """The tracker as a handler of Nodes."""

    def __init__(self, tracker: CellTracker) -> None:
        self._tracker = tracker

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        self._tracker.replace_nodes({_name(each): is_ready_node(each) for each in objects})

    def applied(self, body: JsonObject) -> None:
        self._tracker.set_node(_name(body), is_ready_node(body))

    def deleted(self, body: JsonObject) -> None:
        self._tracker.delete_node(_name(body))

    def bookmark(self, resource_version: str) -> None:
        """Nothing has changed."""


class _Pods:
    """The tracker as a handler of Pods."""

    def __init__(self, tracker: CellTracker) -> None:
        self._tracker = tracker

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        self._tracker.replace_pods(each for each in objects if isinstance(each, ReadPod))

    def applied(self, body: JsonObject) -> None:
        if isinstance(body, ReadPod):
            self._tracker.set_pod(body)

    def deleted(self, body: JsonObject) -> None:
        if isinstance(body, ReadPod):
            self._tracker.delete_pod(body.facts.uid)

    def bookmark(self, resource_version: str) -> None:
        """Nothing has changed."""


class ClusterWatch:
    """Follows nodes and pods from ``start`` to ``stop``."""

    def __init__(
        self, client: ReadClient, tracker: CellTracker, clocks: Clocks, limits: ReflectorLimits = LIMITS
    ) -> None:
        nodes = Collection(client, "/api/v1/nodes", fields=NODE_FIELDS)
        pods = Collection(client, "/api/v1/pods", read=PodReader(tracker.is_bound).read, fields=FIELDS)
        self._nodes = Reflector(nodes, _Nodes(tracker), random=clocks.random, limits=limits, name="nodes")
        self._pods = Reflector(pods, _Pods(tracker), random=clocks.random, limits=limits, name="pods")
        self._has_begun_pods = False

    def start(self, stopped: threading.Event) -> bool:
        """Read everything once; whether that was done before ``stopped`` was set."""
        self._nodes.start()
        if not _wait(self._nodes.synced, stopped):
            return False
        self._has_begun_pods = True
        self._pods.start()
        return _wait(self._pods.synced, stopped)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why what is known may be outdated, one line each."""
        return tuple(filter(None, (self._nodes.status().failing, self._pods.status().failing)))

    def status(self) -> tuple[ReflectorStatus, ReflectorStatus]:
        """How it goes with nodes and pods."""
        return self._nodes.status(), self._pods.status()

    def stop(self) -> None:
        """End it."""
        self._nodes.stop()
        if self._has_begun_pods:
            self._pods.stop()


class _Event(Protocol):
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""


_LOOK = 0.05
"""Seconds between two looks whether to stop."""


def _wait(event: _Event, stopped: threading.Event) -> bool:
    while not event.wait(_LOOK):
        if stopped.is_set():
            return False
    return True


def _name(body: JsonObject) -> str:
    return text_at(body, "metadata", "name")
