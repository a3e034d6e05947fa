"""Checks whether the containers of ended pods still run, and lets Allocate wait until they have ended.

Checks run in a thread, one at a time, and only while a device waits for a pod. The remembered pods are saved after
every change, because a restarted agent cannot learn of a pod that the kubelet and the API server have forgotten. Every
saved entry is checked again, so an outdated file does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from node.clocks import Clocks
from node.events import EventBus
from node.files import FileError, JsonValue, read_record, write_record
from node.inventory.live.passing import in_passing
from node.ledger.containers import PodContainers
from node.ledger.events import ReleasesAdvanced, ReleasesPending
from node.ledger.holds import HeldError, Hold
from node.ledger.tenants import WAIT, Tenancy, Tenants
from node.offer import OfferedDevice
from node.rules import Door
from node.sharing import Amounts
from node.values import Value, replace, value

if TYPE_CHECKING:
    from node.ledger.grants import PluginGrants

log = logging.getLogger("ostler.holds")

STEP, SLOW = 0.05, 1.0
"""Seconds between checks: while an Allocate waits, and at most while none does."""
FILE_NAME = "device-pods.json"
SCHEMA = "device-pods/v1"


@value
class _Look(Value):
    """A check that began at a time (monotonic): the pods it looked for, and those that still have containers."""

    began: float
    uids: frozenset[str]
    left: frozenset[str]


class Releases:
    """Publishes ``ReleasesAdvanced`` on ``bus`` when a pod's containers have ended, or its ``WAIT`` is over."""

    def __init__(
        self,
        tenants: Tenants,
        containers: PodContainers,
        grants: PluginGrants,
        state_dir: Path,
        *,
        bus: EventBus,
        clocks: Clocks,
    ) -> None:
        self._tenants = tenants
        self._containers = containers
        self._grants = grants
        self._path = state_dir / FILE_NAME
        self._bus = bus
        self._clock = clocks.clock
        self._monotonic = clocks.monotonic
        self._looking = asyncio.Lock()
        self._last = _Look(-math.inf, frozenset(), frozenset())
        self._written = tenants.version
        self._problem = ""
        self._pending: Mapping[str, Hold] = {}
        """The releases pending after the last check; the passing of time changes them too."""
        self._living: frozenset[str] = frozenset()
        self._woken = asyncio.Event()
        self._over = False
        """Whether a successor may decide in place of this process."""
        bus.subscribe(ReleasesPending, self._wake)

    @property
    def off(self) -> str:
        """Why containers cannot be checked; empty if they can."""
        return self._containers.off

    def _wake(self, _: ReleasesPending) -> None:
        """Check and save if a device waits for a pod or the memory has changed."""
        if self._tenants.waited_for or self._tenants.version != self._written:
            self._woken.set()

    async def confirm(self, living: frozenset[str]) -> None:
        """Take in the pods that the kubelet reports alive, and compare those reported twice with the node."""
        before, self._living = self._living, living
        async with self._looking:
            with contextlib.suppress(OSError):
                # The next reading tries again, and a check that matters says why it fails.
                await in_passing(self._containers.confirm, before & living)

    async def ended(self, resource: str, devices: Sequence[OfferedDevice]) -> None:
        """Return when no pod that had one of these devices has a container left; raises ``HeldError`` after ``WAIT``.

        Also waits for pods that had other shares of a device, which leave too little while they have containers. If
        they still have some after ``WAIT``, the ledger refuses the Allocate.

        Also waits for pods that still have the device according to the sources, which are late: the kubelet allocates
        it only after it has forgotten them, and starts no container of a pod that it has forgotten.

        Once ``run`` has ended nothing waits: a successor relies on this process allocating nothing later.
        """
        proved: set[str] = set()
        longest = self._monotonic() + WAIT
        while uids := self.in_the_way(devices) - proved:
            now = self._monotonic()
            until = min(self._tenants.wait_until(uids, now, self._clock()), longest)
            async with self._looking:
                # Of many Allocates that wait for one pod, the first one checks for all.
                if self._last.began < now or not uids <= self._last.uids:
                    await self._look(uids)
                # A person may have released some meanwhile.
                left = uids & self._last.left & self.in_the_way(devices)
            proved |= uids - left
            if left:
                if self._over or self._monotonic() >= until:
                    error = self._refusal(resource, devices, left)
                    self._bus.publish(ReleasesAdvanced())
                    if error is None:
                        return
                    raise error
                await asyncio.sleep(STEP)

    async def run(self) -> None:
        """Check and save until cancelled."""
        try:
            await self._run()
        finally:
            self._over = True

    async def _run(self) -> None:
        wait = STEP
        while True:
            self._woken.clear()
            await self._write()
            waited_for = self._tenants.waited_for
            if not waited_for:
                wait = STEP
                await self._woken.wait()
                continue
            async with self._looking:
                await self._look(waited_for)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._woken.wait()
            wait = STEP if self._tenants.waited_for - waited_for else min(2 * wait, SLOW)

    async def _look(self, uids: frozenset[str]) -> None:
        began = self._monotonic()
        try:
            left = await in_passing(self._containers.left, uids)
        except OSError as error:
            # They may still run, so devices wait for them.
            self._report(f"{error.strerror or error}")
            left = uids
        else:
            self._report("")
        self._last = _Look(began, uids, left)
        news = self._tenants.gone(uids - left)
        pending = self._tenants.wanted(self._monotonic())
        if news or pending != self._pending:
            self._pending = pending
            self._bus.publish(ReleasesAdvanced())

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.warning("cannot tell whether containers of deleted pods still run", extra={"reason": problem})
        self._problem = problem

    def in_the_way(self, devices: Sequence[OfferedDevice]) -> frozenset[str]:
        """UIDs of pods that may have one of these devices, or whose shares leave too little of it, by what is known."""
        found = self._grants.crowded_by_ended(devices)
        for each in () if self._tenants.is_empty else devices:
            found |= self._tenants.suspects(each.device.name, self._grants.within(each.device), each.share)
        return found

    def _refusal(self, resource: str, devices: Sequence[OfferedDevice], left: frozenset[str]) -> HeldError | None:
        found = [
            self._tenants.kept_by(left, each.device.name, self._grants.within(each.device), each.share)
            for each in devices
        ]
        by = next((each for each in found if each is not None), None)
        return None if by is None else refusal(resource, by, self._clock())

    async def _write(self) -> None:
        if self._tenants.version == self._written:
            return
        version, data = self._tenants.version, _json(self._tenants.all)
        try:
            await in_passing(write_record, self._path, SCHEMA, data, durable=False)
        except FileError as error:
            # Nothing is lost while this process lives; the next change tries again.
            log.warning("cannot save which pods had devices", extra={"reason": str(error)})
        self._written = version


