"""The agent's clients of the API server, and the check that a Node is this machine.

The client library is loaded when a client is made, in a thread, and not at the start of the agent.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from driver.node_watch.following import NodeCheck
from kube.bodies import JsonObject
from ostler import __version__
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from driver.resource_api.client import ResourceApi
    from kube.answers import Pairs

log = logging.getLogger("ostler.kubernetes")

CONNECT, WHOLE = 3.0, 10.0
"""Seconds to connect, and for one attempt: two attempts fit into the time that the kubelet gives a call."""


def node_check(settings: Settings) -> NodeCheck | None:
    """A check that raises ``KubeError`` for a Node object that is not this machine's; None for a recorded node."""
    if settings.inventory.recorded is not None:
        return None

    def check(node: JsonObject) -> None:
        from kube.node_identity import check_node, read_machine

        check_node(node, settings.node_name, read_machine(sys=settings.roots.sys))

    return check


def resource_api(
    settings: Settings, random: Callable[[], float], *, connections: int, pairs: Pairs | None = None
) -> ResourceApi:
    """A client, for a thread; ``connections``, ``pairs``: see ``kube.client.Client``. Raises ``KubeError``."""
    from driver.resource_api.client import ResourceApi
    from kube.client import Client, RequestLimits
    from kube.kubeconfig import api_access

    access = api_access(settings.kubernetes.kubeconfig, os.environ)
    log.info("reading pods and claims from the API server", extra={"server": access.server, "by": access.origin})
    client = Client(
        access,
        random=random,
        user_agent=f"ostler/{__version__}",
        limits=RequestLimits(connect=CONNECT, whole=WHOLE, attempts=2),
        connections=connections,
        pairs=pairs,
    )
    return ResourceApi(client)
