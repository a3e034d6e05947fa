"""How a device leaves the DRA door: withdrawn, confirmed, and only then forgotten.

A device that a rule has moved to the plugin door stays in its slice with a taint as long as a claim may name it. Before
the plugin door may allocate it, the following must be true, in this order:

- The API server's slices have the device tainted or not at all, and no write is under way that says otherwise; and no
  claim is prepared with it here. Both must hold for some seconds, because a scheduler may act on what it saw a moment
  ago.
- A list of all claims, begun after that, has no allocation that names it.

Then it leaves the record (``driver.publishing.shown``), and with that the slice. If the agent is killed in between, the
next process begins again with what the record has.

One list answers for all devices that are ready for it. It is repeated, at growing intervals, only while claims name
some of them or the API server does not answer; a device that becomes ready meanwhile is asked about at once. Changes of
other devices do not matter: they cause neither more lists of claims nor a new start for a device.

Only a handover makes the agent list claims. A device that the DRA door merely no longer shows (it is gone, or no rule
gives it to pods alone) stays in the record until a list for another device answers for it as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping

from driver.claims.model import Unavailable
from driver.devices.view import DoorView
from driver.node_watch.node_claims import NamedDevice
from driver.publishing.shown import ShownDevices
from kube.backoff import Backoff, BackoffPolicy
from node.clocks import SYSTEM, Clocks
from node.events import EventBus, EventRecorder, EventType
from node.inventory.model import Device
from node.ledger.events import OfferChanged
from node.partitions import whole_of_partition
from node.rules import Door, Rule, rule_for

log = logging.getLogger("ostler.dra")

LOOK = 0.25
"""Seconds between checks of slices that are being written; only while a device is being withdrawn."""
HELD = 10.0
"""Seconds between checks while claims of this node have all devices that are being withdrawn, perhaps for weeks.

When such a claim ends, the offer changes, and that wakes this as well.
"""
QUIET = 2.0
"""Seconds for which a device must have been withdrawn before claims are listed, because schedulers' watches lag."""
AGAIN = BackoffPolicy(first=5.0, most=60.0)

NamesOf = Callable[[Collection[str]], Awaitable[Iterable[NamedDevice]]]
"""Allocations that name one of these devices, by a list that begins now. Raises ``Unavailable``."""