def refusal(resource: str, by: Hold, at: float) -> HeldError:
    """The error for a pod that asks for a resource and gets a device that is pending release."""
    wanted = Hold(by.device, Door.PLUGIN, f"a pod that asked for {resource}", at)
    advice = (
        f"it is allocated again when they have ended; if they do not end, end them on the node, or run "
        f"'ostler holds release {by.device}' if you know that it is free"
    )
    return HeldError(wanted, by, advice)


def remembered(state_dir: Path) -> tuple[Tenancy, ...]:
    """The releases that an earlier process saved; blocking. An unusable file is logged and gives nothing."""
    try:
        data = read_record(state_dir / FILE_NAME, SCHEMA)
    except FileError as error:
        log.warning("the saved record of which pods had devices is unusable", extra={"reason": str(error)})
        return ()
    return tuple(_tenancies(data))


def _json(tenancies: tuple[Tenancy, ...]) -> JsonValue:
    return [_entry(each) for each in tenancies]


def _entry(tenancy: Tenancy) -> JsonValue:
    entry: dict[str, JsonValue] = {
        "device": tenancy.device,
        "uid": tenancy.uid,
        "within": [*tenancy.within],
        "door": tenancy.door.value,
        "pod": tenancy.pod,
    }
    if tenancy.share:
        entry |= {"share": tenancy.share, "amounts": {**dict(tenancy.amounts)}, "whole": {**dict(tenancy.whole)}}
    if tenancy.slices is not None:
        entry["slices"] = [*tenancy.slices]
    return entry


def _tenancies(data: JsonValue) -> list[Tenancy]:
    """Entries of another form are left out: another version wrote them."""
    found = []
    for each in data if isinstance(data, list) else []:
        if not isinstance(each, dict):
            continue
        with contextlib.suppress(ValueError, TypeError, KeyError):
            texts = {name: _text(each[name]) for name in ("device", "uid", "door", "pod")}
            within = each["within"]
            parts = tuple(_text(one) for one in within) if isinstance(within, list) else ()
            made = Tenancy(texts["device"], texts["uid"], parts, Door(texts["door"]), texts["pod"])
            if "share" in each:
                amounts, whole = _amounts(each["amounts"]), _amounts(each["whole"])
                made = replace(made, share=_text(each["share"]), amounts=amounts, whole=whole)
            match each.get("slices"):
                case [int(start), int(size)]:
                    made = replace(made, slices=(start, size))
            found.append(made)
    return found


def _amounts(found: JsonValue) -> Amounts:
    if not isinstance(found, dict):
        raise TypeError(f"{found!r} must be an object")
    return tuple(sorted((name, amount) for name, amount in found.items() if isinstance(amount, int)))


def _text(found: JsonValue) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{found!r} must be a string")
    return found
