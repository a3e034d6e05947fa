"""How a controller is set up: its options, their defaults, and what it needs of the API server and of a watch.

Objects are resource.k8s.io/v1 dicts, whatever version the server serves. Failures are ``kube.errors.RequestError``.
``driver.resource_api.client.ResourceApi`` is a ``SliceApi``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from driver.slices.model import DriverResources, Owner
from driver.slices.planning import ByIndex, Matching
from driver.slices.queue import WorkQueue
from kube.bodies import JsonObject
from kube.collection import CollectionSource
from kube.reflector import Handler, Reflector
from node.clocks import SYSTEM, Clocks, chance
from node.values import Value, value

log = logging.getLogger("ostler.slices")

DEFAULT_MUTATION_CACHE_TTL: Final = 60.0
"""Seconds for which our own creations count without the watch's confirmation; then the slices are listed."""

DEFAULT_SYNC_DELAY: Final = 0.2
"""Seconds from the first report of a changed slice to the repair of its pool.

Upstream waits 30 s, because its cache may not yet know what it wrote itself. Ours knows by resource versions, so the
delay only has to gather related changes, such as the kubelet's deletion of all slices of a node; a pod that waits for a
device does not wait for us. If others change slices again and again, repairs become slower and slower, see
``driver.slices.queue``.
"""


class NodeReader(Protocol):
    """Reads Nodes at the API server. Blocking, for several threads."""

    def node(self, name: str) -> JsonObject:
        """The Node with that name."""


class SliceApi(NodeReader, Protocol):
    """Slices and nodes at the API server."""

    def slices(self, query: Mapping[str, str]) -> CollectionSource:
        """A collection of the slices that a ``fieldSelector`` selects, for a ``Watching``."""

    def list_slices(self, query: Mapping[str, str]) -> Sequence[JsonObject]:
        """List the same slices now."""

    def create_slice(self, body: JsonObject) -> JsonObject:
        """Create a slice; returns the stored object."""

    def replace_slice(self, body: JsonObject) -> JsonObject:
        """Replace the slice of this name by ``body``, if it still has the same resourceVersion."""

    def delete_slice(self, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete exactly this object in exactly this state."""


class Watching(Protocol):
    """A list and a watch that continue until they are stopped, in a thread of their own."""

    @property
    def synced(self) -> threading.Event:
        """Set once the first list has been handed over."""

    def start(self) -> object:
        """Begin."""

    def stop(self) -> object:
        """Stop; the handler is not called any more once this returns."""


Watch = Callable[[SliceApi, str, Handler], Watching]
"""Makes a watch of the slices that a field selector selects."""

ErrorHandler = Callable[[Exception, str], None]
"""Called with a fault and the work in which it arose, by the controller's threads, which then go on."""


def guarded(handler: ErrorHandler) -> ErrorHandler:
    """The handler, wrapped so that its own faults are logged and do no harm."""

    def guard(error: Exception, work: str) -> None:
        try:
            handler(error, work)
        except Exception:
            log.exception("the error handler failed at: %s", error)

    return guard


def log_error(error: Exception, work: str) -> None:
    """The default error handler."""
    log.warning("%s: %s", work, error)


def reflected(client: SliceApi, selector: str, handler: Handler) -> Watching:
    """The default watch."""

    def log_failure(error: Exception) -> None:
        log.info("watching slices: %s", error)

    source = client.slices({"fieldSelector": selector})
    return Reflector(source, handler, random=chance, on_failure=log_failure, name="slices")


@value
class Options(Value):
    """Only ``client`` and ``driver_name`` (a DNS subdomain in lower case, at most 63 bytes) are required.

    ``owner``: what the slices belong to; those of a Node carry its name, and only slices of that node are considered.
    ``resources``: the first to publish. None means none, and removes what an earlier process left, unless
    ``wait_for_update``: then nothing is written before the first ``update``. ``sync_delay``, ``mutation_cache_ttl``:
    seconds. ``reconcile_pool_with_name``: publish only this pool, without a node's name even if the owner is a Node,
    and leave all other pools of the driver to others. ``nodes``: reads the Node that owns the slices; the client by
    default.
    """

    client: SliceApi
    driver_name: str
    owner: Owner | None = None
    resources: DriverResources | None = None
    wait_for_update: bool = False
    queue: WorkQueue | None = None
    mutation_cache_ttl: float = DEFAULT_MUTATION_CACHE_TTL
    sync_delay: float = DEFAULT_SYNC_DELAY
    error_handler: ErrorHandler = log_error
    reconcile_pool_with_name: str = ""
    matching: Matching = ByIndex()
    watch: Watch = reflected
    nodes: NodeReader | None = None
    clocks: Clocks = SYSTEM
