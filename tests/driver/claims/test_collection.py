from __future__ import annotations

import asyncio

import pytest

from driver.claims.contracts import ClaimStep
from driver.claims.model import Unavailable
from tests.making.claim_service import GPU0, GPU1, ClaimNode, DieAt, Killed, claim, reference, result
from tests.waiting import eventually


async def _prepared(node: ClaimNode, number: int = 1, device: str = GPU0):  # type: ignore[no-untyped-def]
    node.reader.put(claim(number, result(device)))
    service = await node.started()
    await service.prepare(reference(number))
    return service


async def test_a_claim_that_neither_api_server_nor_kubelet_has_is_released(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.reader.drop(1)
    node.kubelet_knows()
    assert await service.collect() == 1
    assert service.ledger.all == ()
    assert node.spec(1) is None
    assert not node.record_path(1).exists()


async def test_a_claim_that_the_kubelet_has_is_never_released_nor_asked_for(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.reader.drop(1)
    node.kubelet_knows(1)
    asked = node.reader.asked
    assert await service.collect() == 0
    assert node.reader.asked == asked
    assert len(service.records()) == 1


async def test_a_claim_that_the_api_server_gives_to_a_pod_is_never_released(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.kubelet_knows()
    assert await service.collect() == 0


@pytest.mark.parametrize(
    "body",
    [
        {"metadata": {"uid": "another"}},
        claim(1, result(GPU0), users=()),
        claim(1, {**result(GPU0), "driver": "other.dev"}),
        claim(1, result(GPU0, pool="node-2")),
        {"metadata": {"uid": "uid-1"}, "status": {}},
    ],
)
async def test_a_claim_that_is_replaced_or_given_to_nobody_is_gone(node: ClaimNode, body: dict[str, object]) -> None:
    service = await _prepared(node)
    node.kubelet_knows()
    node.reader.claims["default", "claim-1"] = body  # type: ignore[assignment]
    assert await service.collect() == 1


async def test_a_silent_api_server_proves_nothing(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.reader.drop(1)
    node.kubelet_knows()
    node.reader.fault = "the API server does not answer"
    assert await service.collect() == 0
    node.reader.fault = ""
    assert await service.collect() == 1


async def test_a_claim_that_cannot_be_asked_for_keeps_no_other_from_being_released(node: ClaimNode) -> None:
    node.reader.put(claim(1, result(GPU0)), claim(2, result(GPU1)))
    service = await node.started()
    await service.prepare(reference(1))
    await service.prepare(reference(2))
    node.reader.drop(2)
    node.kubelet_knows()
    node.reader.faults["claim-1"] = Unavailable("no relationship found")
    assert await service.collect() == 1
    assert {hold.owner for hold in service.ledger.all} == {"uid-1"}


async def test_without_the_kubelets_file_a_completed_claim_stays_and_people_are_told(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.reader.drop(1)
    assert await service.collect() == 0
    await service.collect()
    [told] = node.events.of("KubeletClaimsUnknown")
    assert (
        "dra_manager_state cannot be used: No such file or directory; check the setting of the kubelet's root" in told
    )
    (node.root / "kubelet" / "dra_manager_state").write_text('{"Data":"x","Checksum":1}')
    assert await service.collect() == 0
    assert "checkpoint is corrupted" in node.events.of("KubeletClaimsUnknown")[1]


async def test_without_claims_it_is_no_news_that_the_kubelets_file_cannot_be_read(node: ClaimNode) -> None:
    await (await node.started()).collect()
    assert node.events.events == []


async def test_without_the_kubelets_file_a_claim_that_was_never_answered_goes_by_the_api_server(
    node: ClaimNode,
) -> None:
    node.reader.put(claim(1, result(GPU0)))
    with pytest.raises(Killed):
        await (await node.started(steps=DieAt(ClaimStep.DESCRIBED))).prepare(reference())
    service = await node.started()
    assert await service.collect() == 0
    node.reader.drop(1)
    assert await service.collect() == 1
    assert node.spec(1) is None


async def test_a_claim_that_comes_back_while_it_is_looked_at_is_kept(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.reader.drop(1)
    node.kubelet_knows()
    node.reader.gate = asyncio.Event()
    asked = node.reader.asked
    looking = asyncio.create_task(service.collect())
    await eventually(lambda: node.reader.asked > asked)
    node.kubelet_knows(1)
    node.reader.gate.set()
    assert await looking == 0
    assert len(service.records()) == 1


async def test_a_claim_that_is_released_while_it_is_looked_at_is_released_once(node: ClaimNode) -> None:
    service = await _prepared(node)
    node.reader.drop(1)
    node.kubelet_knows()
    node.reader.gate = asyncio.Event()
    asked = node.reader.asked
    looking = asyncio.create_task(service.collect())
    await eventually(lambda: node.reader.asked > asked)
    await service.unprepare(reference())
    node.reader.gate.set()
    assert await looking == 0


async def test_a_claim_that_waits_for_a_device_of_nobody_has_it_looked_for_at_once(node: ClaimNode) -> None:
    node.with_options(device_wait=20.0, collect_spacing=0.01)
    service = await _prepared(node)
    node.reader.put(claim(2, result(GPU0)))
    node.reader.drop(1)
    node.kubelet_knows(2)
    collecting = asyncio.create_task(service.run())
    async with asyncio.timeout(60):
        assert len(await service.prepare(reference(2))) == 1
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_looks_are_repeated(node: ClaimNode) -> None:
    node.with_options(collect_first=0.01, collect_spacing=0.0, collect_every=0.01)
    service = await _prepared(node)
    node.kubelet_knows(1)
    collecting = asyncio.create_task(service.run())
    node.reader.drop(1)
    node.kubelet_knows()
    await eventually(lambda: service.ledger.all == ())
    await service.close()
    collecting.cancel()
    await asyncio.wait([collecting])
    assert collecting.cancelled()


async def test_closing_ends_a_look_that_waits_for_the_api_server(node: ClaimNode) -> None:
    node.with_options(collect_first=0.0)
    service = await _prepared(node)
    node.kubelet_knows()
    node.reader.gate = asyncio.Event()
    asked = node.reader.asked
    collecting = asyncio.create_task(service.run())
    await eventually(lambda: node.reader.asked > asked)
    async with asyncio.timeout(60):
        await service.close()
    assert not collecting.done()
    collecting.cancel()
    await asyncio.wait([collecting])


async def test_a_cdi_file_of_a_claim_that_nobody_knows_is_swept_on_proof(node: ClaimNode) -> None:
    (node.root / "cdi").mkdir()
    orphan = node.root / "cdi" / "ostler.dev-claim_uid-7.json"
    orphan.write_text("{}")
    service = await node.started()
    await service.collect()
    assert orphan.exists(), "nothing says that the kubelet does not have it"
    node.kubelet_knows(7)
    await service.collect()
    assert orphan.exists()
    node.kubelet_knows()
    await service.collect()
    assert not orphan.exists()


async def test_a_claim_that_cannot_be_prepared_again_stays_taken_and_is_told(node: ClaimNode) -> None:
    node.kubelet_knows(1, devices={1: (GPU1,)})
    service = await node.started()
    await service.collect()
    assert (
        "claim default/claim-1 cannot be prepared again: claim default/claim-1 does not exist"
        in (node.events.of("ClaimNotRebuilt")[0])
    )
    assert set(service.ledger.by_device()) == {GPU1}
    node.reader.put(claim(2, result(GPU1)))
    with pytest.raises(Unavailable, match="held"):
        await service.prepare(reference(2))
