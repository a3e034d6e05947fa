"""Calls that come too early, callers that go away, and the end of an instance."""

from __future__ import annotations

import asyncio

import pytest

from driver.claims.model import RecordState, Unavailable
from tests.making.claim_service import GPU0, ClaimNode, claim, reference, result
from tests.waiting import eventually


async def test_calls_before_the_devices_are_known_wait_and_then_say_so(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = node.service()
    with pytest.raises(Unavailable, match="the agent is still reading the claims of this node"):
        await service.unprepare(reference())
    await service.recover()
    with pytest.raises(Unavailable, match="the agent is still finding the devices of this node"):
        await service.prepare(reference())
    early = asyncio.create_task(service.prepare(reference()))
    await asyncio.sleep(0)
    service.apply(node.view)
    assert len(await early) == 1


async def test_a_caller_that_goes_away_leaves_a_whole_claim(node: ClaimNode) -> None:
    node.reader.gate = asyncio.Event()
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    caller = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: node.reader.asked == 1)
    caller.cancel()
    await asyncio.wait([caller])
    assert caller.cancelled()
    node.reader.gate.set()
    await eventually(lambda: [record.state for record in service.records()] == [RecordState.COMPLETED])
    assert node.spec(1) is not None


async def test_nothing_is_begun_once_the_service_is_closed(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.close()
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await service.prepare(reference())
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await service.unprepare(reference())


async def test_the_end_waits_for_no_api_server(node: ClaimNode) -> None:
    node.reader.gate = asyncio.Event()
    service = await node.started()
    asking = asyncio.create_task(service.prepare(reference()))
    await eventually(lambda: node.reader.asked == 1)
    async with asyncio.timeout(60):
        await service.close()
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await asking


async def test_the_end_waits_for_no_device(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: len(service.statuses()) == 2)
    async with asyncio.timeout(60):
        await service.close()
    with pytest.raises(Unavailable, match="its successor answers from now on"):
        await waiting
    assert [record.claim.uid for record in service.records()] == ["uid-1"]
