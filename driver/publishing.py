"""What the DRA door shows, kept published as ResourceSlices: one pool, named after the node.

The controller of ``driver.slices`` does the work at the API server; this is what feeds it. It has a thread of its own,
in which the controller is made, too: the kubernetes client takes a tenth of a second to import, and neither the event
loop nor the registration with the kubelet is to wait for it.

Invariants: the first view is published at once, later ones at most once per ``interval``, always the newest; a view
that says nothing new reaches nobody; a device stays in its slice as long as it is there (also across restarts, where
the layout is taken over from the API), so that one changed device is one write; a node without devices has one empty
slice, which tells the scheduler that the pool is complete; stopping deletes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from driver.devices.description import slice_device
from driver.devices.effect import TaintEffect
from driver.devices.offered import DoorView, DraDevice
from driver.devices.peer import Peer
from driver.publishing_faults import PublishingFaults
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import JsonObject, text_at
from node.chance import chance
from node.events import EventSink
from node.values import Value, value

if TYPE_CHECKING:
    # At run time they are imported in the thread: they bring the rules for objects with them.
    from driver.slices.api import SliceApi
    from driver.slices.model import DriverResources, Stats
    from driver.slices.status import PoolStatus

log = logging.getLogger("ostler.slices")

INTERVAL = 0.2
"""Seconds between two updates: a burst of changes is one write, and the scheduler knows of a fault soon enough."""
_LOOK = 1.0
"""Seconds between two looks at whether publishing works again."""

Layout = tuple[tuple[str, ...], ...]
"""Names of devices by slice."""
ErrorHandler = Callable[[Exception, str], None]
"""Hears of a fault and in which work it arose, in any thread."""


class SliceController(Protocol):
    """What is needed of ``driver.node_slices.NodeController``."""

    def start(self) -> object:
        """Begin to watch and to write."""

    def wait_synced(self, timeout: float) -> bool:
        """Wait for the first list of slices, for so many seconds; whether it is there."""
        ...

    def update(self, resources: DriverResources | None) -> None:
        """Replace what is wanted."""

    def stored(self, pool: str) -> Layout:
        """Names of devices by slice as they are in the API."""
        ...

    def status(self) -> tuple[PoolStatus, ...]:
        """How every pool stands."""
        ...

    def watch_fault(self) -> str:
        """Why slices cannot be listed or watched at the moment, empty where they can."""
        ...

    def get_stats(self) -> Stats:
        """Writes that succeeded since the start."""
        ...

    def stop(self) -> None:
        """End, and leave what is published."""


def controller_maker(
    make_api: Callable[[], SliceApi],
    driver_name: str,
    node_name: str,
    random: Callable[[], float] = chance,
    *,
    check: Callable[[JsonObject], None] | None = None,
) -> Callable[[ErrorHandler], SliceController]:
    """What ``SlicePublisher`` makes its controller with: the library's, for slices that belong to the Node.

    ``check`` raises ``KubeError`` for a Node that is not this machine; None: whatever has the name is believed.
    """

    def make(tell: ErrorHandler) -> SliceController:
        from driver.node_slices import NodeController
        from driver.own_node import OwnNode

        api = make_api()
        if check is not None:
            own = OwnNode(api, check)
            own.prove(node_name)
            api = own
        return NodeController(api, driver_name, node_name, tell, random)

    return make


@value
class Publication(Value):
    """How far publishing is, for people.

    ``generation``: of the snapshot that ``desired`` (devices by slice) was made from, 0 before the first.
    ``stored``: names of devices by slice in the API, as far as it is known. ``in_order``: what is stored is what is
    desired. ``dropped``: feature gates without which something was not stored. ``error``: the last fault, empty once
    all went well again. ``creates``, ``updates``, ``deletes``: writes since the start.
    """

    pool: str
    generation: int = 0
    desired: tuple[tuple[JsonObject, ...], ...] = ()
    stored: Layout = ()
    in_order: bool = False
    dropped: tuple[str, ...] = ()
    error: str = ""
    creates: int = 0
    updates: int = 0
    deletes: int = 0


class SlicePublisher:
    """Keeps the newest view published. Made, started and stopped once.

    ``apply`` and ``publication`` are for any thread and wait for nobody.
    """

    def __init__(
        self,
        node_name: str,
        make: Callable[[ErrorHandler], SliceController],
        *,
        events: EventSink,
        peers: tuple[Peer, ...] = (),
        effect: TaintEffect = TaintEffect.NO_SCHEDULE,
        interval: float = INTERVAL,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = chance,
    ) -> None:
        """``make``: makes the controller, in the publisher's thread; it may take its time and raise.

        ``events`` hears of faults from threads of the publisher and the controller.
        """
        self._pool = node_name
        self._make = make
        self._peers = peers
        self._effect = effect
        self._interval = interval
        self._backoff = Backoff(BackoffPolicy(), random)
        self._faults = PublishingFaults(events, monotonic)
        self._changed = threading.Condition()
        self._view: DoorView | None = None
        self._stopped = False
        self._controller: SliceController | None = None
        self._desired: tuple[tuple[JsonObject, ...], ...] = ()
        self._published: DoorView | None = None
        self._described: dict[str, tuple[DraDevice, JsonObject]] = {}
        self._thread = threading.Thread(target=self._work, name="publishing", daemon=True)

    def start(self) -> None:
        """Begin, in a thread of its own."""
        self._thread.start()

    def apply(self, view: DoorView) -> None:
        """Have this view published; one that comes before ``start`` is kept for it."""
        with self._changed:
            self._view = view
            self._changed.notify_all()

    def stop(self, seconds: float = 5.0) -> None:
        """End thread and controller, for which at most so many seconds are waited; what is published stays."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def publication(self) -> Publication:
        """How far it is."""
        controller, published = self._controller, self._published
        generation = published.generation if published is not None else 0
        if controller is None:
            return Publication(self._pool, generation, error=self._faults.last)
        status = self._status(controller)
        stats = controller.get_stats()
        return Publication(
            self._pool,
            generation,
            self._desired,
            stored=status.stored if status is not None else (),
            in_order=status is not None and status.in_order,
            dropped=status.dropped if status is not None else (),
            error=(status.error if status is not None else "") or controller.watch_fault() or self._faults.last,
            creates=stats.creates,
            updates=stats.updates,
            deletes=stats.deletes,
        )

    def _status(self, controller: SliceController) -> PoolStatus | None:
        return next((status for status in controller.status() if status.name == self._pool), None)

    def _work(self) -> None:
        controller = self._made()
        if controller is None:
            return
        self._controller = controller
        try:
            controller.start()
            while not controller.wait_synced(_LOOK):
                if self._stopped:
                    return
                self._faults.wait(controller.watch_fault() or "waiting for the API server's list of our slices")
                self._faults.look(working=False)
            while (view := self._next(controller)) is not None:
                try:
                    self._publish(controller, view)
                except Exception as error:
                    # A mistake of ours: log, event and status tell of it, what is published stays, the next view comes.
                    log.exception("a view cannot be published")
                    self._tell(error, "describing devices")
                self._pause(self._interval)
        finally:
            controller.stop()

    def _made(self) -> SliceController | None:
        """The controller, made again and again until that works; None when stopped."""
        while not self._stopped:
            try:
                return self._make(self._tell)
            except Exception as error:  # noqa: BLE001 - status and event tell of it, and it is tried again
                self._tell(error, "getting ready to publish")
                self._pause(self._backoff.delay())
                self._faults.look(working=False)
        return None

    def _next(self, controller: SliceController) -> DoorView | None:
        """The newest view, once it is another than the published one; None when stopped."""
        while True:
            with self._changed:
                if self._stopped:
                    return None
                view, published = self._view, self._published
                if view is not None and (published is None or view.devices != published.devices):
                    return view
                # Another generation of the same devices is published, too.
                self._published = view if published is not None else None
                self._changed.wait(_LOOK if self._faults.last else None)
            if self._faults.last:
                self._faults.look(working=self._works(controller))

    def _works(self, controller: SliceController) -> bool:
        status = self._status(controller)
        return status is not None and status.in_order and not status.error and not controller.watch_fault()

    def _publish(self, controller: SliceController, view: DoorView) -> None:
        from driver.slices.model import DriverResources, Pool
        from driver.slices.packing import pack

        self._published = view
        devices = [self._device(offered) for offered in view.devices]
        self._described = {offered.device.name: self._described[offered.device.name] for offered in view.devices}
        before = tuple(tuple(text_at(device, "name") for device in group) for group in self._desired)
        slices = pack(devices, before or controller.stored(self._pool))
        self._desired = tuple(each.devices for each in slices)
        controller.update(DriverResources({self._pool: Pool(slices)}))

    def _device(self, offered: DraDevice) -> JsonObject:
        name = offered.device.name
        known = self._described.get(name)
        if known is None or known[0] != offered:
            known = self._described[name] = (offered, slice_device(offered, self._peers, self._effect))
        return known[1]

    def _tell(self, error: Exception, work: str) -> None:
        self._faults.tell(error, work)
        with self._changed:
            self._changed.notify_all()

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)
