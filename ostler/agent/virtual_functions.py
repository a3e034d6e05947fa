"""Makes the virtual functions that the configuration asks for, when the agent starts and when hardware arrives.

A physical function is taken in the ledger before it is changed, so that neither door allocates it meanwhile, and
released when the inventory shows its virtual functions. A function that a pod has must wait. What the kernel refuses is
reported once and not tried again until the configuration is read again or the function is another one: a driver may
reset its link with every try.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from node.clocks import Clocks
from node.events import EventBus, EventRecorder, EventType
from node.files import FileError
from node.inventory.loop import Inventory, InventoryStopped, SnapshotPublished
from node.inventory.model import Device
from node.inventory.nics.function_maker import VfError, VfMaker, VfRecord
from node.ledger.bookkeeping import Bookkeeping
from node.ledger.events import HoldsChanged
from node.ledger.holds import HeldError
from node.ledger.ledger import HoldsReleased
from node.virtual_functions import VfMaking, VfState, VfVerdict, counted, verdicts
from ostler.agent.divided_hardware import AGAIN, HELD, WITHDRAWN, withheld
from ostler.config.settings import Settings

log = logging.getLogger("ostler.virtual_functions")

VISIBLE = 30.0
"""Seconds within which virtual functions that were made should be visible, with their driver."""
_LOOK = 0.5
"""Seconds between two looks at virtual functions that are not visible yet."""


class VirtualFunctions:
    """For the event loop only; threads call the kernel. ``bus``: the inventory's.

    ``patience``: seconds for ``WITHDRAWN`` and ``VISIBLE``. ``making``: what was made and what was not, for people.
    """

    def __init__(
        self,
        settings: Settings,
        maker: VfMaker,
        books: Bookkeeping,
        inventory: Inventory,
        bus: EventBus,
        *,
        record: VfRecord,
        events: EventRecorder,
        clocks: Clocks,
        patience: tuple[float, float] = (WITHDRAWN, VISIBLE),
    ) -> None:
        self._settings = settings
        self._maker = maker
        self._record = record
        self._books = books
        self._inventory = inventory
        self._events = events
        self._clock = clocks.clock
        self._withdrawn, self._visible = patience
        self._woken = asyncio.Event()
        self._reported: dict[str, tuple[int, str]] = {}
        """By PCI address, the number that was asked for, and the cause that was reported."""
        self._failed: dict[str, tuple[VfVerdict, str]] = {}
        """By PCI address, what the kernel refused, and why."""
        self.making = VfMaking(made=record.made)
        books.bus.subscribe(HoldsReleased, lambda _: self._woken.set())
        bus.subscribe(SnapshotPublished, lambda _: self._woken.set())

    def use(self, settings: Settings) -> None:
        """Follow another configuration; what failed is tried again."""
        self._settings = settings
        self._failed.clear()
        self._reported.clear()
        self._publish()
        self._woken.set()

    async def run(self) -> None:
        """Make virtual functions until cancelled."""
        while True:
            self._woken.clear()
            waiting = False
            for address in [each.address for each in self._verdicts()]:
                # Anew for each: making some takes seconds, in which the others may change.
                each = next((found for found in self._verdicts() if found.address == address), None)
                waiting |= each is not None and not await self._follow(each)
            if waiting:
                # With one door the kubelet is read so rarely that a free function would wait for a minute.
                self._books.pods_changed()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(AGAIN if waiting else None):
                    await self._woken.wait()

    def _verdicts(self) -> tuple[VfVerdict, ...]:
        return verdicts(self._inventory.snapshot.devices, self._settings.virtual_functions)

    async def _follow(self, each: VfVerdict) -> bool:
        """Make or report what the verdict says; returns whether nothing is left to wait for."""
        if self._has_failed(each):
            return True
        if each.state is VfState.TO_MAKE:
            # Only once the holds of pods are known is it known which functions are free.
            return not self._books.unknown_because() and await self._make(each)
        if each.state is VfState.MADE:
            self._reported.pop(each.address, None)
        else:
            self._report(each, each.reason)
        return True

    def _has_failed(self, wanted: VfVerdict) -> bool:
        """Whether the kernel has refused just this: the same number, of a function with the same driver and limit."""
        before = self._failed.get(wanted.address)
        if wanted.state is VfState.MADE or before is None or _essence(before[0]) != _essence(wanted):
            return False
        # What was refused for another reason since is another thing to say.
        return wanted.state in (VfState.TO_MAKE, VfState.DIFFERENT)

    async def _make(self, wanted: VfVerdict) -> bool:
        """Make virtual functions of one physical one; returns whether nothing is left to wait for."""
        owner, ports = f"virtual-functions/{wanted.address}", self._ports(wanted.device)
        why = "its virtual functions are being made"
        try:
            async with withheld(self._books, self._inventory, owner, ports, why=why, now=self._clock()):
                return await self._change(wanted)
        except HeldError as error:
            self._report(wanted, str(error), HELD)
            return False

    async def _change(self, wanted: VfVerdict) -> bool:
        await asyncio.sleep(self._withdrawn)
        rule = wanted.rule
        try:
            binds = await asyncio.to_thread(self._maker.make, wanted.address, rule.count, autoprobe=rule.autoprobe)
            self._note(wanted)
            await self._await_visible(wanted, with_driver=binds)
        except VfError as error:
            self._report(wanted, error.reason)
            if error.again:
                return False
            self._failed[wanted.address] = wanted, error.reason
            self._publish()
        return True

    def _ports(self, physical: Device) -> list[str]:
        """The names of all devices of the physical function, which has one for each of its ports."""
        return [
            device.name
            for device in self._inventory.snapshot.devices
            if device.pci_address == physical.pci_address and device.text("sriovFunction") == "pf"
        ]

    def _note(self, wanted: VfVerdict) -> None:
        """Report and record that the virtual functions were made."""
        self._reported.pop(wanted.address, None)
        self._failed.pop(wanted.address, None)
        text = f"{counted(wanted.rule.count)} made of {wanted.device.name}"
        if wanted.device.text("eswitchMode") == "switchdev":
            text += "; its e-switch is in switchdev mode: each has a network only with its representor in a bridge"
        self._events.emit(EventType.NORMAL, "VirtualFunctionsMade", text)
        try:
            self._record.note(wanted.address, wanted.rule.count)
        except FileError as error:
            log.warning("%s; a restart will not know who made the virtual functions", error)
        self._publish()

    async def _await_visible(self, wanted: VfVerdict, *, with_driver: bool) -> None:
        """Wait until the inventory shows every virtual function, with a driver if the kernel binds one.

        After ``VISIBLE`` it is reported and the wait is over: the inventory shows the rest whenever it comes.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._visible
        while True:
            with contextlib.suppress(InventoryStopped):
                await self._inventory.rescan()
            found = [
                device
                for device in self._inventory.snapshot.devices
                if device.text("pfPciAddress") == wanted.address and device.text("sriovFunction") == "vf"
            ]
            ready = sum(1 for device in found if device.text("driver") or not with_driver)
            if ready >= wanted.rule.count or loop.time() >= end:
                break
            await asyncio.sleep(min(_LOOK, self._visible))
        if ready < wanted.rule.count:
            state = "visible" if len(found) < wanted.rule.count else "bound to a driver"
            text = (
                f"of the {counted(wanted.rule.count)} of {wanted.device.name} only {ready} are {state} after "
                f"{self._visible:g} s; see 'dmesg'"
            )
            self._events.emit(EventType.WARNING, "VirtualFunctionsMissing", text)

    def _publish(self) -> None:
        """Have the offers say what ostler has made and what it could not make."""
        failures = {address: reason for address, (_, reason) in self._failed.items()}
        self.making = VfMaking(self._record.made, failures)
        self._books.bus.publish(HoldsChanged())

    def _report(self, wanted: VfVerdict, reason: str, cause: str = "") -> None:
        """Post an event, once for each cause; the cause is the reason itself unless given."""
        report = wanted.rule.count, cause or reason
        if self._reported.get(wanted.address) == report:
            return
        self._reported[wanted.address] = report
        text = f"{counted(wanted.rule.count)} not made of {wanted.device.name}: {reason}"
        self._events.emit(EventType.WARNING, "VirtualFunctionsNotMade", text)


def _essence(wanted: VfVerdict) -> tuple[object, ...]:
    """The facts on which an attempt depends, as far as they are known."""
    device, rule = wanted.device, wanted.rule
    return rule.count, rule.autoprobe, device.text("driver"), device.attribute("sriovTotalVfs")
