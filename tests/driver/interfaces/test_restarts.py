"""An agent that starts anew and a runtime that connects late find the interfaces where they are; nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from driver.claims.contracts import ClaimStep
from driver.interfaces.moving import InterfaceStep
from node.values import replace
from tests.making.claim_service import DieAt, Killed, reference
from tests.making.moved_interfaces import NIC1, NIC2, DieAtInterface, InterfaceNode


@pytest.mark.parametrize("missing", [".gate", ".json"])
async def test_half_a_guard_of_a_killed_process_is_completed(place: InterfaceNode, missing: str) -> None:
    await place.prepared(NIC1)
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.guard().with_suffix(missing).unlink()
    await place.agent()
    assert not place.guard().with_suffix(".gate").exists()
    assert not place.guard().exists()
    await place.interfaces.synchronize([sandbox])
    assert place.guard().exists()
    assert place.guard().with_suffix(".gate").is_fifo()


async def test_a_runtime_that_connects_late_has_its_sandboxes_served(place: InterfaceNode) -> None:
    await place.prepared()
    sandbox = place.sandbox()
    ended = replace(place.sandbox(2), netns="")
    await place.interfaces.synchronize([ended, sandbox])
    assert place.mover.place(NIC1) == sandbox.netns
    assert place.guard().exists()


async def test_a_sandbox_that_ended_while_there_was_no_connection_gives_them_back(place: InterfaceNode) -> None:
    await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    await place.interfaces.synchronize([replace(sandbox, netns="")])
    assert place.is_home()


async def test_a_sandbox_that_still_runs_keeps_them_untouched(place: InterfaceNode) -> None:
    await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    calls = list(place.mover.calls)
    await place.interfaces.synchronize([sandbox])
    assert place.mover.calls == calls


async def test_a_sandbox_that_vanished_unheard_does_not_keep_the_next_one_waiting(place: InterfaceNode) -> None:
    await place.prepared()
    place.mover.faults[NIC1, "attach"] = "busy"
    old, new = place.sandbox(1), place.sandbox(2)
    await place.interfaces.synchronize([old])
    Path(old.netns).unlink()
    place.mover.faults.clear()
    await place.interfaces.synchronize([new])
    assert place.mover.place(NIC1) == new.netns
    assert place.guard().exists()


@pytest.mark.parametrize("pod", ["pod-1", "pod-2"])
async def test_a_sandbox_that_followed_another_unheard_gets_them(place: InterfaceNode, pod: str) -> None:
    await place.prepared()
    old, new = place.sandbox(1), place.sandbox(2, pod=pod)
    await place.interfaces.run(old)
    Path(old.netns).unlink()
    place.node.kubelet_knows(1, users=(pod,))
    await place.interfaces.synchronize([new])
    assert place.mover.place(NIC1) == new.netns
    assert place.guard().exists()


STEPS = [(step, times) for step in InterfaceStep for times in (1, 2)]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize(("step", "times"), STEPS)
async def test_killed_between_any_two_steps_nothing_is_lost(
    place: InterfaceNode, step: InterfaceStep, times: int, is_told: bool
) -> None:
    """``is_told``: whether the sandbox still runs when the next agent hears of it."""
    place.put(1, NIC1, NIC2)
    service = await place.agent(steps=DieAtInterface(step, times))
    await service.prepare(reference())
    sandbox = place.sandbox()
    died = False
    try:
        await place.interfaces.run(sandbox)
        await place.interfaces.stop(sandbox)
    except Killed:
        died = True
    assert died is (times == 1 or step in (InterfaceStep.ATTACHED, InterfaceStep.DETACHED))
    if not is_told:
        Path(sandbox.netns).unlink()
    service = await place.agent()
    await place.interfaces.synchronize([sandbox] if is_told else [])
    is_in = all(place.mover.place(each) == sandbox.netns for each in (NIC1, NIC2))
    assert place.guard().exists() is is_in
    if is_told:
        assert is_in
    else:
        assert place.is_home()
    await service.unprepare(reference())
    assert place.is_home()
    assert not place.guard().exists()
    assert service.ledger.all == ()


@pytest.mark.parametrize("step", [ClaimStep.TAKEN_BACK, ClaimStep.RELEASING, ClaimStep.FORGOTTEN])
async def test_killed_while_the_claim_is_released_nothing_is_lost(place: InterfaceNode, step: ClaimStep) -> None:
    place.put(1, NIC1)
    service = await place.agent(dying=DieAt(step))
    await service.prepare(reference())
    await place.interfaces.run(place.sandbox())
    with pytest.raises(Killed):
        await service.unprepare(reference())
    service = await place.agent()
    await service.unprepare(reference())
    assert place.is_home()
    assert service.ledger.all == ()


async def test_moves_of_an_earlier_boot_are_forgotten(place: InterfaceNode) -> None:
    await place.prepared()
    await place.interfaces.run(place.sandbox())
    place.node.boot = "boot-2"
    place.mover.places.clear()
    calls = len(place.mover.calls)
    await place.agent()
    assert place.journal == []
    assert not place.guard().exists()
    assert place.interfaces.places() == {}
    assert len(place.mover.calls) == calls


@pytest.mark.parametrize("lives", [True, False])
async def test_a_damaged_journal_is_set_aside_and_rebuilt_from_the_marks(place: InterfaceNode, lives: bool) -> None:
    service = await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    path = place.node.root / "state" / "interfaces" / "journal" / "uid-1.json"
    path.write_bytes(path.read_bytes()[:-9])
    service = await place.agent()
    assert [each.name for each in path.parent.glob("*.damaged-*")] == ["uid-1.json.damaged-1"]
    assert (
        "is looked for by" in place.node.events.of("ClaimRecoveryIncomplete")[0]
        or "are looked for by" in (place.node.events.of("ClaimRecoveryIncomplete")[0])
    )
    if lives:
        await place.interfaces.synchronize([sandbox])
        assert place.guard().exists()
        assert place.mover.place(NIC1) == sandbox.netns
    else:
        Path(sandbox.netns).unlink()
        await place.interfaces.synchronize([])
    await service.unprepare(reference())
    assert place.is_home()
    assert place.mover.marks == {}
