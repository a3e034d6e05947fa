"""Takes a snapshot to the doors: decides the offer, writes its CDI specs to disk, then shows it.

Only the newest snapshot counts; one that is replaced before its turn is never shown. A CDI spec that cannot be written
(a full disk) becomes an event and is retried after a while. Meanwhile the devices whose answers would name it are shown
unhealthy, because their containers would not start.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from node.eligibility import offer
from node.events import EventRecorder, EventType
from node.inventory.model import Snapshot, SnapshotJudged
from node.ledger.holds import wholes_of
from node.ledger.offer_context import NOTHING_HELD, OfferContext
from node.offer import Offer
from node.rules import Door, Doors, Rule
from node.values import replace
from ostler.agent.sources import dividing_modules
from ostler.config.settings import Settings
from plugin.door import PluginDoor

if TYPE_CHECKING:
    from driver.devices.view import DoorView
    from node.cdi.directory import CdiDirectory
    from node.ledger.bookkeeping import Bookkeeping
    from node.ledger.events import HoldsChanged, OfferChanged
    from ostler.agent.dra_service import DraService
    from ostler.agent.mps import MpsService
    from ostler.agent.virtual_functions import VirtualFunctions

log = logging.getLogger("ostler.publisher")

RECHECK = 30.0
"""Seconds after which specs are checked again: missing ones are rewritten, failed ones retried."""
HOLDS = 0.02
"""Seconds within which changes of holds are shown together.

