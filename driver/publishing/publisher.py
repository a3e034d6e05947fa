"""Publishes the devices of the DRA door as ResourceSlices: one pool, named after the node.

The controller of ``driver.slices`` does the work at the API server, and this module feeds it. It has a thread of its
own, in which it also makes the controller: importing the kubernetes client takes a tenth of a second, for which neither
the event loop nor the registration with the kubelet should wait.

Invariants: the first view is published at once, later ones at most once per ``interval``, always the newest; a view
that changes nothing is not passed on; a device stays in its slice as long as it exists (also across restarts, when the
layout is taken over from the API), so that a change of one device is one write; a node without devices has one empty
slice, which tells the scheduler that the pool is complete; stopping deletes nothing.

Nothing is published before it is in the record of shown devices (``driver.publishing.shown``) or already in the API:
whoever comes after us must know which devices claims may name. A device that pods have or may get through the plugin
door keeps its place with a taint if the server keeps taints, and is left out otherwise, because then nothing else would
keep new claims away from it.

Which of the two applies can change while the agent runs (``driver.publishing.publication``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from driver.devices.description import Described, counter_set, described, slice_device
from driver.devices.view import OF_DOORS, DoorView, DraDevice
from driver.names import Peer
from driver.publishing.publication import DroppedTaints, ErrorHandler, Publication, PublishingFaults, SliceController
from driver.publishing.shown import ShownDevices
from kube.backoff import Backoff, BackoffPolicy
from kube.bodies import JsonObject, text_at
from node.clocks import SYSTEM, Clocks
from node.events import EventRecorder
from node.files import FileError
from node.rules import Door

if TYPE_CHECKING:
    # At run time only the thread imports them, with the rules for objects that they need.
    from driver.node_watch.following import NodeCheck
    from driver.publishing.node_slices import OwnNodeApi
    from driver.slices.model import PoolStatus

log = logging.getLogger("ostler.slices")

INTERVAL = 0.2
"""Seconds between two updates: a burst of changes is one write, and the scheduler learns of a fault soon enough."""
GIVES_WAY, ASKED_AGAIN = 0.05, 0.005
"""The longest that a view waits until claims are answered, and the time between two checks, in seconds."""
_LOOK = 1.0
"""Seconds between two checks whether publishing works again."""

_TAINTS = "DRADeviceTaints"
"""The feature gate without which the server drops taints."""
_COUNTERS = "DRAPartitionableDevices"


def controller_maker(
    make_api: Callable[[], OwnNodeApi],
    driver_name: str,
    node_name: str,
    clocks: Clocks = SYSTEM,
    *,
    check: NodeCheck | None = None,
) -> Callable[[ErrorHandler], SliceController]:
    """How ``SlicePublisher`` makes its controller: the library's, for slices that belong to the Node.

    ``check`` raises ``KubeError`` for a Node that is not this machine; None: any Node of that name is accepted.
    """

    def make(report: ErrorHandler) -> SliceController:
        from driver.publishing.node_slices import NodeController, OwnNode

        api = make_api()
        if check is None:
            return NodeController(api, driver_name, node_name, report, clocks)
        own = OwnNode(api, check)
        own.prove(node_name)
        return NodeController(api, driver_name, node_name, report, clocks, nodes=own)

    return make


class SlicePublisher:
    """Keeps the newest view published. Made, started and stopped once.

    ``apply`` and ``publication`` are safe to call from any thread and do not block.
    """

    def __init__(
        self,
        node_name: str,
        make: Callable[[ErrorHandler], SliceController],
        *,
        events: EventRecorder,
        peers: tuple[Peer, ...] = (),
        shown: ShownDevices | None = None,
        on_dropped: Callable[[], None] = lambda: None,
        gives_way: Callable[[], bool] = lambda: False,
        interval: float = INTERVAL,
        clocks: Clocks = SYSTEM,
    ) -> None:
        """``make``: makes the controller, in the publisher's thread; it may take its time and raise.

        ``shown``: remembers what is published, written in that thread; None if nobody else allocates the devices.
        ``gives_way``: whether a claim is about to be answered, which a publication would delay; called in that thread.
        ``on_dropped``: called in that thread when the server has dropped taints or counters. ``events``: gets faults
        from threads of the publisher and the controller.
        """
        self._pool = node_name
        self._make = make
        self._peers = peers
        self._shown = shown
        self._taints = DroppedTaints(clocks)
        self._on_dropped = on_dropped
        self._gives_way = gives_way
        self._uncounted = False
        """Whether the server has dropped counters."""
        self._interval = interval
        self._backoff = Backoff(BackoffPolicy(), clocks.random)
        self._monotonic = clocks.monotonic
        self._faults = PublishingFaults(events, clocks)
        self._changed = threading.Condition()
        self._view: DoorView | None = None
        self._stopped = False
        self._controller: SliceController | None = None
        self._desired: tuple[tuple[JsonObject, ...], ...] = ()
        self._published: DoorView | None = None
        self._said: tuple[list[JsonObject], list[JsonObject], dict[str, str]] | None = None
        """Devices, counter sets and the GPU of each partition, as the controller last got them."""
        self._handed: DoorView | None = None
        """The view that the controller last got."""
        self._again_at: float | None = None
        """When to publish the newest view again, because not all of it could be published."""
        self._left_out = False
        """Whether the controller got the view without the devices that only a taint would withdraw."""
        self._described: dict[str, tuple[Described, JsonObject]] = {}
        self._thread = threading.Thread(target=self._work, name="publishing", daemon=True)

    def start(self) -> None:
        """Start, in a thread of its own."""
        self._thread.start()

    def apply(self, view: DoorView, *, keeps_taints: bool | None = None) -> None:
        """Publish this view; one that comes before ``start`` waits for it.

        ``keeps_taints``: whether the server does, None if that is not known.
        """
        if self._shown is not None:
            self._shown.expect(_ours(view))
        with self._changed:
            self._view = view
            self._taints.answered(keeps_taints)
            self._changed.notify_all()

    def stop(self, seconds: float = 5.0) -> None:
        """End thread and controller, waiting at most ``seconds`` for them; the published slices stay."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def free(self) -> frozenset[str] | None:
        """Names of devices that any slice may still offer to new claims; None while our writes may change that.

        A device that the newest view withdraws is among them until it is withdrawn at the API server.
        """
        controller = self._controller
        with self._changed:
            view, handed = self._view, self._handed
        if controller is None or view is None or handed is None or not _is_same(handed, view):
            return None
        return controller.free(self._pool)

    def problem(self) -> str:
        """The ``error`` of ``publication``, for those who ask with every change and need nothing else of it."""
        controller = self._controller
        pool = "" if controller is None else controller.fault(self._pool) or controller.watch_fault()
        return pool or self._faults.last

    def publication(self) -> Publication:
        """How far publishing has got; the generation is that of the view that the controller has."""
        controller, handed = self._controller, self._handed
        generation = handed.generation if handed is not None else 0
        if controller is None:
            return Publication(self._pool, generation, error=self.problem())
        status = self._status(controller)
        stats = controller.get_stats()
        return Publication(
            self._pool,
            generation,
            self._desired,
            stored=status.stored if status is not None else (),
            in_order=status is not None and status.in_order,
            dropped=status.dropped if status is not None else (),
            error=self.problem(),
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
                self._give_way()
                try:
                    self._publish(controller, view)
                except Exception as error:
                    # A bug of ours: log, event and status report it, the published slices stay, and the next view will
                    # come.
                    log.exception("cannot publish a view")
                    self._report(error, "describing devices")
                self._pause(self._interval)
        finally:
            controller.stop()

    def _made(self) -> SliceController | None:
        """The controller; retried until it can be made. None once stopped."""
        while not self._stopped:
            try:
                return self._make(self._report)
            except Exception as error:  # noqa: BLE001 - status and event tell of it, and it is tried again
                self._report(error, "getting ready to publish")
                self._pause(self._backoff.delay())
                self._faults.look(working=False)
        return None

    def _next(self, controller: SliceController) -> DoorView | None:
        """The newest view, once it differs from the published one; None once stopped."""
        while True:
            self._look_at_taints(controller)
            with self._changed:
                if self._stopped:
                    return None
                view, published = self._view, self._published
                if view is not None and (published is None or not _is_same(view, published)):
                    return view
                if view is not None and (self._is_due() or self._leaves_out(view) or self._taints.sends_again()):
                    return view
                # A new generation of the same devices is published as well.
                if view is not None and self._handed is not None and _is_same(view, self._handed):
                    self._published = self._handed = view
                self._changed.wait(_LOOK if self._faults.last or self._taints.unsure else None)
            if self._faults.last:
                self._faults.look(working=self._works(controller))

    def _look_at_taints(self, controller: SliceController) -> None:
        status = self._status(controller)
        if status is not None:
            if self._taints.seen(dropped=_TAINTS in status.dropped):
                self._on_dropped()
            before, self._uncounted = self._uncounted, _COUNTERS in status.dropped
            if self._uncounted and not before:
                self._on_dropped()

    def _leaves_out(self, view: DoorView) -> bool:
        """Whether taints have just stopped withdrawing devices of this view, or work again."""
        return self._left_out is self._taints.withdraw and any(map(_is_withdrawn, view.devices))

    def _works(self, controller: SliceController) -> bool:
        status = self._status(controller)
        in_order = status is not None and status.in_order and not status.error
        return in_order and self._again_at is None and not controller.watch_fault()

    def _is_due(self) -> bool:
        return self._again_at is not None and self._again_at <= self._monotonic()

    def _publish(self, controller: SliceController, view: DoorView) -> None:
        from driver.slices.model import DriverResources, Pool, pack

        self._published = view
        before = tuple(tuple(text_at(device, "name") for device in group) for group in self._desired)
        before = before or controller.stored(self._pool)
        allowed = self._remembered(view, {name for group in before for name in group})
        offered = [each for each in view.devices if each.device.name in allowed]
        self._described = {name: known for name, known in self._described.items() if name in allowed}
        said = (
            [self._device(each) for each in offered],
            [counter_set(each) for each in view.counters],
            {each.device.name: gpu for each in offered if (gpu := parted_gpu(each))},
        )
        afresh = self._taints.sends_again()
        if said != self._said or afresh:
            devices, counters, groups = said
            slices = pack(devices, before, counters=counters, groups=groups)
            self._desired = tuple(each.devices for each in slices)
            if afresh:
                self._taints.sent_again()
            controller.update(DriverResources({self._pool: Pool(slices)}), afresh=afresh)
            self._said = said
        self._handed = view

    def _remembered(self, view: DoorView, published: set[str]) -> set[str]:
        """Names of devices that may be published: our successor knows of them, or finds them at the API server."""
        ours = _ours(view)
        self._left_out = not self._taints.withdraw
        names = {each.device.name for each in view.devices if not (self._left_out and _is_withdrawn(each))}
        if self._shown is None:
            return names
        try:
            self._shown.cover(ours)
        except FileError as error:
            self._again_at = self._monotonic() + self._backoff.delay()
            self._report(error, "saving which devices claims may get")
            return {name for name in names if name in published or self._shown.on_disk(name)}
        if self._again_at is not None:
            self._again_at = None
            self._backoff.reset()
        return names

    def _device(self, offered: DraDevice) -> JsonObject:
        name, said = offered.device.name, described(offered)
        known = self._described.get(name)
        if known is None or known[0] != said:
            known = self._described[name] = (said, slice_device(offered, self._peers))
        return known[1]

    def _report(self, error: Exception, work: str) -> None:
        self._faults.note(error, work)
        with self._changed:
            self._changed.notify_all()

    def _give_way(self) -> None:
        until = self._monotonic() + GIVES_WAY
        while self._gives_way() and self._monotonic() < until and not self._stopped:
            self._pause(ASKED_AGAIN)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)


def _is_same(view: DoorView, other: DoorView) -> bool:
    """Whether both have the same slices."""
    return view.devices == other.devices and view.counters == other.counters


def parted_gpu(offered: DraDevice) -> str:
    """The GPU that is allocated in parts and of which this is one, or which this is; empty for any other device."""
    if offered.part is not None:
        return offered.part.gpu.name
    return offered.uses.name if offered.uses is not None else ""


def _ours(view: DoorView) -> list[str]:
    """Names of the devices that claims may get, now or later: those that do not move to the plugin door."""
    return [offered.device.name for offered in view.devices if offered.rule.door.has(Door.DRA)]


def _is_withdrawn(offered: DraDevice) -> bool:
    """Whether pods have the device or may get it, so that it is in its slice only for claims that came first."""
    return not offered.rule.door.has(Door.DRA) or (not offered.healthy and offered.cause in OF_DOORS)
