"""Posts the agent's events on its Node, so that ``kubectl describe node`` shows what people must know.

A part of its own beside the doors: whatever the API server does, devices are served. It has one thread, because the
transport blocks, and a daemon thread, because a request under way must not delay the end of the process. That thread
loads the client library, once the settings and the environment say that events should be posted.

It posts all warnings, and of the other events those that change what the node offers. It writes nothing before the Node
has proved to be this machine (``kube.node_identity``); events wait until then, up to a limit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from node.events import Event, EventType
from ostler.agent.api_server import ApiEnvironment, RecentProofs, api_client, in_daemon_thread
from ostler.agent.event_log import EventLog, EventsFromThreads
from ostler.config.settings import EventsChoice, Settings
from ostler.metrics.posting import PostingMetrics

if TYPE_CHECKING:
    from kube.bodies import JsonObject
    from kube.client import Client
    from kube.errors import KubeError
    from kube.events import EventPoster
    from kube.node_identity import Machine

log = logging.getLogger("ostler.kubernetes")

COMPONENT = "ostler"
NOT_OURS = "NodeNotOurs"
"""The event's reason if the Node is another machine: only for this agent's status, never posted."""

_NORMAL = ("Quiesced", "Resumed")
"""Normal events that are posted: while the driver is left alone, devices do not come back."""


def is_posted(event: Event) -> bool:
    """Whether an event is posted on the Node."""
    return event.reason != NOT_OURS and (event.type is EventType.WARNING or event.reason in _NORMAL)


def events_wanted(settings: Settings, environment: ApiEnvironment) -> bool:
    """Whether to post events; with ``auto`` never for a recorded node, whose devices are not this machine's."""
    choice = settings.kubernetes.events
    if choice is not EventsChoice.AUTO:
        return choice is EventsChoice.ON
    if not settings.node_name or settings.inventory.recorded is not None:
        return False
    if settings.kubernetes.kubeconfig is not None:
        return True
    if not environment.variables.get("KUBERNETES_SERVICE_HOST"):
        # Repeated from kube.access, which agents outside of pods need not load.
        return False
    from kube.access import runs_in_cluster

    return runs_in_cluster(environment.variables, environment.account)


def node_events(settings: Settings, events: EventLog, proofs: RecentProofs | None = None) -> NodeEvents | None:
    """The part that posts ``events``, None if none should be posted; ``proofs`` as for ``NodeEvents``."""
    environment = ApiEnvironment(os.environ)
    return NodeEvents(settings, events, environment, proofs) if events_wanted(settings, environment) else None


class NodeEvents:
    """Posts an ``EventLog``'s events until cancelled; made on the agent's loop if the settings want it.

    ``proofs``: of the Node, by other parts of the process.
    """

    def __init__(
        self,
        settings: Settings,
        events: EventLog,
        environment: ApiEnvironment,
        proofs: RecentProofs | None = None,
    ) -> None:
        self._settings = settings
        self._events = events
        self._environment = environment
        self._proofs = proofs or RecentProofs()
        self._closed = threading.Event()
        self._poster: EventPoster | None = None
        self._api: Client | None = None
        self._waiting_for = "the API server has not answered yet"
        self.metrics = PostingMetrics("ostler_node")

    @property
    def failing(self) -> str:
        """Why events are not posted at the moment, empty if they are."""
        return self._waiting_for or ("" if self._poster is None else self._poster.failing)

    def reasons(self) -> tuple[str, ...]:
        """The line of the agent's status, none if all is well."""
        return (f"events are not posted on the Node: {self.failing}",) if self.failing else ()

    async def run(self) -> None:
        """Post until cancelled. Returns only if the thread failed, which status and log then report."""
        loop = asyncio.get_running_loop()
        poster = self._poster = await asyncio.to_thread(self._made_poster)
        for event in self._events.recent:
            self._take(event)
        self._events.bus.subscribe(Event, self._take)
        try:
            await in_daemon_thread(
                lambda: self._work(poster, loop),
                "kubernetes events",
                self._stopped,
                consequence="events are no longer posted",
            )
        finally:
            self._closed.set()
            poster.close()
            if self._api is not None:
                self._api.close()

    def _stopped(self, fault: str) -> None:
        self._waiting_for = fault

    def _take(self, event: Event) -> None:
        if self._poster is not None and is_posted(event):
            self._poster.offer(event.type.value, event.reason, event.message, event.time)

    def _made_poster(self) -> EventPoster:
        from kube.events import EventPoster, Subject

        name, random = self._settings.node_name, self._environment.random
        return EventPoster(Subject.node(name), self.metrics, component=COMPONENT, instance=name, random=random)

    def _work(self, poster: EventPoster, loop: asyncio.AbstractEventLoop) -> None:
        """The thread: find the API server, wait until the Node is this machine, post."""
        client = self._api = self._client()
        if client is None:
            return
        try:
            if self._node_is_ours(client, loop):
                self._waiting_for = ""
                poster.run(client)
        finally:
            client.close()

    def _client(self) -> Client | None:
        """A client; None if closed first. A node that joins gets its kubeconfig late, so it is looked for again."""
        from kube.backoff import Backoff, BackoffPolicy
        from kube.client import RequestLimits
        from kube.errors import ConfigurationError

        backoff = Backoff(BackoffPolicy(*self._environment.retry), self._environment.random)
        while not self._closed.is_set():
            try:
                # The poster repeats what fails, at its own pace.
                purpose = "events are posted on the Node"
                return api_client(self._settings, self._environment, purpose, limits=RequestLimits(attempts=1))
            except ConfigurationError as error:
                self._wait_for(error)
                self._closed.wait(backoff.delay())
        return None

    def _node_is_ours(self, client: Client, loop: asyncio.AbstractEventLoop) -> bool:
        """Wait until the Node is this machine; False if closed first."""
        from kube.backoff import Backoff, BackoffPolicy
        from kube.errors import NodeNotOurs
        from kube.node_identity import await_node, read_machine

        def on_failure(error: KubeError) -> None:
            if self._wait_for(error) and isinstance(error, NodeNotOurs):
                EventsFromThreads(self._events, loop).emit(EventType.WARNING, NOT_OURS, str(error))

        def machine() -> Machine:
            return read_machine(self._environment.etc, self._settings.roots.sys)

        node = await_node(
            _ProvedNode(client, self._settings.node_name, machine, self._proofs),
            self._settings.node_name,
            machine,
            backoff=Backoff(BackoffPolicy(*self._environment.retry), self._environment.random),
            closed=self._closed,
            on_failure=on_failure,
        )
        return node is not None

    def _wait_for(self, error: KubeError) -> bool:
        """Remember why nothing is posted; returns whether that is new."""
        if self._closed.is_set() or str(error) == self._waiting_for:
            return False
        self._waiting_for = str(error)
        log.warning("events cannot be posted yet", extra={"error": str(error)})
        return True


class _ProvedNode:
    """A ``kube.discovery.ObjectGetter`` for the Node, which another part may have proved to be this machine."""

    def __init__(self, client: Client, name: str, machine: Callable[[], Machine], proofs: RecentProofs) -> None:
        self._client = client
        self._name = name
        self._machine = machine
        self._proofs = proofs

    def get(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        """Read the Node, unless that was done a moment ago."""
        from kube.node_identity import check_node

        def proved() -> JsonObject:
            node = self._client.get(path, query)
            check_node(node, self._name, self._machine())
            return node

        return self._proofs.node(proved)
