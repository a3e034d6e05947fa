"""Who has a device is the ledger's word at the last moment, not that of the view, which is a moment old."""

from __future__ import annotations

import asyncio

import pytest

from driver.claims.model import ClaimError, Unavailable
from node.edits.options import CdiMode, EditOptions, ListStrategy
from node.ledger.events import HoldsChanged
from node.ledger.holds import Hold, HoldState, pending_owner, plugin_owner
from node.ledger.ledger import Ledger
from node.offer import Cause
from node.rules import Door, Doors
from node.values import replace
from tests.making.claim_service import GPU0, GPU1, RULE, ClaimNode, claim, offered, reference, result
from tests.making.devices import gpu
from tests.waiting import eventually

HOLDS = (Cause.OTHER_DOOR, Cause.OVERLAP, Cause.PENDING_RELEASE, Cause.HOLDS_UNKNOWN, Cause.MOVING)


def pods(device: str, state: HoldState = HoldState.LISTED) -> Hold:
    return Hold(device, Door.PLUGIN, "team/pod", 1.0, plugin_owner(device), state=state)


def draining(device: str) -> Hold:
    return Hold(
        device, None, "process 7 (python) is left on it", 1.0, pending_owner(device), state=HoldState.PENDING_RELEASE
    )


@pytest.mark.parametrize("cause", HOLDS)
async def test_a_device_that_the_view_says_is_held_is_given_when_the_ledger_has_it_free(
    node: ClaimNode, cause: Cause
) -> None:
    node.devices = (offered(gpu(0), healthy=False, reason="held a moment ago", cause=cause),)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    assert [device.device for device in await service.prepare(reference())] == [GPU0]


async def test_a_device_whose_rule_moved_to_the_plugin_door_is_given_to_the_claim_that_was_allocated_before(
    node: ClaimNode,
) -> None:
    rule = replace(RULE, door=Doors.PLUGIN)
    node.devices = (offered(gpu(0), rule=rule, healthy=False, reason="moving", cause=Cause.MOVING),)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    assert [device.device for device in await service.prepare(reference())] == [GPU0]


@pytest.mark.parametrize("cause", HOLDS)
async def test_what_else_is_wrong_with_a_device_that_was_held_is_no_matter_for_the_ledger(
    node: ClaimNode, cause: Cause
) -> None:
    rule = replace(RULE, edits=EditOptions(strategies=(ListStrategy.CDI_CRI,), cdi_mode=CdiMode.DELEGATE))
    node.devices = (offered(gpu(0), rule=rule, healthy=False, reason="held a moment ago", cause=cause),)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    with pytest.raises(ClaimError, match="cannot be allocated to a claim: no CDI spec on this node defines"):
        await service.prepare(reference())


@pytest.mark.parametrize(
    ("hold", "when"),
    [
        (pods(GPU0), ""),
        (replace(pods(GPU0, HoldState.RECORDED), bound=True), ""),
        (pods(GPU0, HoldState.ALLOCATED), "once that pod is known to run, "),
        (pods(GPU0, HoldState.RECORDED), "once that pod is known to run, "),
    ],
)
async def test_a_device_that_a_pod_has_is_refused_at_once_with_the_pod_and_when_which_of_them_goes(
    node: ClaimNode, hold: Hold, when: str
) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    service.ledger.take(plugin_owner(GPU0), [hold])
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable) as caught:
            await service.prepare(reference())
    assert str(caught.value) == (
        f"device {GPU0} is held through the plugin door by team/pod; {when}the pod of this claim is evicted, and "
        "its controller creates a new one, which is scheduled again; if the API server drops device taints, it waits "
        "until the other pod ends; delete it to have it scheduled elsewhere"
    )
    assert (service.contested() == {GPU0}) is (when == "")
    assert service.records() == ()
    assert not (node.root / "cdi").exists()


async def test_a_pods_device_is_found_behind_one_that_another_claim_has(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0), result(GPU1, "b")))
    service = await node.started()
    await service.prepare(reference(1))
    service.ledger.take(plugin_owner(GPU1), [pods(GPU1)])
    async with asyncio.timeout(60):
        with pytest.raises(Unavailable, match=f"device {GPU1} is held through the plugin door by team/pod"):
            await service.prepare(reference(2))


@pytest.mark.parametrize(
    "hold",
    [draining(GPU0), replace(pods(GPU0, HoldState.PENDING_RELEASE), holder="a process may be left on it")],
)
async def test_a_device_that_drains_is_waited_for_and_given_when_it_is_free(node: ClaimNode, hold: Hold) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    service.ledger.take(hold.owner, [hold])
    waiting = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: any("pending release: " in status.problem for status in service.statuses()))
    service.ledger.release(hold.owner)
    service.ledger.bus.publish(HoldsChanged())
    async with asyncio.timeout(60):
        assert [device.device for device in await waiting] == [GPU0]
    assert service.contested() == frozenset()


async def test_a_device_that_goes_on_draining_is_refused_after_the_wait_with_what_ends_it(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    service.ledger.take(pending_owner(GPU0), [draining(GPU0)])
    expected = (
        rf"device {GPU0} is pending release: process 7 \(python\) is left on it; "
        "it becomes free when no process uses it; "
        f"'ostler holds release {GPU0}' ends the wait"
    )
    with pytest.raises(Unavailable, match=expected):
        await service.prepare(reference())


class Knowledge:
    """Whether the plugin door's holds are known."""

    def __init__(self) -> None:
        self.there = False

    def __call__(self) -> bool:
        return self.there


async def test_nothing_new_is_taken_while_it_is_not_known_what_pods_have(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(is_known=Knowledge())
    expected = (
        "the kubelet has not reported yet which devices pods have through the plugin door, so these may be in use; "
        "'ostler holds' lists what is missing; the kubelet asks again"
    )
    with pytest.raises(Unavailable, match=expected):
        await service.prepare(reference())
    assert service.ledger.all == ()


async def test_a_claim_waits_until_it_is_known_what_pods_have(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    known = Knowledge()
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started(is_known=known)
    waiting = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: any("has not reported yet" in status.problem for status in service.statuses()))
    known.there = True
    service.ledger.bus.publish(HoldsChanged())
    async with asyncio.timeout(60):
        assert len(await waiting) == 1


async def test_a_prepared_claim_is_answered_though_nobody_knows_what_pods_have(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    answer = await (await node.started()).prepare(reference())
    service = await node.started(is_known=Knowledge())
    assert await service.prepare(reference()) == answer


async def test_who_only_looks_does_not_have_to_know_what_pods_have(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0, adminAccess=True)))
    service = await node.started(is_known=Knowledge())
    assert len(await service.prepare(reference())) == 1


async def test_a_pod_that_was_first_keeps_the_device_and_a_claim_that_was_first_as_well(node: ClaimNode) -> None:
    ledger = Ledger()
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)))
    service = await node.started(ledger=ledger)
    ledger.take_each([pods(GPU0, HoldState.ALLOCATED)])
    with pytest.raises(Unavailable):
        await service.prepare(reference(1))
    await service.prepare(reference(2))
    with pytest.raises(Exception, match=rf"device {GPU1} is held through the dra door by default/claim-2 \(uid-2\)"):
        ledger.take_each([pods(GPU1, HoldState.ALLOCATED)])
