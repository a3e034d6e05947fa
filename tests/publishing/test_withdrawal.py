"""A device leaves the DRA door when slices, claims here, and a list of all claims have said so, in this order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import driver.withdrawal
from driver.claims.errors import Unavailable
from driver.claims.model import ClaimReference
from driver.devices.offered import DoorView, DraDevice
from driver.holders.naming import Naming
from driver.shown import ShownDevices
from driver.withdrawal import Withdrawal
from kube.backoff import BackoffPolicy
from node.offer import Cause
from node.rules import Doors, Rule, Selector
from tests.edits.making import gpu
from tests.publishing.controllers import Told
from tests.waiting import eventually

A, B = gpu(0).name, gpu(1).name
CLAIM = ClaimReference("team", "one", "uid-1")


class Rig:
    """A node with two GPUs that claims were shown; ``doors``: those of the rules of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.doors = {A: Doors.DRA, B: Doors.DRA}
        self.withheld: set[str] = set()
        """What the view leaves out, whatever its rule; ``gone`` is not on the node, either."""
        self.gone: set[str] = set()
        self.free: frozenset[str] | None = frozenset({A, B})
        self.taken: dict[str, str] = {}
        self.named: list[Naming] = []
        self.fault = ""
        self.asked: list[frozenset[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.events = Told()
        self.changes = 0
        self.looks = 0
        self.shown = self.restarted()
        self.shown.cover([A, B])
        self.made = self.withdrawal()

    def restarted(self) -> ShownDevices:
        shown = ShownDevices(self.folder)
        assert shown.load() == ""
        return shown

    def withdrawal(self, quiet: float = 0.0, again: float = 0.02) -> Withdrawal:
        self.made = Withdrawal(
            self.shown,
            self._claims_naming,
            free=self._free,
            taken=lambda: self.taken,
            events=self.events,
            changed=self._changed,
            quiet=quiet,
            policy=BackoffPolicy(first=again, most=again),
            random=lambda: 0.0,
        )
        return self.made

    def apply(self, **doors: Doors) -> None:
        """Other rules, and the view that they make."""
        self.doors |= {{"a": A, "b": B}[name]: door for name, door in doors.items()}
        shown = self.shown.among([A, B])
        rules = [Rule("nvidia.com/gpu", Selector(names=(name,)), door=door) for name, door in self.doors.items()]
        devices = []
        for number, (name, rule) in enumerate(zip((A, B), rules, strict=True)):
            if name in self.withheld:
                continue
            if rule.door is not Doors.PLUGIN:
                devices.append(DraDevice(gpu(number), rule, True))
            elif name in shown:
                devices.append(DraDevice(gpu(number), rule, False, "moving", Cause.MOVING))
        self.made.apply([gpu(n) for n in range(2) if gpu(n).name not in self.gone], rules, DoorView(tuple(devices)))

    async def looked(self) -> None:
        """Hand the view in once more, and return when that was looked at."""
        looks = self.looks
        self.apply()
        await eventually(lambda: self.looks > looks)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.made.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    @property
    def left(self) -> frozenset[str]:
        """What the next process would know."""
        return self.restarted().among([])

    def _free(self) -> frozenset[str] | None:
        self.looks += 1
        return self.free

    async def _claims_naming(self, devices: Collection[str]) -> list[Naming]:
        self.asked.append(frozenset(devices))
        await self.gate.wait()
        if self.fault:
            raise Unavailable(self.fault)
        return [each for each in self.named if each.device in devices]

    def _changed(self) -> None:
        self.changes += 1
        self.apply()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


async def test_a_device_that_is_withdrawn_everywhere_is_forgotten_after_one_list(rig: Rig) -> None:
    rig.free = frozenset({B})
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {B})
        await eventually(lambda: rig.changes == 1)
    assert rig.asked == [{A}]
    assert rig.made.waiting_for() == {}


async def test_nobody_is_asked_while_nothing_is_withdrawn(rig: Rig) -> None:
    rig.apply()
    async with rig.running():
        for _ in range(3):
            rig.apply()
            await asyncio.sleep(0)
    assert rig.asked == []


async def test_one_list_answers_for_all_devices(rig: Rig) -> None:
    rig.free = frozenset()
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}]


async def test_devices_that_become_ready_one_after_the_other_are_asked_for_together(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.withdrawal, "LOOK", 0.001)
    rig.withdrawal(quiet=0.3)
    rig.free = frozenset({B})
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: A in rig.made.waiting_for() and "schedulers" in rig.made.waiting_for()[A])
        await asyncio.sleep(0.1)  # Less than what schedulers get, and more than the time between looks.
        rig.free = frozenset()
        rig.apply()
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}]


