"""Uevents as values, which of them can matter to the inventory, and the monitor that listens to them on the loop.

The monitor drains the socket and gives hints, nothing else. Invariants: its callback never blocks and takes a bounded
number of events at a time; a lost event (ENOBUFS) is counted and is a hint like any other, since every scan looks at
everything.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
from collections.abc import Callable

from node.events import EventBus
from node.inventory.live.passing import in_passing
from node.inventory.live.udev import EventState, Reach, UdevStream, Uevent, UeventStream, UeventsUnavailable, look
from node.inventory.source import HardwareHint
from node.inventory.sysfs.files import inode_of
from node.inventory.vendors import VENDORS
from node.metrics import Counter
from node.values import replace

log = logging.getLogger("ostler.live")

_AT_A_TIME = 64
"""Events per turn of the loop: about 2 ms."""


class UeventMonitor:
    """Publishes every ``Uevent`` that is ``relevant`` on ``bus``, and a ``HardwareHint`` after it.

    ``open_stream`` is called in a worker thread. ``state``, ``missed`` and ``hint`` say what it receives and how to
    improve that; ``events`` and ``overflows`` are metrics, ``hints`` counts.
    """

    name = "uevents"

    def __init__(
        self,
        bus: EventBus,
        relevant: Callable[[Uevent], bool],
        *,
        reach: Callable[[], Reach] = look,
        open_stream: Callable[[EventState], UeventStream] = UdevStream,
    ) -> None:
        self._bus = bus
        self._relevant = relevant
        self._reach = reach
        self._open = open_stream
        self._stream: UeventStream | None = None
        self._failed: asyncio.Future[None] | None = None
        self._reported = Reach(EventState.POLLING)
        self.state = EventState.POLLING
        self.missed = ""
        self.hint = ""
        self.events = Counter("ostler_uevents", "Uevents received.")
        self.hints = 0
        self.overflows = Counter(
            "ostler_uevent_overflows", "Times that the kernel dropped uevents; each causes a full scan."
        )

    async def run(self) -> None:
        """Listen until cancelled; raises UeventsUnavailable, and what the stream raises when it breaks."""
        loop = asyncio.get_running_loop()
        reach = self._reach()
        failed = self._failed = loop.create_future()
        if reach.state is not EventState.POLLING:
            stream, reach = await in_passing(self._open_one_of, reach)
            self._stream = stream
            loop.add_reader(stream.fileno(), self._drain)
        self._report(reach)
        try:
            # Events before this are unknown.
            self._bus.publish(HardwareHint())
            await failed
        finally:
            self._close()

    def _open_one_of(self, reach: Reach) -> tuple[UeventStream, Reach]:
        """The best stream of events that opens, or else the kernel's, and where it comes from."""
        try:
            return self._open(reach.state), reach
        except UeventsUnavailable as error:
            if reach.state is EventState.KERNEL:
                raise
            kernel = replace(reach, state=EventState.KERNEL, hint=error.hint)
        return self._open(EventState.KERNEL), kernel

    def _report(self, reach: Reach) -> None:
        self.state, self.missed, self.hint = reach.state, reach.missed, reach.hint
        if reach == self._reported:
            return
        self._reported = reach
        extra = {"source": reach.state.value, "hint": reach.hint}
        if reach.missed:
            # The kernel leaves out interfaces; the status says whether those matter.
            level = logging.WARNING if reach.state is EventState.POLLING else logging.INFO
            log.log(level, "some hardware changes are noticed late: %s", reach.missed, extra=extra)
        else:
            log.info("listening to hardware events", extra=extra)

    def _close(self) -> None:
        self.state = EventState.POLLING
        if self._stream is not None:
            asyncio.get_running_loop().remove_reader(self._stream.fileno())
            self._stream.close()
            self._stream = None

    def _drain(self) -> None:
        if self._stream is None or self._failed is None:
            return
        for _ in range(_AT_A_TIME):
            try:
                event = self._stream.receive()
            except Exception as error:  # noqa: BLE001 - the part ends with it, its supervisor logs it and begins anew
                if isinstance(error, OSError) and error.errno == errno.ENOBUFS:
                    self._overflowed()
                    continue
                # Removed so that the loop does not spin until the part has ended.
                asyncio.get_running_loop().remove_reader(self._stream.fileno())
                if not self._failed.done():
                    self._failed.set_exception(error)
                return
            if event is None:
                return
            self.events.add()
            if self._relevant(event):
                self.hints += 1
                self._bus.publish(event)
                self._bus.publish(HardwareHint())

    def _overflowed(self) -> None:
        self.overflows.add()
        overflows = self.overflows.total
        level = logging.WARNING if overflows == 1 else logging.DEBUG
        log.log(level, "uevents were lost; scanning everything again", extra={"overflows": overflows})
        self._bus.publish(HardwareHint())


_VIRTUAL = "/devices/virtual/"
_MISC = frozenset({"rdma_cm", "tun", "vfio", "vhost-net"})
_MODULE = re.compile(
    "|".join(vendor.modules for vendor in VENDORS) + "|"
    r"mlx[45]_.*|ib_.*|rdma_.*|irdma|bnxt_.*|efa|erdma|ionic.*|qed.*|"  # RDMA and the NICs that have it
    r"ice|iavf|i40e|ixgbe.*|igb.*|igc|e1000e?|ena|gve|mana.*|virtio_net|cxgb4.*|enic|sfc|hns.*|hinic.*|rvu_.*|octeon_.*|"
    r"vfio.*|uio.*|vhost.*|tun"  # user-space drivers
)


class Relevance:
    """Says which events are hints to scan; ``sys`` is where /sys is.

    Virtual interfaces are left out: every pod makes some, and what the node uses of them comes by rtnetlink. A module's
    event counts only when the module differs from what was seen of it last, because a driver that cannot be loaded may
    be tried, and fail, with every scan: events of our own making must not lead to scans.
    """

    def __init__(self, sys: str = "/sys") -> None:
        self._modules = f"{sys}/module"
        try:
            names = os.listdir(self._modules)  # noqa: PTH208 - names are all that is needed
        except OSError:
            # A kernel without modules; what is loaded later is new.
            names = []
        self._loaded = {name: inode_of(f"{self._modules}/{name}") for name in names if _MODULE.fullmatch(name)}

    def __call__(self, event: Uevent) -> bool:
        """Whether the event may mean that the inventory has changed."""
        match event.subsystem:
            case "net":
                return _VIRTUAL not in event.path
            case "misc":
                return event.name in _MISC
            case "module":
                return _MODULE.fullmatch(event.name) is not None and self._differs(event.name)
            case _:
                return True

    def _differs(self, module: str) -> bool:
        # A module that was unloaded and loaded again is another directory.
        now = inode_of(f"{self._modules}/{module}")
        before = self._loaded.pop(module, 0)
        if now:
            self._loaded[module] = now
        return now != before
