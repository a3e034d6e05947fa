"""Keeps the ResourceSlices of one driver as the driver wants them.

The counterpart of upstream's Go library (``k8s.io/dynamic-resource-allocation/resourceslice``), for any driver: give it
an ``Options`` and, whenever something changes, an ``update``. It has two threads: one follows the slices in the API (a
list, then a watch), the other works on one pool at a time. Faults go to the error handler and are retried pool by pool;
one bad pool or slice delays no other. Stopping deletes nothing: slices are deleted with their owner, or by the kubelet
when their driver has gone.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from driver.slices.content import rounded
from driver.slices.errors import WrongPools
from driver.slices.model import DriverResources, Pool, PoolStatus, Slice, Stats
from driver.slices.options import Options, Watching, guarded
from driver.slices.queue import PoolQueue, Repairs
from driver.slices.store import SliceStore
from driver.slices.syncing import PoolSync
from driver.slices.wanted import WantedPool
from kube.bodies import JsonObject
from node.values import replace

_STOP_SECONDS = 5.0
_AHEAD = 1.0

UPDATING = "taking over the driver's resources"
WORKING = "publishing slices"


class Controller:
    """Keeps the slices of one driver; made, started and stopped once; thread-safe. Raises ValueError."""

    def __init__(self, options: Options) -> None:
        if not options.driver_name:
            raise ValueError("driver_name must not be empty; give the name of the DRA driver, a DNS subdomain")
        self._options = options = replace(options, error_handler=guarded(options.error_handler))
        self._lock = threading.Lock()
        self._wanted: dict[str, WantedPool] = {}
        self._given = False
        self._asked: set[str] = set()
        self._queue = options.queue or PoolQueue(options.clocks)
        self._store = SliceStore(options.mutation_cache_ttl, options.clocks, options.reconcile_pool_with_name)
        self._sync = PoolSync(options, self._store, self._selector(), self._node())
        self._repairs = Repairs(options.sync_delay, options.clocks)
        self._watching: Watching | None = None
        self._worker = threading.Thread(target=self._work, name="slices", daemon=True)
        self._stopped = threading.Event()
        if options.resources is not None or not options.wait_for_update:
            self.update(options.resources)

    def start(self) -> Controller:
        """Begin to watch and to write."""
        self._watching = self._options.watch(self._options.client, self._selector(), _Listener(self))
        self._watching.start()
        self._worker.start()
        return self

    def update(self, resources: DriverResources | None, *, afresh: bool = False) -> None:
        """Replace the wanted resources; None means none. The caller may change its objects afterwards.

        ``afresh``: send again what the server dropped before, because it may keep it by now.
        """
        with self._lock:
            kept = DriverResources({name: pool.asked for name, pool in self._wanted.items()})
        taken = _taken(resources, kept)
        only = self._options.reconcile_pool_with_name
        if only and taken.pools and tuple(taken.pools) != (only,):
            self._options.error_handler(WrongPools(only, tuple(taken.pools)), UPDATING)
            return
        with self._lock:
            before, self._given = self._wanted, True
            known = {} if afresh else before
            self._wanted = {name: WantedPool(name, pool, known.get(name)) for name, pool in taken.pools.items()}
            pools = {*before, *self._wanted, *self._store.pools()}
            self._asked |= pools
        for name in sorted(pools):
            self._queue.add(name)

    def get_stats(self) -> Stats:
        """Writes that succeeded since the start."""
        return self._sync.stats

    def stop(self) -> None:
        """End both threads; nothing is deleted. Waits a few seconds for a request that is under way."""
        self._stopped.set()
        self._queue.shut_down()
        if self._watching is not None:
            self._watching.stop()
            self._worker.join(_STOP_SECONDS)

    def wait_synced(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for the first list of slices; returns whether it came."""
        return self._watching is not None and self._watching.synced.wait(timeout)

    def wait_idle(self, timeout: float, ahead: float = _AHEAD) -> bool:
        """Wait up to ``timeout`` seconds until no work is due within ``ahead`` seconds; returns whether it is."""
        return self.wait_synced(timeout) and self._queue.idle(ahead, timeout)

    def stored(self, pool: str) -> tuple[tuple[str, ...], ...]:
        """The names of devices in the API, by index of the slice; ``pack`` builds on them after a restart.

        Call it once the first list is there (``wait_synced``).
        """
        return self._options.matching.layout(self._store.in_pool(pool))

    def free(self, pool: str) -> frozenset[str] | None:
        """Names of the pool's devices that any slice in the API offers without a taint that keeps new claims away.

        None while that may change: a write of ours is due or under way, or one failed and may still take effect. Once
        this is not None, nothing that an earlier ``update`` wanted will be written any more.
        """
        if not self.wait_idle(0.0, 0.0) or self._sync.uncertain(pool):
            return None
        return frozenset([name for each in self._store.in_pool(pool) for name in each.free_names])

    def status(self) -> tuple[PoolStatus, ...]:
        """How every pool that is wanted or in the API stands, by name."""
        with self._lock:
            wanted = dict(self._wanted)
        return tuple([self._sync.status(name, wanted.get(name)) for name in sorted({*wanted, *self._store.pools()})])

    def fault(self, pool: str) -> str:
        """Why the pool's last write or check failed, empty if it did not; much cheaper than ``status``."""
        return self._sync.fault(pool)

    def changed_outside(self, pools: set[str]) -> None:
        """Look at pools that the watch reported changes of."""
        for name in sorted(pools):
            with self._lock:
                delay = self._repairs.delay(name)
            self._queue.add_after(name, delay)

    def _node(self) -> str:
        owner = self._options.owner
        return owner.name if owner and owner.is_node and not self._options.reconcile_pool_with_name else ""

    def _selector(self) -> str:
        """Always both fields: without a node's name, slices that have one do not belong to us."""
        return f"spec.driver={self._options.driver_name},spec.nodeName={self._node()}"

    def _work(self) -> None:
        watching = self._watching
        assert watching is not None
        while not watching.synced.wait(1.0):
            if self._stopped.is_set():
                return
        while (name := self._queue.get()) is not None:
            try:
                self._work_on(name)
            except Exception as error:  # noqa: BLE001 - the error handler learns of it, and the pool is tried again
                self._options.error_handler(error, WORKING)
                self._queue.add_failed(name)
            finally:
                self._queue.done(name)

    def _work_on(self, name: str) -> None:
        with self._lock:
            if not self._given:
                return
            wanted, asked = self._wanted.get(name), name in self._asked
            self._asked.discard(name)
        outcome = self._sync.sync(name, wanted)
        if outcome.wrote and not asked:
            with self._lock:
                self._repairs.made(name)
        if outcome.created:
            self._queue.add_after(name, self._options.mutation_cache_ttl)
        if outcome.retry:
            self._queue.add_failed(name, outcome.retry_after)
        else:
            self._queue.forget(name)

    @property
    def store(self) -> SliceStore:
        """The slices in the API as far as we know them."""
        return self._store

    def node_may_have_changed(self) -> None:
        """Others deleted a slice of ours; the Node that owned it may have been deleted as well."""
        self._sync.forget_node()


