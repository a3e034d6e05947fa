"""How a controller is set up, and the numbers it uses unless told otherwise."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Final

from driver.slices.api import SliceApi, Watching
from driver.slices.matching import ByIndex, Matching
from driver.slices.model import DriverResources, Owner
from driver.slices.queue import WorkQueue
from kube.reflector import Handler, Reflector
from node.values import Value, value

log = logging.getLogger("ostler.slices")

DEFAULT_MUTATION_CACHE_TTL: Final = 60.0
"""Seconds that our own creations are believed without the watch having told of them; then the slices are listed."""

DEFAULT_SYNC_DELAY: Final = 0.2
"""Seconds from the first news of a slice to the repair of its pool.

Upstream waits 30 s, because its cache may not know yet what it wrote itself. Ours knows by resource versions, so the
delay only has to gather what belongs together, such as the deletions of a node's slices by its kubelet, and a pod that
waits for a device does not wait for us. Who changes slices over and over again is answered more and more slowly, see
``driver.slices.repairs``.
"""

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
    return Reflector(source, handler, random=random.random, told=told, name="slices")


@value
class Options(Value):
    """``client`` and ``driver_name`` (a DNS subdomain in small letters, 63 bytes at most) are needed, the rest is not.

    ``owner``: what the slices belong to; for a Node they carry its name, and only slices of that node are looked at.
    ``resources``: the first to publish. None means none, and removes what an earlier life left, unless
    ``wait_for_update``: then nothing is written before the first ``update``. ``sync_delay``, ``mutation_cache_ttl``:
    seconds. ``reconcile_pool_with_name``: publish this one pool only, without a node's name though the owner be a Node,
    and leave all other pools of the driver to others.
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
    random: Callable[[], float] = random.random
    monotonic: Callable[[], float] = time.monotonic
