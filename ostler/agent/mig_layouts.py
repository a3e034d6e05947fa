"""Divides GPUs by MIG as the configuration says, each while nothing uses it.

The GPU is taken in the ledger before it is changed, so that neither door allocates it or a part of it meanwhile, and
released when its new devices are known. A GPU that somebody holds, or that a process uses, has to wait. What the driver
refuses is reported once and tried again later; a layout that does not fit is reported once and not tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Sequence

from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.inventory.loop import Inventory, InventoryStopped, SnapshotPublished
from node.inventory.model import Device, DeviceKind, Snapshot
from node.inventory.nvidia.partition_maker import NvidiaPartitionMaker
from node.ledger.bookkeeping import Bookkeeping
from node.ledger.holds import HeldError
from node.ledger.ledger import HoldsReleased
from node.opening import read_kernel_text
from node.partitions import MigLayout, PartitionError
from node.rules import rule_for
from ostler.agent.divided_hardware import AGAIN, HELD, WITHDRAWN, withheld
from ostler.config.settings import Settings

log = logging.getLogger("ostler.partitions")


class MigLayouts:
    """For the event loop only; threads call the driver. ``bus``: the inventory's."""

    def __init__(
        self,
        settings: Settings,
        maker: NvidiaPartitionMaker,
        books: Bookkeeping,
        inventory: Inventory,
        bus: EventBus,
        *,
        events: EventRecorder,
        clocks: Clocks,
    ) -> None:
        self._settings = settings
        self._maker = maker
        self._books = books
        self._inventory = inventory
        self._events = events
        self._clock = clocks.clock
        self._woken = asyncio.Event()
        self._reported: dict[str, tuple[MigLayout, str]] = {}
        """By GPU, the layout that could not be made of it, and the cause."""
        self._hopeless: dict[str, MigLayout] = {}
        """Layouts that no GPU can have, however long one waits."""
        self._stale = True
        """Whether the last scan may have been made before anybody wanted MIG profiles."""
        books.bus.subscribe(HoldsReleased, lambda _: self._woken.set())
        bus.subscribe(SnapshotPublished, lambda _: self._woken.set())

    def use(self, settings: Settings) -> None:
        """Follow other layouts."""
        self._settings = settings
        self._hopeless.clear()
        self._stale = True
        self._woken.set()

    async def run(self) -> None:
        """Divide GPUs until cancelled."""
        while True:
            self._woken.clear()
            if self._stale:
                self._stale = False
                with contextlib.suppress(InventoryStopped):
                    await self._inventory.rescan()
            waiting = False
            for gpu, layout in self._wanted(self._inventory.snapshot):
                # Only once the holds of pods are known is it known which GPUs are free.
                waiting |= bool(self._books.unknown_because()) or not await self._divide(gpu, layout)
            if waiting:
                # With one door the kubelet is read so rarely that a free GPU would wait for a minute.
                self._books.pods_changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN if waiting else None):
                    await self._woken.wait()

    def _wanted(self, snapshot: Snapshot) -> list[tuple[Device, MigLayout]]:
        """GPUs whose layout differs from the configured one."""
        found = []
        for gpu in snapshot.devices:
            if gpu.kind is not DeviceKind.GPU or not gpu.health.usable:
                continue
            layout = self._layout(gpu)
            if layout is None or self._hopeless.get(gpu.name) == layout:
                continue
            if not gpu.partitions:
                if layout.enabled:
                    self._report(gpu, layout, _indivisible(gpu))
            elif self._is_made(gpu, layout, [each for each in snapshot.devices if each.parent == gpu.name]):
                self._reported.pop(gpu.name, None)
            else:
                found.append((gpu, layout))
        return found

    def _layout(self, gpu: Device) -> MigLayout | None:
        rule = rule_for(gpu, self._settings.rules)
        if rule is not None and rule.layout is not None:
            return MigLayout(rule.layout)
        layouts = [each for each in self._settings.mig_layouts if _is_of(gpu, each, self._settings)]
        return layouts[-1] if layouts else None

    def _is_made(self, gpu: Device, layout: MigLayout, parts: Sequence[Device]) -> bool:
        mine = Counter(shape.profile for shape in self._maker.layout_of(gpu))
        if bool(gpu.attribute("migEnabled")) is not layout.enabled:
            return False
        wanted = Counter(layout.profiles)
        # Other instances beside the layout belong to others.
        return wanted <= Counter(part.text("profile") for part in parts) and mine <= wanted

    async def _divide(self, gpu: Device, layout: MigLayout) -> bool:
        """Divide the GPU; returns whether nothing is left to wait for."""
        owner, why = f"layout/{gpu.name}", "its MIG layout is applied"
        try:
            async with withheld(self._books, self._inventory, owner, (gpu.name,), why=why, now=self._clock()):
                return await self._apply(gpu, layout)
        except HeldError as error:
            self._report(gpu, layout, str(error), HELD)
            return False

    async def _apply(self, gpu: Device, layout: MigLayout) -> bool:
        await asyncio.sleep(WITHDRAWN)
        try:
            await asyncio.to_thread(self._maker.apply_layout, gpu, layout)
        except PartitionError as error:
            self._report(gpu, layout, error.reason)
            if error.pending:
                return False
            self._hopeless[gpu.name] = layout
        else:
            self._reported.pop(gpu.name, None)
            text = f"{gpu.name} is divided into {_words(layout)}"
            self._events.emit(EventType.NORMAL, "MigLayoutApplied", text)
        return True

    def _report(self, gpu: Device, layout: MigLayout, reason: str, cause: str = "") -> None:
        """Post an event, once for each cause; the cause is the reason itself unless given."""
        if self._reported.get(gpu.name) == (layout, cause or reason):
            return
        self._reported[gpu.name] = layout, cause or reason
        text = f"{gpu.name} is not divided into {_words(layout)} yet: {reason}"
        self._events.emit(EventType.WARNING, "MigLayoutPending", text)


def _indivisible(gpu: Device) -> str:
    if not gpu.attribute("migCapable"):
        return "it does not support MIG; select GPUs that do"
    return "its driver does not report its MIG profiles; run the agent as root in a privileged container"


def _words(layout: MigLayout) -> str:
    if not layout.enabled:
        return "nothing (MIG mode off)"
    counted = Counter(layout.profiles)
    return ", ".join(f"{number} x {profile}" for profile, number in sorted(counted.items())) or "no instances"


def _is_of(gpu: Device, layout: MigLayout, settings: Settings) -> bool:
    if layout.gpus is not None and (gpu.index is None or int(gpu.index) not in layout.gpus):
        return False
    return not layout.models or _model(gpu, settings) in layout.models


def _model(gpu: Device, settings: Settings) -> str:
    """The PCI device and vendor ids as mig-parted writes them; empty if the kernel does not report them."""
    folder = settings.roots.sys / "bus/pci/devices" / (gpu.pci_address or "")
    try:
        device, vendor = (int(read_kernel_text(folder / name), 16) for name in ("device", "vendor"))
    except (OSError, ValueError):
        return ""
    return f"0x{device:04x}{vendor:04x}"