Claims come in bursts, and an offer of all devices for each would take most of their time. The ledger decides at once
who may have a device; but what the other door's scheduler believes meanwhile can cost a pod, so the delay is no longer
than necessary. ``_PER_DEVICE`` makes it longer on nodes with many devices.
"""
_PER_DEVICE = 0.0002
ALONE = 0.2
"""The same with one door, or if no device is for both: no other scheduler waits for it, and calls need not."""


class Publisher:
    """Shows submitted snapshots; ``published`` is set after the first, ``shown`` is what is shown now.

    It begins with the plugin door alone; the ledger and the DRA door follow when they are needed.
    """

    def __init__(self, settings: Settings, door: PluginDoor, events: EventRecorder) -> None:
        self._settings = settings
        self._door = door
        self._events = events
        self._dra: DraService | None = None
        self._books: Bookkeeping | None = None
        self._placed: tuple[Snapshot, tuple[Rule, ...]] | None = None
        self._record = settings.state_dir / "cdi-files.json"
        self._mps: MpsService | None = None
        self._functions: VirtualFunctions | None = None
        self._specs: CdiDirectory | None = None
        self._had_specs: bool | None = None
        """Whether an earlier process wrote specs; asked once: holds change with every claim, and a disk may be slow."""
        self._snapshot: Snapshot | None = None
        self._rules_changed = False
        self._wanted = asyncio.Event()
        self._problems: tuple[str, ...] = ()
        self._scheduled: asyncio.TimerHandle | None = None
        self._crosses = True
        """Whether what one door gives changes what the other may give, as far as the last decision shows."""
        self.published = asyncio.Event()
        self.shown: tuple[Snapshot, Offer] = (Snapshot(), Offer())
        self.context = NOTHING_HELD
        """The context from which the shown offers were made."""

    def follow_ledger(self, books: Bookkeeping) -> None:
        """From the next snapshot on, withhold at each door what is held through the other."""
        self._books = books

    def open_dra(self, dra: DraService) -> None:
        """From the next snapshot on, give each to the DRA door as well."""
        self._dra = dra

    def follow_mps(self, mps: MpsService) -> None:
        """From the next snapshot on, withhold devices that MPS cannot share, and report holders of shares to it."""
        self._mps = mps

    def follow_functions(self, functions: VirtualFunctions) -> None:
        """From the next snapshot on, say what became of the virtual functions that the configuration asks for."""
        self._functions = functions

    def submit(self, snapshot: Snapshot) -> None:
        """Have this snapshot shown; does not block."""
        self._snapshot = snapshot
        self._wanted.set()

    def on_judged(self, event: SnapshotJudged) -> None:
        """Have this snapshot shown; does not block."""
        self.submit(event.snapshot)

    def on_holds_changed(self, _: HoldsChanged | OfferChanged | None = None) -> None:
        """Have the offers follow a change of holds, soon; for the event loop only."""
        if self._scheduled is None:
            seconds = HOLDS if self._dra is not None and self._crosses else ALONE
            seconds = max(seconds, len(self.shown[0].devices) * _PER_DEVICE)
            self._scheduled = asyncio.get_running_loop().call_later(seconds, self._wake)

    def use(self, settings: Settings) -> None:
        """Follow other rules from the next snapshot on."""
        self._settings = settings
        self._rules_changed = True

    def _wake(self) -> None:
        self._scheduled = None
        self._wanted.set()

    async def run(self) -> None:
        """Show snapshots until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RECHECK if self._specs is not None else None):
                    await self._wanted.wait()
            self._wanted.clear()
            if self._snapshot is not None:
                await self._show(self._snapshot)

    async def _show(self, snapshot: Snapshot) -> None:
        dra = self._dra
        rules = self._settings.rules if dra is None else dra.rules_of_plugin_door(self._settings.rules)
        if self._settings.virtual_functions:
            from node.virtual_functions import with_virtual_functions

            making = None if self._functions is None else self._functions.making
            snapshot = with_virtual_functions(snapshot, self._settings.virtual_functions, making)
        self._place(snapshot, rules)
        context = self._offer_context(dra)
        found = snapshot
        snapshot = self._shareable(found, context)
        offered = offer(snapshot, rules, context, Door.PLUGIN)
        forget, self._rules_changed = self._rules_changed, False
        fault = await self._write_specs(offered, snapshot)
        # Decided again: holds may have changed while the disk was written.
        before, context = context, self._offer_context(dra)
        if context != before:
            snapshot = self._shareable(found, context)
        if fault:
            snapshot = replace(snapshot, host=replace(snapshot.host, cdi_fault=fault))
        if fault or context != before:
            offered = offer(snapshot, rules, context, Door.PLUGIN)
        shown = self.published.is_set() and (snapshot.topology, offered) == (self.shown[0].topology, self.shown[1])
        self.shown, self.context = (snapshot, offered), context
        decided = None
        if dra is not None:
            decided = dra.decide(snapshot, self._settings.rules, context)
            self._crosses = crosses(offered, decided.view)
            dra.read_reservations(at_once=asks_for_reservations(self._settings, crosses=self._crosses))
            # Lets claims that wait for a device go on: showing the rest takes as long again.
            await asyncio.sleep(0)
        # Holds change with every pod, but what the plugin door shows seldom does.
        if forget or not shown:
            self._door.apply(offered, snapshot.topology, forget_missing=forget)
        if self._books is not None:
            self._books.shown(offered)
        if dra is not None and decided is not None:
            dra.show(decided)
        for item in offered.withheld:
            log.debug("device withheld", extra={"device": item.device.name, "reason": item.reason})
        self.published.set()

    def _shareable(self, snapshot: Snapshot, context: OfferContext) -> Snapshot:
        """The snapshot with the reasons why MPS cannot share devices; sharing by MPS follows the holds."""
        if self._mps is None:
            return snapshot
        snapshot = self._mps.observe(snapshot, self._settings.rules, context)
        if self._books is not None:
            self._mps.hold(context)
        return snapshot

    def _place(self, snapshot: Snapshot, rules: tuple[Rule, ...]) -> None:
        if self._books is not None and (self._placed is None or self._placed != (snapshot, rules)):
            self._placed = snapshot, rules
            self._books.place(snapshot, rules)

    def _offer_context(self, dra: DraService | None) -> OfferContext:
        if self._books is None:
            return NOTHING_HELD
        if dra is None:
            return self._books.context(frozenset(), frozenset())
        return replace(self._books.context(dra.at_scheduler, dra.contested), made=dra.made, unmovable=dra.unmovable)

    async def _write_specs(self, offered: Offer, snapshot: Snapshot) -> str:
        """Write the wanted specs and remove the others; returns the fault. Off the loop: a disk may be slow."""
        if self._had_specs is None:
            self._had_specs = self._record.exists()
        uses_cdi = any(resource.rule.edits.uses_cdi for resource in offered.resources)
        if not uses_cdi and self._specs is None and not self._had_specs:
            return ""
        # Imported here: most nodes have no CDI specs of ours.
        from node.cdi.directory import CdiDirectory
        from node.cdi.spec import CdiError
        from plugin.specs import desired_specs

        if self._specs is None:
            self._specs = CdiDirectory(self._settings.cdi.directory, self._record)
        files, problems = desired_specs(offered, snapshot)
        fault = ""
        try:
            for change in await asyncio.to_thread(self._specs.sync, files):
                log.info("CDI specs", extra={"change": str(change)})
        except CdiError as error:
            fault = str(error)
            problems = (*problems, fault)
        for problem in problems:
            if problem not in self._problems:
                log.warning("CDI spec incomplete", extra={"problem": problem})
                self._events.emit(EventType.WARNING, "CdiSpec", problem)
        self._problems = tuple(problems)
        return fault


def asks_for_reservations(settings: Settings, *, crosses: bool) -> bool:
    """Whether somebody may need a device in the moment in which a pod is bound: the plugin door, or who divides GPUs
    and NICs.
    """
    return crosses or bool(dividing_modules(settings))


def crosses(offered: Offer, view: DoorView) -> bool:
    """Whether a device or a part of it is for both doors, or a door still shows what rules have moved to the other."""
    given = [
        (each.device, resource.rule.door, Door.PLUGIN) for resource in offered.resources for each in resource.devices
    ]
    given += [(each.device, each.rule.door, Door.DRA) for each in view.devices]
    if any(doors is Doors.BOTH or not doors.has(door) for _, doors, door in given):
        return True
    door_of = {device.name: door for device, _, door in given}
    return any(door_of.get(whole, door) is not door for device, _, door in given for whole in wholes_of(device))