class Withdrawal:
    """Confirms withdrawals while ``run`` runs; for the event loop only, except ``waiting_for``."""

    def __init__(
        self,
        shown: ShownDevices,
        claims_naming: NamesOf,
        *,
        free: Callable[[], frozenset[str] | None],
        taken: Callable[[], Mapping[str, str]],
        events: EventRecorder,
        bus: EventBus,
        quiet: float = QUIET,
        policy: BackoffPolicy = AGAIN,
        clocks: Clocks = SYSTEM,
    ) -> None:
        """``free``: devices that some slice in the API offers, None while that may change (``SlicePublisher.free``).

        ``taken``: devices that claims hold here, and in words which claims. ``bus``: gets ``OfferChanged`` when a
        device was forgotten.
        """
        self._shown = shown
        self._claims_naming = claims_naming
        self._free = free
        self._taken = taken
        self._events = events
        self._bus = bus
        self._quiet = quiet
        self._monotonic = clocks.monotonic
        self._backoff = Backoff(policy, clocks.random)
        self._devices: frozenset[str] = frozenset()
        self._offered: frozenset[str] = frozenset()
        self._for_pods: frozenset[str] = frozenset()
        """Devices that rules give to the plugin door alone, which allocates them only once they are forgotten here."""
        self._closing = False
        """Whether no rule offers anything to claims, so that the door is open only for the devices of the record."""
        self._applied = False
        self._woken = asyncio.Event()
        self._since: dict[str, float] = {}
        """When each was first seen withdrawn; since then it has been neither seen otherwise nor offered."""
        self._in_vain: frozenset[str] = frozenset()
        """Devices that the last list did not free and that have not changed since."""
        self._not_before = 0.0
        self._why: dict[str, str] = {}
        self._reported = ""

    def apply(self, devices: Iterable[Device], rules: Iterable[Rule], view: DoorView) -> None:
        """``devices``: all that the node has; ``view``: what the DRA door shows of them by these rules from now on."""
        known, acting = tuple(devices), tuple(rules)
        self._devices = frozenset(device.name for device in known)
        for_pods = frozenset(device.name for device in known if _is_for_pods(device, acting))
        # Claims may still name partitions of a GPU after the GPU itself is gone.
        parts = (name for name in self._shown.among(()) if whole_of_partition(name) in for_pods)
        self._for_pods = for_pods | frozenset(parts)
        self._offered = frozenset(each.device.name for each in view.devices if each.rule.door.has(Door.DRA))
        self._closing = not any(rule.door.has(Door.DRA) for rule in acting)
        self._applied = True
        moving = self.moving()
        self._since = {name: since for name, since in self._since.items() if moving and name not in self._offered}
        if moving:
            self._woken.set()

    def leaving(self) -> frozenset[str]:
        """Devices that are no longer offered to claims but are still in the record."""
        return self._shown.among(self._devices) - self._offered if self._applied else frozenset()

    def moving(self) -> frozenset[str]:
        """Those that need a list of claims: the plugin door waits for them, or the DRA door is about to be closed.

        The latter include devices that are no longer on the node, which would otherwise keep that door open for ever.
        """
        leaving = self.leaving()
        return leaving if self._closing else leaving & self._for_pods

    def waiting_for(self) -> Mapping[str, str]:
        """What each device that moves away from claims still waits for, in words. Safe to call from any thread."""
        return {name: self._why.get(name, "its slice is being written") for name in self.moving()}

    async def run(self) -> None:
        """Confirm until cancelled."""
        while True:
            self._woken.clear()
            wait = await self._look() if self.moving() else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()

    async def _look(self) -> float:
        """Do what can be done; returns the seconds after which to check again at the latest."""
        now, as_of = self._monotonic(), self._shown.serial
        ready = self._ready(now)
        wanted = ready & self.moving()
        settled = frozenset(name for name in ready if now - self._since[name] >= self._quiet)
        if not wanted:
            return HELD if self.moving() <= self._taken().keys() else LOOK
        if not wanted <= settled:
            return min(LOOK, self._quiet)
        if not wanted <= self._in_vain:
            # A device became ready that the last list did not cover.
            self._not_before = 0.0
            self._backoff.reset()
        if now < self._not_before:
            return self._not_before - now
        try:
            names = await self._claims_naming(settled)
        except Unavailable as error:
            return self._unanswered(settled, error)
        named = {each.device: each.claim for each in names if not each.admin}
        self._why |= {name: f"claim {claim} names it" for name, claim in named.items()}
        await self._forget(settled - named.keys(), as_of)
        self._reported = ""
        if wanted & named.keys():
            return self._later(frozenset(named))
        self._backoff.reset()
        return LOOK

    def _ready(self, now: float) -> frozenset[str]:
        """The devices that neither slices nor claims of this node keep from being withdrawn.

        While slices are being written no device becomes ready, but one that was withdrawn before stays so: the newest
        view withdraws it as well.
        """
        leaving, free, taken = self.leaving(), self._free(), self._taken()
        ready = leaving - (free or frozenset()) - taken.keys()
        since = {name: since for name, since in self._since.items() if name in ready}
        self._in_vain &= since.keys()
        self._why = {name: why for name, why in self._why.items() if name in leaving}
        for name in leaving - since.keys():
            self._why[name] = self._obstacle(name, free, taken)
        self._since = since if free is None else dict.fromkeys(ready, now) | since
        return frozenset() if free is None else ready

    def _obstacle(self, name: str, free: frozenset[str] | None, taken: Mapping[str, str]) -> str:
        """The reason why a device is not withdrawn yet."""
        if free is None:
            return "its slice is being written"
        if name in free:
            return "its slice offers it to claims"
        return f"held by {taken[name]}" if name in taken else "schedulers may not have seen its withdrawal yet"

    async def _forget(self, names: frozenset[str], as_of: int) -> None:
        """Remove them from the record, unless something has changed meanwhile."""
        ended = names & self.leaving() - self._taken().keys()
        if not ended:
            return
        forgotten, problem = await asyncio.to_thread(self._shown.forget, ended, as_of, self._devices)
        if problem:
            given = f"{', '.join(sorted(forgotten))} can be allocated through the plugin door anyway"
            text = f"{problem}; {given}, which a restart confirms once more; check the state folder and its disk"
            self._events.emit(EventType.WARNING, "WithdrawalNotRemembered", text)
        log.info("devices withdrawn from claims", extra={"devices": sorted(forgotten)})
        self._bus.publish(OfferChanged())

    def _unanswered(self, devices: frozenset[str], error: Unavailable) -> float:
        """Report once that it is unknown whether claims name them; returns the seconds after which to ask again."""
        why = f"cannot tell whether a claim names it: {error}"
        self._why |= dict.fromkeys(devices, why)
        moving = devices & self.moving()
        if moving and why != self._reported:
            self._reported = why
            text = f"the plugin door cannot have {', '.join(sorted(moving))} yet: {why}"
            self._events.emit(EventType.WARNING, "WithdrawalNotConfirmed", text)
        return self._later(devices)

    def _later(self, in_vain: frozenset[str]) -> float:
        self._in_vain = in_vain
        wait = self._backoff.delay()
        self._not_before = self._monotonic() + wait
        return wait


def _is_for_pods(device: Device, rules: tuple[Rule, ...]) -> bool:
    rule = rule_for(device, rules)
    return rule is not None and not rule.door.has(Door.DRA)
