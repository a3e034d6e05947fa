"""Claims and calls that meet: two pods for one device, one claim for two pods, one name for two claims, late calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.model import ClaimError, ClaimReference, RecordState, Unavailable
from kube.bodies import JsonObject
from node.clocks import SystemClocks
from tests.making.claim_service import GPU0, GPU1, ClaimNode, claim, offered, reference, result
from tests.making.devices import gpu
from tests.waiting import eventually

AGAIN = ClaimReference("default", "claim-1", "uid-1-again")
"""Another claim of the first one's name."""


class _Counted:
    """Counts what is done, by step."""

    def __init__(self) -> None:
        self.steps: list[ClaimStep] = []

    def reached(self, step: ClaimStep, uid: str) -> None:
        self.steps.append(step)


def _again() -> JsonObject:
    body: dict[str, Any] = claim(1, result(GPU0))
    return {**body, "metadata": {**body["metadata"], "uid": AGAIN.uid}}


async def test_of_two_claims_that_want_one_device_at_once_one_gets_it(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    outcomes = await asyncio.gather(*(service.prepare(reference(n)) for n in (1, 2)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Unavailable", "tuple"]
    [record] = service.records()
    assert {hold.owner for hold in service.ledger.all} == {record.claim.uid}
    assert [path.stem for path in (node.root / "state" / "claims").iterdir()] == [record.claim.uid]
    assert len(list((node.root / "cdi").iterdir())) == 1


async def test_claims_that_want_each_others_devices_do_not_wait_for_each_other_for_ever(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU1, "b")), claim(2, result(GPU1), result(GPU0, "b")))
    service = await node.started()
    outcomes = await asyncio.gather(*(service.prepare(reference(n)) for n in (1, 2)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Unavailable", "tuple"]
    assert len(service.ledger.all) == 2


async def test_claims_that_wait_for_one_device_get_it_one_after_the_other(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    numbers = range(1, 9)
    node.reader.put(*(claim(number, result(GPU0)) for number in numbers))
    service = await node.started()

    async def used(number: int) -> None:
        await service.prepare(reference(number))
        assert {hold.owner for hold in service.ledger.all} == {reference(number).uid}
        await service.unprepare(reference(number))

    async with asyncio.timeout(60):
        await asyncio.gather(*(used(number) for number in numbers))
    assert service.records() == ()


async def test_two_pods_that_share_a_claim_and_start_together_are_answered_alike_and_it_is_prepared_once(
    node: ClaimNode,
) -> None:
    node.reader.put(claim(1, result(GPU0), users=("pod-1", "pod-2")))
    counted = _Counted()
    service = await node.started(steps=counted)
    one, two = await asyncio.gather(service.prepare(reference()), service.prepare(reference()))
    assert one == two
    assert (counted.steps.count(ClaimStep.COMPLETED), counted.steps.count(ClaimStep.ANSWERED)) == (1, 2)


async def test_the_device_of_a_pod_deleted_by_force_is_kept_until_the_kubelet_releases_it(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0, collect_spacing=0.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    node.kubelet_knows(1)
    service = await node.started()
    collecting = asyncio.create_task(service.run())
    await service.prepare(reference())
    node.reader.drop(1)
    node.kubelet_knows(1, 2)
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: len(service.statuses()) == 2)
    await service.collect()
    assert {hold.owner for hold in service.ledger.all} == {"uid-1"}, "its containers may still run"
    assert not waiting.done()
    await service.unprepare(reference())
    assert [device.device for device in await waiting] == [GPU0]
    await service.close()
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_a_claim_made_again_under_its_name_is_another_one(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.reader.put(_again())
    with pytest.raises(
        ClaimError, match="claim default/claim-1 was replaced by another of the same name: its uid is uid-1-again"
    ):
        await service.prepare(reference())
    with pytest.raises(Unavailable, match=r"held through the dra door by default/claim-1 \(uid-1\)"):
        await service.prepare(AGAIN)
    await service.unprepare(reference())
    assert [device.device for device in await service.prepare(AGAIN)] == [GPU0]
    await service.unprepare(reference())
    assert {hold.owner for hold in service.ledger.all} == {AGAIN.uid}, "the release of the first one is not its own"
    assert node.spec(1) is None


async def test_a_claim_made_again_under_its_name_gets_the_device_of_the_first_one_on_proof(node: ClaimNode) -> None:
    node.with_options(device_wait=20.0, collect_spacing=0.01)
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.reader.put(_again())
    node.kubelet_knows()
    collecting = asyncio.create_task(service.run())
    async with asyncio.timeout(60):
        assert len(await service.prepare(AGAIN)) == 1
    assert [record.claim for record in service.records()] == [AGAIN]
    await service.close()
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_a_duplicate_after_a_restart_is_answered_as_before_and_writes_nothing(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    first = await (await node.started()).prepare(reference())
    before = node.record_path(1).stat().st_mtime_ns
    assert await (await node.started()).prepare(reference()) == first
    assert node.record_path(1).stat().st_mtime_ns == before


async def test_a_release_that_is_repeated_after_a_restart_touches_nobody(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    await service.unprepare(reference())
    service = await node.started()
    await service.prepare(reference(2))
    await service.unprepare(reference())
    assert {hold.owner for hold in service.ledger.all} == {"uid-2"}


async def test_a_late_question_after_a_restart_brings_nothing_back_that_nobody_has(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    await service.unprepare(reference())
    service = await node.started()
    # The API server does not know yet that the pod is gone, and no tombstone outlives a restart.
    await service.prepare(reference())
    node.kubelet_knows()
    node.reader.put(claim(1, result(GPU0), users=()))
    assert await service.collect() == 1
    with pytest.raises(ClaimError, match="is not reserved for any pod"):
        await service.prepare(reference())
    assert service.ledger.all == ()


async def test_a_device_that_goes_while_its_claim_is_read_is_not_given(node: ClaimNode) -> None:
    node.reader.gate = asyncio.Event()
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    asking = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: node.reader.asked == 1)
    node.devices = ()
    service.apply(node.view)
    node.reader.gate.set()
    with pytest.raises(ClaimError, match="is not offered on this node"):
        await asking
    assert service.ledger.all == ()


async def test_a_device_that_goes_while_it_is_waited_for_is_not_given(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: len(service.statuses()) == 2)
    node.devices = (offered(gpu(1)),)
    service.apply(node.view)
    await service.unprepare(reference(1))
    with pytest.raises(ClaimError, match=rf"device {GPU0} is not offered on this node"):
        await waiting
    assert service.ledger.all == ()
    assert node.spec(2) is None


async def test_a_wall_clock_that_jumps_changes_nothing_but_what_is_shown(node: ClaimNode) -> None:
    now = 2e9
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started(clocks=SystemClocks(clock=lambda: now))
    first = await service.prepare(reference())
    now = 0.0
    assert await service.prepare(reference()) == first
    assert [record.since for record in service.records()] == [2e9]
    with pytest.raises(Unavailable, match="held"):
        await service.prepare(reference(2))
    service = await node.started(clocks=SystemClocks(clock=lambda: now))
    assert await service.prepare(reference()) == first
    now = 9e9
    node.kubelet_knows()
    assert await service.collect() == 0, "age is no reason"
    await service.unprepare(reference())
    with pytest.raises(ClaimError, match="the call came too late"):
        await service.prepare(reference())
    now = -5.0
    assert len(await service.prepare(reference(2))) == 1
    assert [(record.state, record.since) for record in service.records()] == [(RecordState.COMPLETED, -5.0)]
