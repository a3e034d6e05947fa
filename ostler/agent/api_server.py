"""The agent's clients of the API server, the threads that use them, and the check that a Node is this machine.

The client library is loaded when a client is made, in a thread, and not at the start of the agent.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from node.clocks import SYSTEM, Clocks, chance
from node.values import Value, value
from ostler import __version__
from ostler.agent.event_log import call_on
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from driver.node_watch.following import NodeCheck
    from driver.resource_api.client import ResourceApi
    from kube.answers import Pairs
    from kube.bodies import JsonObject
    from kube.client import Client, RequestLimits

log = logging.getLogger("ostler.kubernetes")

CONNECT, WHOLE = 3.0, 10.0
"""Seconds to connect, and for one attempt: two attempts fit into the time that the kubelet gives a call."""
RETRY = (1.0, 60.0)
"""Seconds between attempts to find the API server and the Node: at first, and at most."""
ETC = Path("/etc")
NEWEST = "v1"
"""The version of resource.k8s.io that is tried before the API server is asked which ones it serves."""
PROVED = 5.0
"""Seconds for which the other parts of the agent rely on the proof of one of them that the Node is this machine."""


class RecentProofs:
    """See ``driver.resource_api.client.NodeProofs``; for all parts of the process and their threads."""

    def __init__(self, clocks: Clocks = SYSTEM) -> None:
        self._monotonic = clocks.monotonic
        self._lock = threading.Lock()
        self._node: JsonObject = {}
        self._until = -math.inf

    def node(self, prove: Callable[[], JsonObject]) -> JsonObject:
        """See ``NodeProofs``; later callers wait for the request under way."""
        with self._lock:
            if self._until <= self._monotonic():
                self._node = prove()
                self._until = self._monotonic() + PROVED
            return self._node


@value
class ApiEnvironment(Value):
    """The edges that tests replace: the environment's variables, and the files of a pod's account and of this machine's
    ids."""

    variables: Mapping[str, str]
    account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount")
    etc: Path = ETC
    random: Callable[[], float] = chance
    retry: tuple[float, float] = RETRY


def api_client(
    settings: Settings,
    environment: ApiEnvironment,
    purpose: str,
    *,
    limits: RequestLimits | None = None,
    connections: int = 2,
    pairs: Pairs | None = None,
) -> Client:
    """A client, for a thread; the other arguments as for ``kube.client.Client``. Raises ``ConfigurationError``."""
    from kube.client import Client, RequestLimits
    from kube.kubeconfig import api_access
    from ostler.agent.transport import load_transport

    load_transport()
    access = api_access(settings.kubernetes.kubeconfig, environment.variables, environment.account)
    log.info(purpose, extra={"server": access.server, "by": access.origin})
    return Client(
        access,
        random=environment.random,
        user_agent=f"ostler/{__version__}",
        limits=limits or RequestLimits(connect=CONNECT, whole=WHOLE, attempts=2),
        connections=connections,
        pairs=pairs,
    )


def resource_api(
    settings: Settings,
    random: Callable[[], float],
    *,
    connections: int,
    pairs: Pairs | None = None,
    proofs: RecentProofs | None = None,
) -> ResourceApi:
    """A client for pods and claims; see ``api_client`` and ``ResourceApi``."""
    from driver.resource_api.client import ResourceApi

    environment = ApiEnvironment(os.environ, random=random)
    purpose = "reading pods and claims from the API server"
    client = api_client(settings, environment, purpose, connections=connections, pairs=pairs)
    return ResourceApi(client, assumed=NEWEST, proofs=proofs)


def node_check(settings: Settings, etc: Path = ETC) -> NodeCheck | None:
    """A check that raises ``KubeError`` for a Node object that is not this machine's; None for a recorded node."""
    if settings.inventory.recorded is not None:
        return None

    def check(node: JsonObject) -> None:
        from kube.node_identity import check_node, read_machine

        check_node(node, settings.node_name, read_machine(etc, settings.roots.sys))

    return check


async def in_daemon_thread(
    work: Callable[[], None], name: str, on_fault: Callable[[str], None], *, consequence: str
) -> None:
    """Return when ``work`` has ended in a daemon thread; if cancelled, leave the thread behind.

    An unexpected fault is logged with its ``consequence``; ``on_fault`` gets it, in the thread.
    """
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def worked() -> None:
        try:
            work()
        except Exception as error:
            on_fault(f"stopped by an unexpected fault ({type(error).__name__}: {error})")
            log.exception(consequence)
        call_on(loop, ended.set)

    threading.Thread(target=worked, name=name, daemon=True).start()
    await ended.wait()
