"""The service ``Plugin`` of NRI, which the runtime calls, for one connection.

Runtimes with NRI 0.3 to 0.8 report pods by StateChange, later ones by a method per event; ostler serves both. It
answers an unknown method with UNIMPLEMENTED, and the connection goes on.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable

from google.protobuf.message import Message

from driver.nri.calls import Code, RpcFailed, decoded
from driver.nri.sandboxes import Sandbox, SandboxContainer
from driver.nri.sequence import SandboxSequence
from node.values import replace
from protos.nri.v1alpha1.nri_pb2 import (
    CONTAINER_RUNNING,
    REMOVE_POD_SANDBOX,
    RUN_POD_SANDBOX,
    STOP_POD_SANDBOX,
    ConfigureRequest,
    ConfigureResponse,
    Empty,
    PodSandbox,
    PodSandboxRequest,
    StateChangeEvent,
    SynchronizeRequest,
    SynchronizeResponse,
)
from protos.ttrpc.v1.ttrpc_pb2 import Request

log = logging.getLogger("ostler.nri")

PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
ANSWER_WITHIN = 1.5
"""Seconds; the runtime waits two unless it says otherwise."""
SHARE = 0.75
"""Of the time that a runtime waits."""
MAX_LISTED = 65536
"""Sandboxes and containers of one synchronization; a node runs some hundreds."""
EVENTS = (RUN_POD_SANDBOX, STOP_POD_SANDBOX, REMOVE_POD_SANDBOX)

SandboxCall = Callable[[Sandbox, float], Awaitable[None]]


class PluginService:
    """Answers one runtime's calls; ``on_synchronized`` is called with its name and version once it is synchronized."""

    def __init__(self, sequence: SandboxSequence, on_synchronized: Callable[[str], None]) -> None:
        self._sequence = sequence
        self._on_synchronized = on_synchronized
        self._runtime = ""
        self._request_timeout = 0.0
        self._listed = _Listed()
        self._events: dict[int, SandboxCall] = dict(
            zip(EVENTS, (sequence.run, sequence.stop, sequence.removed), strict=True)
        )
        self._methods: dict[str, Callable[[Request], Awaitable[Message]]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "Shutdown": self._shutdown,
            "RunPodSandbox": self._reporting(RUN_POD_SANDBOX),
            "StopPodSandbox": self._reporting(STOP_POD_SANDBOX),
            "RemovePodSandbox": self._reporting(REMOVE_POD_SANDBOX),
            "StateChange": self._state_change,
        }

    async def serve(self, request: Request) -> Message:
        """The answer to a call; raises ``RpcFailed``."""
        method = self._methods.get(request.method) if request.service == PLUGIN_SERVICE else None
        if method is None:
            raise RpcFailed(Code.UNIMPLEMENTED, f"ostler does not serve {request.service}/{request.method}")
        return await method(request)

    async def _configure(self, request: Request) -> Message:
        given = decoded(ConfigureRequest, request.payload)
        self._runtime = f"{given.runtime_name} {given.runtime_version}".strip()
        self._request_timeout = given.request_timeout / 1000
        return ConfigureResponse(events=sum(1 << event - 1 for event in EVENTS))

    async def _synchronize(self, request: Request) -> Message:
        given = decoded(SynchronizeRequest, request.payload)
        self._listed.add(given)
        if not given.more:
            sandboxes, self._listed = self._listed.sandboxes(), _Listed()
            await self._sequence.synchronize(sandboxes, self._within(request))
            self._on_synchronized(self._runtime)
        return SynchronizeResponse(more=given.more)

    async def _shutdown(self, _: Request) -> Message:
        log.info("the container runtime shuts down", extra={"runtime": self._runtime})
        return Empty()

    async def _state_change(self, request: Request) -> Message:
        given = decoded(StateChangeEvent, request.payload)
        if relay := self._events.get(given.event):
            await relay(sandbox_of(given.pod), self._within(request))
        return Empty()

    def _reporting(self, event: int) -> Callable[[Request], Awaitable[Message]]:
        async def report(request: Request) -> Message:
            given = decoded(PodSandboxRequest, request.payload)
            await self._events[event](sandbox_of(given.pod), self._within(request))
            return Empty()

        return report

    def _within(self, request: Request) -> float:
        """Seconds in which a call must be answered."""
        waits = request.timeout_nano / 1e9 or self._request_timeout
        return min(ANSWER_WITHIN, waits * SHARE) if waits > 0 else ANSWER_WITHIN


class _Listed:
    """The list of a synchronization so far: pods and containers may come in several messages."""

    def __init__(self) -> None:
        self._pods: list[Sandbox] = []
        self._containers: dict[str, list[SandboxContainer]] = defaultdict(list)
        self._count = 0

    def add(self, given: SynchronizeRequest) -> None:
        """Add one message; raises ``RpcFailed`` if there are too many."""
        self._count += len(given.pods) + len(given.containers)
        if self._count > MAX_LISTED:
            raise RpcFailed(Code.RESOURCE_EXHAUSTED, f"ostler takes at most {MAX_LISTED} sandboxes and containers")
        self._pods += map(sandbox_of, given.pods)
        for each in given.containers:
            container = SandboxContainer(each.id, each.name, each.state == CONTAINER_RUNNING)
            self._containers[each.pod_sandbox_id].append(container)

    def sandboxes(self) -> list[Sandbox]:
        """The sandboxes with their containers."""
        return [replace(pod, containers=tuple(self._containers.get(pod.id, ()))) for pod in self._pods]


def sandbox_of(pod: PodSandbox) -> Sandbox:
    """A sandbox as the runtime reports it; a stopped one has neither a network namespace nor a process."""
    network = [each.path for each in pod.linux.namespaces if each.type == "network"]
    return Sandbox(
        id=pod.id,
        uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        netns=network[0] if network else "",
        host_network=bool(pod.pid and pod.linux.namespaces) and not network,
        pid=pod.pid,
    )
