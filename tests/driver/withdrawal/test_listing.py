"""Claims are listed for as many devices as possible at once, and no more often than that tells something."""

from __future__ import annotations

import asyncio

import pytest

from driver.node_watch.node_claims import NamedDevice
from driver.publishing import withdrawal
from node.rules import Doors
from tests.making.withdrawn_node import CLAIM, A, B, OtherDevices, WithdrawalRig
from tests.waiting import eventually


async def test_nobody_is_asked_while_nothing_is_withdrawn(rig: WithdrawalRig) -> None:
    rig.apply()
    async with rig.running():
        for _ in range(3):
            rig.apply()
            await asyncio.sleep(0)
    assert rig.asked == []


async def test_one_list_answers_for_all_devices(rig: WithdrawalRig) -> None:
    rig.free = frozenset()
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}]


async def test_devices_that_become_ready_one_after_the_other_are_asked_for_together(
    rig: WithdrawalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawal, "LOOK", 0.001)
    seconds = 0.0
    rig.withdrawal(quiet=0.3)
    rig.made._monotonic = lambda: seconds
    rig.free = frozenset({B})
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: A in rig.made.waiting_for() and "schedulers" in rig.made.waiting_for()[A])
        looks = rig.looks
        await eventually(lambda: rig.looks > looks + 1, "another look while schedulers have their time")
        rig.free = frozenset()
        await rig.looked()
        seconds = 1.0
        rig.apply()
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}]


async def test_a_device_that_becomes_ready_is_asked_for_though_another_one_has_to_wait_long(rig: WithdrawalRig) -> None:
    rig.withdrawal(again=3600.0)
    rig.free, rig.named = frozenset({B}), [NamedDevice(A, CLAIM)]
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for()[A] == "claim team/one names it")
        rig.free = frozenset()
        rig.apply()
        await eventually(lambda: rig.left == {A})
    assert rig.asked == [{A}, {A, B}]


async def test_what_a_claim_has_for_weeks_is_not_looked_at_all_the_time(
    rig: WithdrawalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(withdrawal, "LOOK", 0.001)
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


async def test_changes_of_other_devices_do_not_begin_the_time_for_schedulers_anew(
    rig: WithdrawalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.withdrawal(quiet=2.0)
    others = OtherDevices(rig, monkeypatch)
    async with rig.leaving():
        await others.change(5)
        await eventually(lambda: rig.left == {B})
    assert rig.asked == [{A}]


async def test_changes_of_other_devices_do_not_have_claims_listed_more_often(
    rig: WithdrawalRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.withdrawal(again=3600.0)
    others = OtherDevices(rig, monkeypatch)
    async with rig.asked_in_vain():
        await others.change(5)
        assert rig.made.waiting_for() == {A: "claim team/one names it"}
    assert rig.asked == [{A}]


async def test_a_device_that_was_asked_for_in_vain_is_asked_for_at_once_when_its_claim_has_been_here_and_gone(
    rig: WithdrawalRig,
) -> None:
    rig.withdrawal(again=3600.0)
    async with rig.asked_in_vain():
        rig.taken, rig.named = {A: "claim team/one"}, []
        rig.apply()
        await eventually(lambda: rig.made.waiting_for()[A] == "held by claim team/one")
        rig.taken = {}
        rig.apply()
        await eventually(lambda: rig.left == {B})
    assert rig.asked == [{A}, {A}]


@pytest.mark.parametrize("seen", ["free", "taken", "offered"])
async def test_a_device_that_was_not_withdrawn_meanwhile_begins_the_time_for_schedulers_anew(
    rig: WithdrawalRig, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    rig.withdrawal(quiet=2.0)
    others = OtherDevices(rig, monkeypatch)
    async with rig.leaving():
        await others.change(3)
        if seen == "offered":
            rig.apply(a=Doors.BOTH)
            rig.apply(a=Doors.PLUGIN)
        else:
            rig.free, rig.taken = (frozenset({A}), {}) if seen == "free" else (frozenset(), {A: "claim team/one"})
            rig.apply()
            await eventually(lambda: "schedulers" not in rig.made.waiting_for()[A])
            rig.free, rig.taken = frozenset(), {}
        await others.change(3)
        assert rig.asked == []
        await others.change(2)
        await eventually(lambda: rig.left == {B})


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "in MIG mode"])
async def test_a_device_that_only_vanishes_from_the_view_has_no_claims_listed_and_is_said_to_wait_for_nothing(
    rig: WithdrawalRig, *, gone: bool
) -> None:
    rig.free, rig.fault = frozenset(), "the API server does not let the agent list claims"
    rig.withheld = {A}
    rig.gone = {A} if gone else set()
    async with rig.running():
        for _ in range(3):
            rig.apply()
            await asyncio.sleep(0)
    assert (rig.asked, rig.made.waiting_for(), rig.events.events) == ([], {}, [])
    assert rig.left == {A, B}


async def test_the_list_for_a_handover_answers_for_devices_that_vanished_as_well(rig: WithdrawalRig) -> None:
    rig.free, rig.withheld, rig.gone = frozenset(), {A}, {A}
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}]


async def test_a_device_that_vanished_and_that_a_claim_names_has_no_claims_listed_again(rig: WithdrawalRig) -> None:
    rig.withdrawal(again=0.0)
    rig.free, rig.withheld, rig.named = frozenset(), {A}, [NamedDevice(A, CLAIM)]
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {A} and rig.changes)
        looks = rig.looks
        rig.apply()
        await asyncio.sleep(0)
    assert rig.asked == [{A, B}]
    assert rig.looks == looks


async def test_a_device_that_vanished_does_not_keep_the_door_open_once_no_rule_offers_anything_to_claims(
    rig: WithdrawalRig,
) -> None:
    rig.free, rig.withheld, rig.gone, rig.named = frozenset(), {A}, {A}, [NamedDevice(A, CLAIM)]
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {A})
        rig.named = []
        rig.apply(a=Doors.PLUGIN)
        await eventually(lambda: not rig.left)
    assert rig.asked == [{A, B}, {A}]
