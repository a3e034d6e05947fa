"""Interfaces that move late, cannot move or do not come back: the claim waits, tries again, or reports them lost."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from driver.claims.model import Unavailable
from driver.interfaces.observers import InterfacePlace
from node.interfaces.model import InterfaceError
from node.values import replace
from tests.making.claim_service import reference
from tests.making.faults import reported
from tests.making.moved_interfaces import NIC1, InterfaceNode
from tests.waiting import eventually


async def test_a_slow_move_goes_on_and_the_guard_holds_the_containers_back(place: InterfaceNode) -> None:
    place.pace = replace(place.pace, deadline=0.01)
    await place.prepared()
    place.mover.gate = threading.Event()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    assert not place.guard().exists()
    place.mover.gate.set()
    await eventually(place.guard().exists)
    assert place.mover.place(NIC1) == sandbox.netns


async def test_a_slow_move_into_a_sandbox_that_ends_meanwhile_is_taken_back(place: InterfaceNode) -> None:
    place.pace = replace(place.pace, deadline=0.01)
    await place.prepared()
    place.mover.gate = threading.Event()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    await place.interfaces.stop(sandbox)
    place.mover.gate.set()
    await place.interfaces.close()
    assert place.is_home()
    assert not place.guard().exists()


async def test_a_slow_move_that_fails_is_tried_again(place: InterfaceNode) -> None:
    place.pace = replace(place.pace, deadline=0.01)
    await place.prepared()
    place.mover.gate, sandbox = threading.Event(), place.sandbox()
    place.mover.faults[NIC1, "attach"] = "busy"
    await place.interfaces.run(sandbox)
    keeping = asyncio.create_task(place.interfaces.keep())
    place.mover.gate.set()
    failed = InterfacePlace("default/pod-1", "eth1", "claim default/claim-1: busy")
    await eventually(lambda: place.interfaces.places().get(NIC1) == failed)
    assert len(place.node.events.of("InterfaceNotMoved")) == 1
    place.mover.faults.clear()
    await eventually(place.guard().exists)
    await eventually(lambda: place.interfaces.places() == {NIC1: InterfacePlace("default/pod-1", "eth1")})
    keeping.cancel()


async def test_release_takes_back_what_the_runtime_did_not_tell_of(place: InterfaceNode) -> None:
    service = await place.prepared()
    await place.interfaces.run(place.sandbox())
    await service.unprepare(reference())
    assert place.is_home()
    assert not place.guard().exists()
    assert service.ledger.all == ()


async def test_a_claim_keeps_its_device_while_the_interface_cannot_be_taken_back(place: InterfaceNode) -> None:
    service = await place.prepared()
    await place.interfaces.run(place.sandbox())
    place.mover.faults[NIC1, "detach"] = "interface eth1: the kernel said: Operation not permitted"
    with pytest.raises(Unavailable) as refused:
        await service.unprepare(reference())
    assert str(refused.value) == (
        "claim default/claim-1: interface eth1: the kernel said: Operation not permitted; it keeps its "
        "devices until they are back, and the kubelet asks again"
    )
    assert [hold.device for hold in service.ledger.all] == [NIC1]
    assert place.interfaces.places()[NIC1].problem.endswith("Operation not permitted")
    place.mover.faults.clear()
    await service.unprepare(reference())
    assert place.is_home()
    assert service.ledger.all == ()


async def test_what_cannot_be_taken_back_when_the_sandbox_ends_is_tried_again(place: InterfaceNode) -> None:
    await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.mover.faults[NIC1, "detach"] = "interface eth1: busy"
    with pytest.raises(InterfaceError, match="interface eth1: busy"):
        await place.interfaces.stop(sandbox)
    assert not place.guard().exists()
    assert len(place.node.events.of("InterfaceNotReturned")) == 1
    keeping = asyncio.create_task(place.interfaces.keep())
    place.mover.faults.clear()
    await eventually(place.is_home)
    keeping.cancel()


async def test_an_interface_that_the_kernel_gives_back_late_is_waited_for(place: InterfaceNode) -> None:
    place.pace = replace(place.pace, missing=60.0)
    service = await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.mover.returns = False
    Path(sandbox.netns).unlink()
    releasing = asyncio.create_task(service.unprepare(reference()))
    await eventually(lambda: place.mover.calls.count(f"detach {NIC1}") > 1)
    place.mover.returns = True
    await releasing
    assert place.is_home()
    assert place.node.events.of("InterfaceLost") == []


async def test_a_pod_whose_interface_fails_after_its_start_is_tried_again(place: InterfaceNode) -> None:
    await place.prepared()
    place.mover.faults[NIC1, "attach"] = "busy"
    await place.interfaces.synchronize([place.sandbox()])
    keeping = asyncio.create_task(place.interfaces.keep())
    place.mover.faults.clear()
    await eventually(place.guard().exists)
    keeping.cancel()


async def test_an_attempt_for_an_old_sandbox_takes_nothing_from_the_new_one(place: InterfaceNode) -> None:
    await place.prepared()
    place.mover.faults[NIC1, "attach"] = "busy"
    old, new = place.sandbox(1), place.sandbox(2)
    await place.interfaces.synchronize([old])
    place.mover.faults.clear()
    place.mover.gate = threading.Event()
    starting = asyncio.create_task(place.interfaces.run(new))
    await eventually(lambda: place.mover.calls[-1] == f"look {NIC1}")
    again = asyncio.create_task(place.interfaces.retry())
    await asyncio.sleep(0)
    place.mover.gate.set()
    await asyncio.gather(starting, again)
    assert place.mover.place(NIC1) == new.netns
    assert place.guard().exists()


async def test_an_interface_whose_name_was_taken_meanwhile_is_reported_with_its_new_name(place: InterfaceNode) -> None:
    await place.prepared()
    sandbox = place.sandbox()
    await place.interfaces.run(sandbox)
    place.mover.taken["eth1"] = "eth1_1"
    await place.interfaces.stop(sandbox)
    assert place.is_home()
    assert place.node.events.of("InterfaceRenamed") == [
        (
            f"claim default/claim-1, pod default/pod-1: interface eth1 of device {NIC1} is called eth1_1 now, because "
            "another interface has the name it had; rename one of them"
        )
    ]


async def test_a_bug_in_a_move_that_is_tried_again_is_logged_and_the_move_stays_due(
    place: InterfaceNode, caplog: pytest.LogCaptureFixture
) -> None:
    def break_down(call: str) -> None:
        if call == "look":
            raise TypeError("a bug")

    await place.prepared()
    place.mover.faults[NIC1, "attach"] = "busy"
    await place.interfaces.synchronize([place.sandbox()])
    place.mover.faults.clear()
    before, place.mover.before = place.mover.before, break_down
    await place.interfaces.retry()
    assert reported(caplog) == [("interfaces of claim uid-1", "TypeError: a bug")]
    place.mover.before = before
    await place.interfaces.retry()
    assert place.guard().exists()