async def test_a_device_that_becomes_ready_is_asked_for_though_another_one_has_to_wait_long(rig: Rig) -> None:
    rig.withdrawal(again=3600.0)
    rig.free, rig.named = frozenset({B}), [Naming(A, CLAIM)]
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for()[A] == "claim team/one names it")
        rig.free = frozenset()
        rig.apply()
        await eventually(lambda: rig.left == {A})
    assert rig.asked == [{A}, {A, B}]


@pytest.mark.parametrize(
    ("free", "taken", "why"),
    [
        (None, {}, "its slice is being written"),
        (frozenset({A}), {}, "its slice offers it to claims"),
        (frozenset(), {A: "claim team/one"}, "held by claim team/one"),
    ],
)
async def test_claims_are_not_listed_before_slices_and_claims_of_this_node_let_go(
    rig: Rig, free: frozenset[str] | None, taken: dict[str, str], why: str
) -> None:
    rig.free, rig.taken = free, taken
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for() == {A: why})
        assert rig.asked == []
        rig.free, rig.taken = frozenset(), {}
        rig.apply()
        await eventually(lambda: rig.left == {B})


async def test_what_a_claim_has_for_weeks_is_not_looked_at_all_the_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.withdrawal, "LOOK", 0.001)
    rig.free, rig.taken = frozenset(), {A: "claim team/one"}
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for() == {A: "held by claim team/one"})
        looks = rig.looks
        await asyncio.sleep(0.1)
        assert rig.looks <= looks + 1
        rig.taken = {}
        rig.apply()
        await eventually(lambda: rig.left == {B})


