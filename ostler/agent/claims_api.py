"""The way to the API server of the DRA door, and what proves that the Node object there is this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from driver.parameters.decoding import pairs
from kube.bodies import JsonObject
from ostler import __version__
from ostler.config.settings import Settings

if TYPE_CHECKING:
    from driver.resource_api.client import ResourceApi

log = logging.getLogger("ostler.dra")

CALLS = 32
"""Questions to the API server at once; the slices' writer and its watch have a connection each besides."""
CONNECT, WHOLE = 3.0, 10.0
"""Seconds to a connection, and for one attempt: two of them fit into what the kubelet gives a call."""

NodeCheck = Callable[[JsonObject], None]
"""Raises ``KubeError`` for a Node object that is another machine's."""


def node_check(settings: Settings) -> NodeCheck | None:
    """What proves that the Node is this machine; a recorded node is nobody's."""
    if settings.inventory.recorded is not None:
        return None

    def check(node: JsonObject) -> None:
        from kube.node_identity import check_node, read_machine

        check_node(node, settings.node_name, read_machine(sys=settings.roots.sys))

    return check


def api_maker(settings: Settings, random: Callable[[], float]) -> Callable[[], ResourceApi]:
    """Makes the client, which is to be done in a thread: the client library is loaded then.

    What it gives raises ``kube.errors.KubeError``.
    """

    def made() -> ResourceApi:
        from driver.resource_api.client import ResourceApi
        from kube.client import Client, RequestLimits
        from ostler.agent.api_server import api_access

        access = api_access(settings.kubernetes.kubeconfig, os.environ)
        log.info("the API server is asked for claims", extra={"server": access.server, "by": access.origin})
        client = Client(
            access,
            random=random,
            user_agent=f"ostler/{__version__}",
            limits=RequestLimits(connect=CONNECT, whole=WHOLE, attempts=2),
            connections=CALLS + 2,
            pairs=pairs,
        )
        return ResourceApi(client)

    return made
