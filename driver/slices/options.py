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
"""Seconds that our own creations are believed before the watch confirms them; then the slices are listed."""

DEFAULT_SYNC_DELAY: Final = 0.2
"""Seconds from the first news of a slice to the repair of its pool.

Upstream waits 30 s, because its cache may not know yet what it wrote itself. Ours knows by resource versions, so the
delay only has to gather what belongs together, such as the deletions of a node's slices by its kubelet, and a pod that
waits for a device does not wait for us. Who changes slices over and over again is answered more and more slowly, see
``driver.slices.queue``.
"""


class NodeReader(Protocol):
    """Nodes at the API server. Blocking, for several threads."""

    def node(self, name: str) -> JsonObject:
        """The Node of that name."""


class SliceApi(NodeReader, Protocol):
    """Slices and nodes at the API server."""

    def slices(self, query: Mapping[str, str]) -> CollectionSource:
        """The slices that a ``fieldSelector`` chooses, as something that a ``Watching`` can be made of."""

    def list_slices(self, query: Mapping[str, str]) -> Sequence[JsonObject]:
        """Lists the same slices now."""

    def create_slice(self, body: JsonObject) -> JsonObject:
        """Create a slice; what the server made of it."""

    def replace_slice(self, body: JsonObject) -> JsonObject:
        """Put ``body`` in place of the slice of its name, if that still has its resourceVersion."""

    def delete_slice(self, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete exactly this object in exactly this state."""


class Watching(Protocol):
    """A list and a watch that go on until they are stopped, in a thread of their own."""

    @property
    def synced(self) -> threading.Event:
        """Set when the first list has been handed over."""

    def start(self) -> object:
        """Begin."""

    def stop(self) -> object:
        """End; the handler is not called any more when this returns."""


Watch = Callable[[SliceApi, str, Handler], Watching]
"""Makes a watch of the slices that a field selector chooses."""

ErrorHandler = Callable[[Exception, str], None]
"""Hears of a fault, and in which work it arose; called by the controller's threads, which go on afterwards."""


def guarded(handler: ErrorHandler) -> ErrorHandler:
    """The handler, which cannot do harm by its own faults: these are logged."""

    def told(error: Exception, work: str) -> None:
        try:
            handler(error, work)
        except Exception:
            log.exception("the error handler failed at: %s", error)

    return told


def log_error(error: Exception, work: str) -> None:
    """The error handler that is used unless another is given."""
    log.warning("%s: %s", work, error)


def reflected(client: SliceApi, selector: str, handler: Handler) -> Watching:
    """The watch that is used unless another is given."""

    def told(error: Exception) -> None:
        log.info("watching slices: %s", error)

    source = client.slices({"fieldSelector": selector})
    return Reflector(source, handler, random=chance, told=told, name="slices")


@value
class Options(Value):
    """``client`` and ``driver_name`` (a DNS subdomain in small letters, 63 bytes at most) are needed, the rest is not.

    ``owner``: what the slices belong to; for a Node they carry its name, and only slices of that node are looked at.
    ``resources``: the first to publish. None means none, and removes what an earlier life left, unless
    ``wait_for_update``: then nothing is written before the first ``update``. ``sync_delay``, ``mutation_cache_ttl``:
    seconds. ``reconcile_pool_with_name``: publish this one pool only, without a node's name though the owner be a Node,
    and leave all other pools of the driver to others. ``nodes``: reads the Node that owns the slices; by
    default the client does.
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
