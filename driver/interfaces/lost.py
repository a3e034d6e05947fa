"""Lost interfaces: neither the node nor their pod had them when they should have come back. They are restored on sight.

A process of a pod with the right to do so can keep an interface in a network namespace of its own for as long as it
lives, and the interface comes back with whatever the pod gave it. No pod may hang for that, so the claim is released.
The device stays held in the ledger, under an owner of its own, until the interface is on the node as it was, or until
it can never come back. Then the next claim gets it.

A record outlives the agent, and a reboot ends it with every namespace. There is one for each device at most, since a
held device is given to nobody. ``look`` costs a few messages to the kernel for each; it is called when the inventory
sees something new, and at growing intervals.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from driver.claims.locks import ClaimLocks
from driver.interfaces.journal import ClaimMove, InterfaceMove, LostInterface
from driver.interfaces.moving import InterfaceMoves
from driver.interfaces.observers import InterfaceObserver, InterfacePlace
from node.clocks import Clocks
from node.events import EventRecorder, EventType
from node.files import FileError
from node.interfaces.model import InterfaceError
from node.interfaces.mover import subject_of
from node.ledger.events import HoldsChanged
from node.ledger.holds import Hold, HoldState
from node.ledger.ledger import Ledger

log = logging.getLogger("ostler.interfaces")

_OFTEN, _SELDOM = 1.0, 30.0
"""Seconds between two looks, doubling, while nothing new is seen."""


class LostInterfaces:
    """The lost interfaces of this node; for the event loop only.

    ``in_thread`` runs blocking work in a worker thread.
    """

    def __init__(
        self,
        work: InterfaceMoves,
        ledger: Ledger,
        in_thread: Callable[..., Any],
        *,
        events: EventRecorder,
        observer: InterfaceObserver,
        clocks: Clocks,
    ) -> None:
        self._work = work
        self._ledger = ledger
        self._in_thread = in_thread
        self._events = events
        self._observer = observer
        self._clock = clocks.clock
        self._lost: dict[str, LostInterface] = {}
        self._problems: dict[str, str] = {}
        """Why interfaces that are back could not be restored, by device."""
        self._locks = ClaimLocks()
        """One per device."""
        self._any = asyncio.Event()
        self._seen = asyncio.Event()

    def __contains__(self, device: str) -> bool:
        return device in self._lost

    async def recover(self, out: Collection[str]) -> tuple[str, ...]:
        """Hold again what an earlier process lost; returns what failed, in words.

        ``out``: devices that the journal of moves has, too. The process ended between the two writes, and what is
        missing is found missing again.
        """
        found, unreadable = await self._in_thread(self._work.load_lost)
        for device, lost in found.items():
            if device not in out:
                self._enter(lost)
        return tuple(
            f"the record of the lost interface of device {device}: {why}; when the interface is back on the node, "
            "check its name, addresses and MTU"
            for device, why in unreadable.items()
        )

    async def keep(self, move: ClaimMove, missing: Sequence[InterfaceMove]) -> None:
        """Put interfaces of the claim on record, and hold their devices; raises InterfaceError if that fails."""
        within = {hold.device: hold.within for hold in self._ledger.of(move.claim.uid)}
        for each in missing:
            device, pod = each.interface.device, move.sandbox.pod
            async with self._locks.of(device):
                if await self._in_thread(self._work.is_gone, each):
                    self.warn(
                        "InterfaceLost", f"claim {move.claim}: {subject_of(each.interface)}: {_GONE}; pod {pod} had it"
                    )
                    continue
                lost = LostInterface(move.claim, move.boot, move.sandbox, each, self._clock(), within.get(device, ()))
                try:
                    await self._in_thread(self._work.lost.write, lost)
                except FileError as error:
                    raise InterfaceError(f"{error}; check the state folder and its disk") from error
                self._enter(lost)
                self.warn(
                    "InterfaceLost",
                    f"claim {move.claim}: {subject_of(each.interface)}: not found on the node or in the pod; pod {pod} "
                    "had it; its device is held until it is back; check the device and its driver",
                )

    async def run(self) -> None:
        """Look for what is lost, until cancelled."""
        pause = _OFTEN
        while True:
            await self._any.wait()
            try:
                async with asyncio.timeout(pause):
                    await self._seen.wait()
                pause = _OFTEN
            except TimeoutError:
                pause = min(2 * pause, _SELDOM)
            # Before the look: what is seen during it counts for the next one.
            self._seen.clear()
            await self.look()

    def on_inventory_changed(self) -> None:
        """The inventory has seen something new, perhaps an interface."""
        self._seen.set()

    async def look(self, devices: Collection[str] | None = None) -> None:
        """Look for the lost interfaces of these devices, or all, and restore those that are back."""
        for device in list(self._lost if devices is None else devices):
            async with self._locks.of(device):
                if device in self._lost:
                    await self._look_for(device, self._lost[device])

    def problem(self, device: str) -> str:
        """Why nobody can have the device's interface; empty if it is not lost."""
        lost = self._lost.get(device)
        if lost is None:
            return ""
        return f"{subject_of(lost.move.interface)} is lost; pod {lost.sandbox.pod} had it: {self._why(device)}"

    def places(self) -> Mapping[str, InterfacePlace]:
        """By device, the pod that had the interface, and why it is not back."""
        return {
            device: InterfacePlace(lost.sandbox.pod, lost.move.setup.interface, f"it is lost; {self._why(device)}")
            for device, lost in self._lost.items()
        }

    def _why(self, device: str) -> str:
        return self._problems.get(device, "it was not on the node when the pod ended, and is restored when it is back")

    async def _look_for(self, device: str, lost: LostInterface) -> None:
        gone = False
        try:
            back = await self._in_thread(self._work.recall, lost)
            gone = not back and await self._in_thread(self._work.is_gone, lost.move)
            if back or gone:
                await self._in_thread(self._work.lost.remove, device)
        except (InterfaceError, FileError, OSError) as error:
            if self._problems.get(device) != str(error):
                self._problems[device] = str(error)
                self.warn("InterfaceNotReturned", f"ostler cannot restore a lost interface, and tries again: {error}")
            return
        if not back and not gone:
            self._problems.pop(device, None)
            return
        del self._lost[device]
        self._problems.pop(device, None)
        if not self._lost:
            self._any.clear()
        subject, pod = subject_of(lost.move.interface), lost.sandbox.pod
        if back:
            self._observer.found()
            seconds = round(self._clock() - lost.since)
            text = f"{subject} is back on the node after {seconds} s, and has what it had before pod {pod} got it"
            if back != lost.move.setup.interface:
                text += f", but is called {back}, because another interface has its name; rename one of them"
            log.info(text)
            self._events.emit(EventType.NORMAL, "InterfaceFound", text)
        else:
            self.warn("InterfaceLost", f"{subject}: {_GONE}; pod {pod} had it, and its device is no longer held")
        self._ledger.release(_owner(device))
        self._ledger.bus.publish(HoldsChanged())

    def _enter(self, lost: LostInterface) -> None:
        """Hold the device, even if somebody else has it."""
        device, interface = lost.move.interface.device, lost.move.setup.interface
        self._lost[device] = lost
        self._any.set()
        holder = f"its network interface {interface} is lost; pod {lost.sandbox.pod} had it"
        state, owner = HoldState.PENDING_RELEASE, _owner(device)
        self._ledger.restore(owner, [Hold(device, None, holder, lost.since, owner, within=lost.within, state=state)])
        self._ledger.bus.publish(HoldsChanged())

    def warn(self, reason: str, message: str) -> None:
        """Log a warning and post it as an event."""
        log.warning(message, extra={"reason": reason})
        self._events.emit(EventType.WARNING, reason, message)


_GONE = "it will not come back, because its device left the bus or another interface has its name"


def _owner(device: str) -> str:
    return f"lost-interface/{device}"