class OtherDevices:
    """Devices whose every change has slices written for a while."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.seconds = 0.0
        monkeypatch.setattr(driver.withdrawal, "LOOK", 0.001)
        rig.made._monotonic = lambda: self.seconds

    async def change(self) -> None:
        """One of them changes, half a second after the last one did, and is written."""
        self.seconds += 0.5
        for free in (None, self.rig.free):
            self.rig.free = free
            await self.rig.looked()


async def test_changes_of_other_devices_do_not_begin_the_time_for_schedulers_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.withdrawal(quiet=2.0)
    others = OtherDevices(rig, monkeypatch)
    rig.free = frozenset()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        for _ in range(5):
            await others.change()
        await eventually(lambda: rig.left == {B})
    assert rig.asked == [{A}]


async def test_changes_of_other_devices_do_not_have_claims_listed_more_often(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.withdrawal(again=3600.0)
    others = OtherDevices(rig, monkeypatch)
    rig.free, rig.named = frozenset(), [Naming(A, CLAIM)]
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for()[A] == "claim team/one names it")
        for _ in range(5):
            await others.change()
        assert rig.made.waiting_for() == {A: "claim team/one names it"}
    assert rig.asked == [{A}]


async def test_a_device_that_was_asked_for_in_vain_is_asked_for_at_once_when_its_claim_has_been_here_and_gone(
    rig: Rig,
) -> None:
    rig.withdrawal(again=3600.0)
    rig.free, rig.named = frozenset(), [Naming(A, CLAIM)]
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for()[A] == "claim team/one names it")
        rig.taken, rig.named = {A: "claim team/one"}, []
        rig.apply()
        await eventually(lambda: rig.made.waiting_for()[A] == "held by claim team/one")
        rig.taken = {}
        rig.apply()
        await eventually(lambda: rig.left == {B})
    assert rig.asked == [{A}, {A}]


@pytest.mark.parametrize("seen", ["free", "taken", "offered"])
async def test_a_device_that_was_not_withdrawn_meanwhile_begins_the_time_for_schedulers_anew(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    rig.withdrawal(quiet=2.0)
    others = OtherDevices(rig, monkeypatch)
    rig.free = frozenset()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        for _ in range(3):
            await others.change()
        if seen == "offered":
            rig.apply(a=Doors.BOTH)
            rig.apply(a=Doors.PLUGIN)
        else:
            rig.free, rig.taken = (frozenset({A}), {}) if seen == "free" else (frozenset(), {A: "claim team/one"})
            rig.apply()
            await eventually(lambda: "schedulers" not in rig.made.waiting_for()[A])
            rig.free, rig.taken = frozenset(), {}
        for _ in range(3):
            await others.change()
        assert rig.asked == []
        for _ in range(2):
            await others.change()
        await eventually(lambda: rig.left == {B})


async def test_a_scheduler_gets_time_to_see_that_a_device_is_withdrawn(rig: Rig) -> None:
    rig.withdrawal(quiet=3600.0)
    rig.free = frozenset()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        text = "schedulers may not have seen yet that it is withdrawn"
        await eventually(lambda: rig.made.waiting_for() == {A: text})
    assert rig.asked == []


async def test_a_device_that_some_claim_of_the_cluster_names_stays_until_none_does(rig: Rig) -> None:
    rig.free = frozenset()
    rig.named = [Naming(A, CLAIM), Naming(B, CLAIM, admin=True)]
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {A})
        await eventually(lambda: rig.made.waiting_for() == {A: "claim team/one names it"})
        rig.named = []
        await eventually(lambda: not rig.left)
    assert rig.events.events == []


async def test_what_cannot_be_known_is_told_once_and_asked_again(rig: Rig) -> None:
    rig.free, rig.fault = frozenset(), "the API server does not let us list claims"
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: len(rig.asked) > 2)
        text = f"whether a claim names it is not known: {rig.fault}"
        assert rig.made.waiting_for() == {A: text}
        assert [(reason, message) for _, reason, message in rig.events.events] == [
            ("WithdrawalNotConfirmed", f"the plugin door cannot have {A} yet: {text}")
        ]
        rig.fault = ""
        await eventually(lambda: rig.left == {B})


async def test_a_rule_that_turns_back_while_claims_are_listed_keeps_its_device(rig: Rig) -> None:
    rig.free = frozenset()
    rig.gate.clear()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.asked)
        rig.apply(a=Doors.BOTH)
        rig.gate.set()
        await eventually(lambda: rig.made.waiting_for() == {})
    assert rig.left == {A, B}


async def test_a_device_that_was_published_again_while_claims_are_listed_is_asked_for_again(rig: Rig) -> None:
    rig.free = frozenset()
    rig.gate.clear()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.asked)
        rig.apply(a=Doors.DRA)
        rig.shown.cover([A, B])
        rig.apply(a=Doors.PLUGIN)
        rig.gate.set()
        await eventually(lambda: rig.left == {B})
    assert len(rig.asked) == 2


async def test_a_claim_that_is_prepared_while_claims_are_listed_keeps_its_device(rig: Rig) -> None:
    rig.free = frozenset()
    rig.gate.clear()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.asked)
        rig.taken = {A: "claim team/one"}
        rig.gate.set()
        await eventually(lambda: rig.made.waiting_for() == {A: "held by claim team/one"})
    assert rig.left == {A, B}


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "in MIG mode"])
async def test_a_device_that_only_vanishes_from_the_view_has_no_claims_listed_and_is_said_to_wait_for_nothing(
    rig: Rig, *, gone: bool
) -> None:
    rig.free, rig.fault = frozenset(), "the API server does not let us list claims"
    rig.withheld = {A}
    rig.gone = {A} if gone else set()
    async with rig.running():
        for _ in range(3):
            rig.apply()
            await asyncio.sleep(0)
    assert (rig.asked, rig.made.waiting_for(), rig.events.events) == ([], {}, [])
    assert rig.left == {A, B}


async def test_the_list_for_a_handover_answers_for_devices_that_vanished_as_well(rig: Rig) -> None:
    rig.free, rig.withheld, rig.gone = frozenset(), {A}, {A}
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}]


async def test_a_device_that_vanished_and_that_a_claim_names_has_no_claims_listed_again(rig: Rig) -> None:
    rig.withdrawal(again=0.0)
    rig.free, rig.withheld, rig.named = frozenset(), {A}, [Naming(A, CLAIM)]
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {A} and rig.changes)
        looks = rig.looks
        rig.apply()
        await asyncio.sleep(0)
    assert rig.asked == [{A, B}]
    assert rig.looks == looks


async def test_only_devices_that_move_are_told_of_when_claims_cannot_be_listed(rig: Rig) -> None:
    rig.free, rig.withheld, rig.fault = frozenset(), {A}, "the API server does not let us list claims"
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.events.events)
        ((_, _, message),) = rig.events.events
        assert message.startswith(f"the plugin door cannot have {B} yet: ")
        assert rig.made.waiting_for().keys() == {B}


async def test_a_disk_that_does_not_forget_keeps_nobody_from_the_device_and_is_told(rig: Rig) -> None:
    rig.free = frozenset()
    away = rig.folder.with_name("away")
    rig.folder.rename(away)
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.changes == 1)
    assert rig.shown.among([]) == {B}
    ((_, reason, text),) = rig.events.events
    assert reason == "WithdrawalNotRemembered"
    assert text == (
        f"{rig.folder}/dra-door.json cannot be written: No such file or directory; {A} can be had through the plugin "
        "door all the same, which a restart confirms once more; check the state folder and its disk"
    )
    away.rename(rig.folder)
    rig.shown = rig.restarted()
    rig.withdrawal()
    rig.apply()
    async with rig.running():
        await eventually(lambda: rig.left == {B})


async def test_a_process_that_was_killed_before_the_confirmation_begins_anew(rig: Rig) -> None:
    rig.free = frozenset()
    rig.gate.clear()
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.asked)
    rig.shown = rig.restarted()
    assert rig.shown.among([]) == {A, B}
    rig.withdrawal()
    rig.gate.set()
    rig.apply()
    async with rig.running():
        await eventually(lambda: rig.left == {B})
