"""A device has one claim; claims wait for each other only for a device."""

from __future__ import annotations

import asyncio

import pytest

from driver.claims.model import ClaimError, Unavailable
from node.values import replace
from tests.making.claim_service import DRIVER, GPU0, GPU1, GPU2, ClaimNode, claim, offered, reference, result
from tests.making.devices import gpu
from tests.making.offered_devices import mig
from tests.waiting import eventually


async def test_a_device_of_another_claim_is_refused_with_its_holder(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1), result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    with pytest.raises(Unavailable, match=rf"device {GPU0} is held through the dra door by default/claim-1 \(uid-1\)"):
        await service.prepare(reference(2))
    assert [record.claim.uid for record in service.records()] == ["uid-1"]
    assert GPU1 not in service.ledger.by_device()
    assert node.spec(2) is None


async def test_a_claim_waits_for_a_device_that_is_about_to_be_released(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: any("waiting: device" in status.problem for status in service.statuses()))
    await service.unprepare(reference(1))
    assert [device.device for device in await waiting] == [GPU0]


async def test_no_claim_waits_for_the_device_of_another(node: ClaimNode) -> None:
    node.with_options(device_wait=30.0)
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0)), claim(3, result(GPU1)))
    service = await node.started()
    await service.prepare(reference(1))
    waiting = asyncio.create_task(service.prepare(reference(2)))
    await eventually(lambda: len(service.statuses()) == 2)
    async with asyncio.timeout(60):
        await service.prepare(reference(3))
    assert not waiting.done()
    await service.unprepare(reference(2))
    with pytest.raises(ClaimError, match="was released while it was being prepared"):
        await waiting


async def test_a_gpu_and_its_mig_devices_are_not_given_to_two_claims(node: ClaimNode) -> None:
    instances = (mig(0, 0), mig(0, 1))
    node.devices = tuple(offered(device) for device in (gpu(0), *instances))
    node.reader.put(claim(1, result(instances[0].name)), claim(2, result(instances[1].name)), claim(3, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(1))
    await service.prepare(reference(2))
    with pytest.raises(Unavailable, match=f"device {GPU0}, whose part {instances[0].name} is held"):
        await service.prepare(reference(3))


async def test_claims_with_shares_of_their_own_have_one_device_together(node: ClaimNode) -> None:
    node.reader.put(
        claim(1, result(GPU0, shareID="s1")), claim(2, result(GPU0, shareID="s2")), claim(3, result(GPU0, shareID="s1"))
    )
    service = await node.started()
    [one] = await service.prepare(reference(1))
    [two] = await service.prepare(reference(2))
    assert (one.share_id, one.cdi_devices) == ("s1", (f"{DRIVER}/claim=uid-1-{GPU0}:s1",))
    assert two.share_id == "s2"
    with pytest.raises(Unavailable, match=r"claim-1 \(uid-1\) as share s1"):
        await service.prepare(reference(3))


async def test_admin_access_is_beside_whoever_holds_the_device(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU0, adminAccess=True)), claim(3, result(GPU0)))
    service = await node.started()
    await service.prepare(reference(2))
    assert GPU0 not in service.ledger.by_device()
    await service.prepare(reference(1))
    assert service.ledger.by_device()[GPU0].owner == "uid-1"


async def test_one_device_for_use_and_for_looking_in_one_claim_has_two_entries(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0), result(GPU0, "watch", adminAccess=True)))
    service = await node.started()
    one, two = await service.prepare(reference())
    assert one.cdi_devices == (f"{DRIVER}/claim=uid-1-{GPU0}",)
    assert two.cdi_devices == (f"{DRIVER}/claim=uid-1-{GPU0}:2",)


async def test_two_hundred_claims_at_once(node: ClaimNode) -> None:
    numbers = range(200)
    devices = [replace(gpu(0), name=f"gpu-{number}", uuid=f"GPU-{number}") for number in numbers]
    node.devices = tuple(offered(device) for device in devices)
    node.reader.put(*(claim(number, result(f"gpu-{number}")) for number in numbers))
    service = await node.started()
    answers = await asyncio.gather(*(service.prepare(reference(number)) for number in numbers))
    assert [answer[0].device for answer in answers] == [f"gpu-{number}" for number in numbers]
    await asyncio.gather(*(service.unprepare(reference(number)) for number in numbers))
    assert service.records() == ()
    assert list((node.root / "cdi").iterdir()) == []


async def test_a_claim_that_was_allocated_anew_gets_its_new_devices(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)))
    service = await node.started()
    await service.prepare(reference())
    node.reader.put(claim(1, result(GPU2)))
    assert [device.device for device in await service.prepare(reference())] == [GPU2]
    assert set(service.ledger.by_device()) == {GPU2}
