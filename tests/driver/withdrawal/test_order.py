"""A device leaves the DRA door when slices, claims here, and a list of all claims have said so, in this order."""

from __future__ import annotations

import pytest

from driver.node_watch.node_claims import NamedDevice
from node.rules import Doors
from tests.making.withdrawn_node import CLAIM, A, B, WithdrawalRig
from tests.waiting import eventually


async def test_a_device_that_is_withdrawn_everywhere_is_forgotten_after_one_list(rig: WithdrawalRig) -> None:
    rig.free = frozenset({B})
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {B})
        await eventually(lambda: rig.changes == 1)
    assert rig.asked == [{A}]
    assert rig.made.waiting_for() == {}


@pytest.mark.parametrize(
    ("free", "taken", "why"),
    [
        (None, {}, "its slice is being written"),
        (frozenset({A}), {}, "its slice offers it to claims"),
        (frozenset(), {A: "claim team/one"}, "held by claim team/one"),
    ],
)
async def test_claims_are_not_listed_before_slices_and_claims_of_this_node_let_go(
    rig: WithdrawalRig, free: frozenset[str] | None, taken: dict[str, str], why: str
) -> None:
    rig.free, rig.taken = free, taken
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.made.waiting_for() == {A: why})
        assert rig.asked == []
        rig.free, rig.taken = frozenset(), {}
        rig.apply()
        await eventually(lambda: rig.left == {B})


async def test_a_scheduler_gets_time_to_see_that_a_device_is_withdrawn(rig: WithdrawalRig) -> None:
    rig.withdrawal(quiet=3600.0)
    async with rig.leaving():
        text = "schedulers may not have seen its withdrawal yet"
        await eventually(lambda: rig.made.waiting_for() == {A: text})
    assert rig.asked == []


async def test_a_device_that_some_claim_of_the_cluster_names_stays_until_none_does(rig: WithdrawalRig) -> None:
    rig.free = frozenset()
    rig.named = [NamedDevice(A, CLAIM), NamedDevice(B, CLAIM, admin=True)]
    rig.apply(a=Doors.PLUGIN, b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.left == {A})
        await eventually(lambda: rig.made.waiting_for() == {A: "claim team/one names it"})
        rig.named = []
        await eventually(lambda: not rig.left)
    assert rig.events.events == []


async def test_what_cannot_be_known_is_told_once_and_asked_again(rig: WithdrawalRig) -> None:
    rig.free, rig.fault = frozenset(), "the API server does not let the agent list claims"
    rig.apply(a=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: len(rig.asked) > 2)
        text = f"cannot tell whether a claim names it: {rig.fault}"
        assert rig.made.waiting_for() == {A: text}
        assert [(reason, message) for _, reason, message in rig.events.events] == [
            ("WithdrawalNotConfirmed", f"the plugin door cannot have {A} yet: {text}")
        ]
        rig.fault = ""
        await eventually(lambda: rig.left == {B})


async def test_a_rule_that_turns_back_while_claims_are_listed_keeps_its_device(rig: WithdrawalRig) -> None:
    async with rig.listing():
        rig.apply(a=Doors.BOTH)
        rig.gate.set()
        await eventually(lambda: rig.made.waiting_for() == {})
    assert rig.left == {A, B}


async def test_a_device_that_was_published_again_while_claims_are_listed_is_asked_for_again(rig: WithdrawalRig) -> None:
    async with rig.listing():
        rig.apply(a=Doors.DRA)
        rig.shown.cover([A, B])
        rig.apply(a=Doors.PLUGIN)
        rig.gate.set()
        await eventually(lambda: rig.left == {B})
    assert len(rig.asked) == 2


async def test_a_claim_that_is_prepared_while_claims_are_listed_keeps_its_device(rig: WithdrawalRig) -> None:
    async with rig.listing():
        rig.taken = {A: "claim team/one"}
        rig.gate.set()
        await eventually(lambda: rig.made.waiting_for() == {A: "held by claim team/one"})
    assert rig.left == {A, B}


async def test_only_devices_that_move_are_told_of_when_claims_cannot_be_listed(rig: WithdrawalRig) -> None:
    rig.free, rig.withheld, rig.fault = frozenset(), {A}, "the API server does not let the agent list claims"
    rig.apply(b=Doors.PLUGIN)
    async with rig.running():
        await eventually(lambda: rig.events.events)
        ((_, _, message),) = rig.events.events
        assert message.startswith(f"the plugin door cannot have {B} yet: ")
        assert rig.made.waiting_for().keys() == {B}


async def test_a_disk_that_does_not_forget_keeps_nobody_from_the_device_and_is_told(rig: WithdrawalRig) -> None:
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
        f"{rig.folder}/dra-door.json cannot be written: No such file or directory; {A} can be allocated through "
        "the plugin door anyway, which a restart confirms once more; check the state folder and its disk"
    )
    away.rename(rig.folder)
    rig.shown = rig.restarted()
    rig.withdrawal()
    rig.apply()
    async with rig.running():
        await eventually(lambda: rig.left == {B})


async def test_a_process_that_was_killed_before_the_confirmation_begins_anew(rig: WithdrawalRig) -> None:
    async with rig.listing():
        assert rig.asked == [{A}]
    rig.shown = rig.restarted()
    assert rig.shown.among([]) == {A, B}
    rig.withdrawal()
    rig.gate.set()
    rig.apply()
    async with rig.running():
        await eventually(lambda: rig.left == {B})