class _Listener:
    """Stores what the watch reports, and queues the pools that it changes."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def replaced(self, objects: Sequence[JsonObject], resource_version: str) -> None:
        """See ``kube.reflector.Handler``."""
        self._controller.changed_outside(self._controller.store.replaced(objects, resource_version))

    def applied(self, body: JsonObject) -> None:
        """See ``kube.reflector.Handler``."""
        self._controller.changed_outside(self._controller.store.applied(body))

    def deleted(self, body: JsonObject) -> None:
        """See ``kube.reflector.Handler``."""
        pools = self._controller.store.deleted(body)
        if pools:
            self._controller.node_may_have_changed()
        self._controller.changed_outside(pools)

    def bookmark(self, resource_version: str) -> None:
        """See ``kube.reflector.Handler``."""
        self._controller.changed_outside(self._controller.store.bookmark(resource_version))


def _taken(resources: DriverResources | None, kept: DriverResources) -> DriverResources:
    """A deep copy, with times in the form in which the server stores them."""
    copy = (resources or DriverResources()).copy(kept)
    return DriverResources({name: _rounded(pool) for name, pool in copy.pools.items()})


def _rounded(pool: Pool) -> Pool:
    slices = [replace(each, devices=rounded(each.devices)) if _tainted(each) else each for each in pool.slices]
    return replace(pool, slices=tuple(slices))


def _tainted(slice_: Slice) -> bool:
    return any(device.get("taints") for device in slice_.devices)
