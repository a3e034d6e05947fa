"""The end of a device at the DRA door: withdrawn, confirmed, and only then forgotten.

A device whose rule has moved it to the plugin door stays in its slice with a taint for as long as a claim may name it.
Before that door may give it out it takes, in this order, each of them true at once for some seconds (a scheduler may
decide by what it saw a moment ago): the API server's slices have it tainted or not at all, and no write is under way
that says otherwise; no claim is prepared with it here; and one list of all claims, begun after that, names it in no
allocation. Then it leaves the record (``driver.shown``), and with that the slice. Killed between any two of these, the
next process begins anew with whatever the record has.

One list answers for all devices that are ready for it. It is repeated, ever more rarely, only while claims name some of
them or the API server does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from driver.claims.errors import Unavailable
from driver.devices.offered import DoorView
from driver.holders.naming import Naming
from driver.shown import ShownDevices
from kube.backoff import Backoff, BackoffPolicy
from node.chance import chance
from node.events import EventSink, EventType
from node.rules import Door

log = logging.getLogger("ostler.dra")

LOOK = 0.25
"""Seconds between looks at slices that are being written; only while a device is being withdrawn."""
HELD = 10.0
"""Seconds between looks while claims of this node have all that is being withdrawn, which may be for weeks.

Their end changes what is shown, and with that wakes this.
"""
QUIET = 2.0
"""Seconds for which a device must have been withdrawn before claims are listed: schedulers' watches are behind."""
AGAIN = BackoffPolicy(first=5.0, most=60.0)

NamesOf = Callable[[Collection[str]], Awaitable[Iterable[Naming]]]
"""Allocations that name one of these devices, by a list that is begun now. Raises ``Unavailable``."""


class Withdrawal:
    """Confirms withdrawals while ``run`` runs; for the event loop alone."""

    def __init__(
        self,
        shown: ShownDevices,
        claims_naming: NamesOf,
        *,
        free: Callable[[], frozenset[str] | None],
        taken: Callable[[], Mapping[str, str]],
        events: EventSink,
        changed: Callable[[], None],
        quiet: float = QUIET,
        policy: BackoffPolicy = AGAIN,
        monotonic: Callable[[], float] = time.monotonic,
        random: Callable[[], float] = chance,
    ) -> None:
        """``free``: devices that some slice in the API offers, None while that may change (``SlicePublisher.free``).

        ``taken``: devices that claims hold here, and in words who. ``changed``: told when a device was forgotten.
        """
        self._shown = shown
        self._claims_naming = claims_naming
        self._free = free
        self._taken = taken
        self._events = events
        self._changed = changed
        self._quiet = quiet
        self._monotonic = monotonic
        self._backoff = Backoff(policy, random)
        self._devices: frozenset[str] = frozenset()
        self._offered: frozenset[str] = frozenset()
        self._applied = False
        self._woken = asyncio.Event()
        self._since: dict[str, float] = {}
        self._not_before = 0.0
        self._why: dict[str, str] = {}
        self._told = ""

    def apply(self, devices: Iterable[str], view: DoorView) -> None:
        """``devices``: names of all that the node has; ``view``: what the DRA door shows of them from now on."""
        offered = frozenset(each.device.name for each in view.devices if each.rule.door.has(Door.DRA))
        self._devices, before = frozenset(devices), (self._applied, self._offered)
        self._offered, self._applied = offered, True
        if before != (True, offered) or self.leaving():
            self._woken.set()

    def leaving(self) -> frozenset[str]:
        """Devices that are being withdrawn."""
        return self._shown.among(self._devices) - self._offered if self._applied else frozenset()

    def waiting_for(self) -> Mapping[str, str]:
        """For every device that is being withdrawn: what is still to come, in words."""
        return {name: self._why.get(name, "its slice is being written") for name in self.leaving()}

    async def run(self) -> None:
        """Confirm until cancelled."""
        while True:
            self._woken.clear()
            wait = await self._look() if self.leaving() else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def _look(self) -> float:
        """Do what can be done; seconds after which to look again at the latest."""
        now, as_of = self._monotonic(), self._shown.serial
        ready = self._ready(now)
        settled = frozenset(name for name in ready if now - self._since[name] >= self._quiet)
        if not settled:
            return HELD if self.leaving() <= self._taken().keys() else LOOK
        if settled != ready:
            return min(LOOK, self._quiet)
        if now < self._not_before:
            return self._not_before - now
        try:
            names = await self._claims_naming(settled)
        except Unavailable as error:
            return self._later(settled, f"whether a claim names it is not known: {error}", told=True)
        named = {each.device: each.claim for each in names if not each.admin}
        self._why |= {name: f"claim {claim} names it" for name, claim in named.items()}
        await self._forget(settled - named.keys(), as_of)
        self._told = ""
        if named:
            return self._later(frozenset(), "", told=False)
        self._backoff.reset()
        return LOOK

    def _ready(self, now: float) -> frozenset[str]:
        """What slices and claims of this node do not stand in the way of any more."""
        leaving, free, taken = self.leaving(), self._free(), self._taken()
        self._why = {name: why for name, why in self._why.items() if name in leaving}
        for name in leaving:
            if free is None:
                self._why[name] = "its slice is being written"
            elif name in free:
                self._why[name] = "its slice offers it to claims"
            elif name in taken:
                self._why[name] = f"held by {taken[name]}"
        ready = frozenset() if free is None else leaving - free - taken.keys()
        new = ready - self._since.keys()
        self._since = {name: self._since.get(name, now) for name in ready}
        for name in new:
            self._why[name] = "schedulers may not have seen yet that it is withdrawn"
        if new:
            # Something else is ready than what was asked for in vain.
            self._not_before = 0.0
            self._backoff.reset()
        return ready

    async def _forget(self, names: frozenset[str], as_of: int) -> None:
        """Have the record without them, unless something has changed meanwhile."""
        ended = names & self.leaving() - self._taken().keys()
        if not ended:
            return
        forgotten, problem = await asyncio.to_thread(self._shown.forget, ended, as_of, self._devices)
        if problem:
            given = f"{', '.join(sorted(forgotten))} can be had through the plugin door all the same"
            text = f"{problem}; {given}, which a restart confirms once more; check the state folder and its disk"
            self._events.emit(EventType.WARNING, "WithdrawalNotRemembered", text)
        log.info("devices withdrawn from claims", extra={"devices": sorted(forgotten)})
        self._changed()

    def _later(self, devices: frozenset[str], why: str, *, told: bool) -> float:
        self._why |= dict.fromkeys(devices, why)
        if told and why != self._told:
            self._told = why
            text = f"the plugin door cannot have {', '.join(sorted(devices))} yet: {why}"
            self._events.emit(EventType.WARNING, "WithdrawalNotConfirmed", text)
        wait = self._backoff.delay()
        self._not_before = self._monotonic() + wait
        return wait
